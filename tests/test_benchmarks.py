"""Benchmarks run: a little of each that needs neither peers nor a lab, in a process of its own, as it would be started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from training import OURS, recipe

from lamarckian.recipe import load

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
IMPORTS = "from pathlib import Path; from lamarckian.cluster.local import LocalCluster; import {name}; from {name} import *; {call}"
CALLS = {
    "dispatch": "dispatch.FRAGMENTS = 20; cluster = LocalCluster(); megabytes_per_second('images', 'lz4', cluster); cluster.close()",
    "evolution_async": "measure('asynchronous', 0.0, 1, 10, 0)",
    "league": "[Against(way, 4, Path(way)).rate(0.1) for way in ('batched', 'coroutines')]",
    "optimising": "nsga2('zdt1', 8, 2, 0), minimise('sphere', 2, 0)",
    "pong_rules": "score('tracker', 0, 10), single_rate_hz()",
    "pool": "cluster = LocalCluster(); FRAGMENTS['small'] = 20; "
    "[way('small', cluster) for way in (through_pool, through_server, through_socket)]; cluster.close()",
    "ray_objects": "through_pool(1 << 20, 1), through_channel(1 << 20, 1), published(1 << 20, 1, False), published(1 << 20, 1, True)",
    "relays": "measure('pipeline', 2, 1), measure('flat', 1, 1)",
    "ring": "measure(2, 0.1)",
    "sampling": "ours = Ours(); ours.rate(0.1); ours.shares()",
    "versions": "run(0.3)",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_little_of_it_runs(name, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{BENCHMARKS.parent}{os.pathsep}{BENCHMARKS}"}
    command = [sys.executable, "-c", IMPORTS.format(name=name, call=CALLS[name])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("task", "algorithm"), [(task, algorithm) for task, algorithms in OURS.items() for algorithm in algorithms])
def test_its_trainings_are_recipes(task, algorithm):
    name, *overrides = recipe(task, algorithm)
    assert load(name, overrides).learner.batch
