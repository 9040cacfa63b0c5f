"""Runs the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

SMALL = [
    "network.hidden=[16]",
    "algorithm.epochs=2",
    "algorithm.minibatches=2",
    "actor.matches=8",
    "actor.fragment=16",
    "learner.batch=256",
]
"""A training that has an update soon."""
COMMAND = [sys.executable, "-c", "from lamarckian.cli import main; main()"]


def start(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Starts a command; its output is in pipes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: object, cwd: Path | None = None, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    process = start(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_for(condition, timeout_s: float, what: str):  # type: ignore[no-untyped-def]
    """What `condition` gives as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.05)
    return found
