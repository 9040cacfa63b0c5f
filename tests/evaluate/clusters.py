"""Whole trainings of a cluster on this machine, and what can be seen of them from outside."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests import commands
from tests.commands import COMMAND, wait_for

ROOT = Path(__file__).parents[2]
BATCH = 256
SMALL = [
    *commands.SMALL,
    "actor.count=1",
    "learner.threads=1",
    "record.every_s=0.2",
    "cluster.address=local",
]
MARK = "LAMARCKIAN_RUN_OF_A_TEST"
COUNTS = ("used", "stale", "overwritten", "lost", "waiting", "held")


class ClusterRun:
    """A command that trains, in a process group of its own, as a terminal makes one.

    prefix: in front of the command. environment: beside this process's own.
    """

    def __init__(self, folder: Path, *arguments: object, prefix: Sequence[str] = (), environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._lines: list[dict] = []
        self._seen: set[str] = set()
        self._mark = secrets.token_hex(8)
        self._err = folder.with_name(f"{folder.name}.{self._mark}.err")
        command = [*prefix, *COMMAND, *map(str, arguments)]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {}), MARK: self._mark}
        with self._err.open("w") as err:
            self.process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=err, stderr=err, start_new_session=True)

    def __enter__(self) -> ClusterRun:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            process.kill()
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        """What it wrote to the terminal."""
        return self._err.read_text()

    def processes(self) -> list[psutil.Process]:
        """All that belong to it, also those that lost their parents."""
        return [process for process in psutil.process_iter() if _environment(process).get(MARK) == self._mark]

    def named(self, prefix: str) -> list[psutil.Process]:
        """Those of a name that begins so."""
        return [process for process in self.processes() if _name(process).startswith(prefix)]

    def look(self) -> list[dict]:
        """The lines of metrics so far; one learner after another writes them, and cuts off what it does not know."""
        path = self.folder / "metrics.jsonl"
        for text in path.read_text().splitlines(keepends=True) if path.exists() else ():
            if text.endswith("\n") and text not in self._seen:
                self._seen.add(text)
                self._lines.append(json.loads(text))
        return list(self._lines)

    def wait_for_updates(self, more: int, timeout_s: float) -> None:
        """Until updates that are recorded from now on have grown by so many."""
        start = len(self.look())

        def grown() -> bool:
            assert self.process.poll() is None, self.said
            updates = [line["updates"] for line in self.look()[start:]]
            return bool(updates) and updates[-1] - min(updates) >= more

        wait_for(grown, timeout_s, f"updates: {self.said[-2000:]}")

    def interrupt(self, group: bool = False) -> int:
        """Ctrl-C, at the supervisor alone or at the whole group; the exit code."""
        (os.killpg if group else os.kill)(self.process.pid, signal.SIGINT)
        return self.process.wait(60)

    def wait_until_nothing_is_left(self) -> None:
        wait_for(lambda: not self.processes(), 10, f"end of {[_name(process) for process in self.processes()]}")


def begin(folder: Path, *more: object, **options: Any) -> ClusterRun:
    """A training without an end, on two machines, on which much else may be set."""
    where = ["cluster.machines=2", "stop={updates: 1000000}", "checkpoint.every_s=1"]
    return ClusterRun(folder, "train", "cartpole/ppo", *SMALL, *where, *more, "--run", folder, "--no-video", **options)


def add_up(line: dict) -> bool:
    """Whether a line accounts for all fragments of the pool."""
    counts = [line[f"pool/{name}"] for name in COUNTS]
    return line["pool/produced"] == sum(counts) and min(counts) >= 0


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def _name(process: psutil.Process) -> str:
    try:
        command = process.cmdline()
    except psutil.Error:
        return ""
    return command[-1] if "lamarckian.cluster.child" in command else ""
