"""Processes that a benchmark starts: ended with it, and what they and those below them spend."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

Start = Callable[..., "subprocess.Popen[Any]"]
"""As `subprocess.Popen`, or `Host.start` of a lab."""

PATIENCE_S = 20.0
CHILD = "lamarckian.cluster.child"


@contextmanager
def running(command: Sequence[str], start: Start = subprocess.Popen, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is there as long as the block: asked to end after it, and killed where it does not."""
    process = start(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        process.kill()
        process.wait()


def free_port() -> int:
    """One of this machine's where nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def interruptible() -> None:
    """From now on SIGTERM and SIGHUP end this process as Ctrl-C does, so that it clears up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def cpu_seconds(pid: int) -> dict[str, float]:
    """CPU seconds of a process and all below it until now, by what they are: `actor` for all actors; the first is `main`."""
    spent: Counter[str] = Counter()
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                spent["main" if process.pid == pid else _kind(process)] += times.user + times.system
    return dict(spent)


def _kind(process: psutil.Process) -> str:
    command = process.cmdline()
    if CHILD in command:
        return command[-1].split("-")[0]
    return "ray" if any("ray" in part for part in command[:3]) else process.name()


class Spending:
    """CPU seconds a second of a process and all below it, by kind, from the first look to the last at which no kind was gone."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._looks: list[tuple[float, dict[str, float]]] = []

    def look(self) -> None:
        spent = cpu_seconds(self._pid)
        if not self._looks or spent.keys() >= self._looks[-1][1].keys():
            self._looks.append((time.perf_counter(), spent))

    def rates(self) -> dict[str, float]:
        """In cores; nothing after fewer than two looks."""
        if len(self._looks) < 2:
            return {}
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return {kind: (last[kind] - spent) / (ended - began) for kind, spent in first.items()}
