"""Runs every benchmark, one after another; about three hours, most of it the peers'. Of learning, what takes minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

for command in (
    "learning cartpole/ppo --seeds 5",
    "learning cartpole/impala --seeds 3",
    "learning cartpole/a3c --seeds 3",
    "learning cartpole/dqn --seeds 3",
    "learning pendulum/ppo --seeds 5",
    "learning pong/ppo --seeds 2",
    "pong_rules",
    "pool",
    "sampling",
    "league",
    "evolution",
    "evolution_async",
    "training",
    "broadcast",
    "dispatch",
    "ring",
    "relays",
    "ray_objects",
    "simulation check",
    "simulation answers",
    "versions",
    "distributed",
    "cluster_peers",
    "layouts",
):
    name, *arguments = command.split()
    subprocess.run([sys.executable, HERE / f"{name}.py", *arguments], check=True)
