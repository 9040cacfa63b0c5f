"""Runs every benchmark, one after another; about three hours, most of it the peers'."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

ON_ONE_MACHINE = ("pong_rules", "pool", "sampling", "league", "evolution", "evolution_async", "training")
ON_MANY = ("broadcast", "dispatch", "versions", "distributed", "cluster_peers", "layouts")

for name in (*ON_ONE_MACHINE, *ON_MANY):
    subprocess.run([sys.executable, HERE / f"{name}.py"], check=True)
