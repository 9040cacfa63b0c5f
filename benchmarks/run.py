"""Runs every benchmark, one after another; about three hours, most of it the peers'."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

for command in (
    "pong_rules",
    "pool",
    "sampling",
    "league",
    "evolution",
    "evolution_async",
    "training",
    "broadcast",
    "dispatch",
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
