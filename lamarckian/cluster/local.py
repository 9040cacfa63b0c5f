"""Processes of this machine. They die with the process that started them, whatever ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from lamarckian.cluster.child import Launch
from lamarckian.cluster.interface import Exit, Failure, Machine, Process
from lamarckian.cluster.machine import cores
from lamarckian.cluster.register import Record, Register, check_machine
from lamarckian.transport.memory import anonymous_file

_LOG = logging.getLogger(__name__)
_TAIL_LINES = 20
_LINE_BYTES = 1024


@dataclass
class _Child(Record):
    """A process, and what is needed to start it anew."""

    launch: Launch
    fds: Sequence[int]
    environment: Mapping[str, str]
    popen: subprocess.Popen[bytes]
    report_fd: int
    tail: deque[bytes]
    reader: threading.Thread

    def process(self) -> Process:
        return Process(self.launch.name, self.launch.config["attempt"], self.popen.pid)


class LocalCluster:
    """A `Cluster` of child processes. It belongs to one thread at a time.

    max_deaths: a process is started anew after so many unasked ends within `window_s`, as `register.deaths` counts, and no more.
    parts: as how many machines it passes for, each with its share of the cores.
    path: where children find modules; None for where this process does.

    What a child writes is logged line by line, as a warning: a child has nothing to print when all is well.
    Ctrl-C reaches this process only.
    """

    def __init__(self, max_deaths: int = 3, window_s: float = 60.0, parts: int = 1, path: Sequence[str] | None = None) -> None:
        self._path = path
        self._machines = [Machine(f"machine-{index}", "127.0.0.1", max(1, cores() // parts)) for index in range(parts)]
        self._children: Register[_Child] = Register(max_deaths, window_s)
        # Nothing is ever written to this pipe. Its writing end closes when this process is no more, and each child knows.
        self._lifeline, self._life = os.pipe()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def machines(self) -> list[Machine]:
        """As `Cluster.machines`."""
        return list(self._machines)

    def start(
        self,
        name: str,
        target: str,
        config: Mapping[str, Any],
        fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        machine: str | None = None,
        attempt: int = 0,
    ) -> Process:
        """As `Cluster.start`. The descriptors must stay open here as long as the process may be started anew.

        attempt: at which it begins to count, where it is not the first.
        """
        if machine is not None:
            check_machine(name, machine, [there.name for there in self._machines])
        self._children.check_free(name)
        child = self._spawn(name, target, {**config, "attempt": attempt}, fds, environment or {})
        self._children[name] = child
        return child.process()

    def poll(self) -> list[Exit]:
        """As `Cluster.poll`."""
        exits = []
        for child in self._children.values():
            if child.exit is None and child.popen.poll() is not None:
                exit = _end(child)
                self._children.end(child, exit)
                exits.append(exit)
        return exits

    def restart(self, name: str) -> Process:
        """As `Cluster.restart`."""
        old = self._children.revive(name)
        config = {**old.launch.config, "attempt": old.launch.config["attempt"] + 1}
        child = self._spawn(name, old.launch.target, config, old.fds, old.environment)
        child.ends = old.ends
        self._children[name] = child
        return child.process()

    def stop(self, name: str) -> None:
        """As `Cluster.stop`: SIGTERM, and SIGKILL after 2 s."""
        child = self._children.pop(name, None)
        if child is not None:
            _terminate([child])

    def close(self) -> None:
        """As `Cluster.close`: SIGTERM to all, and SIGKILL after 2 s."""
        _terminate(self._children.values())
        self._children.clear()
        if self._life >= 0:
            os.close(self._lifeline)
            os.close(self._life)
            self._life = -1

    def _spawn(self, name: str, target: str, config: dict[str, Any], fds: Sequence[int], environment: Mapping[str, str]) -> _Child:
        report_fd, launch_fd = anonymous_file(), anonymous_file()
        # The system too ends a child with its parent, but by parent it means the thread that started the child.
        bound = threading.current_thread() is threading.main_thread()
        path = list(sys.path if self._path is None else self._path)
        launch = Launch(name, target, config, path, report_fd, self._lifeline, bound)
        try:
            # A file, not a pipe: it takes a config of any size without waiting for the child to read.
            os.pwrite(launch_fd, msgspec.msgpack.encode(launch), 0)
            popen = _quietly_open(
                [sys.executable, "-m", "lamarckian.cluster.child", name],
                stdin=launch_fd,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(report_fd, self._lifeline, *fds),
                env={**os.environ, **environment},
            )
        except BaseException:
            os.close(report_fd)
            raise
        finally:
            os.close(launch_fd)
        tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        reader = threading.Thread(target=_read, args=(name, popen.stdout, tail), name=f"output of {name}", daemon=True)
        reader.start()
        return _Child(launch, fds, environment, popen, report_fd, tail, reader)


def _quietly_open(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """A Ctrl-C while the child is young waits for the child to ignore it: the child inherits the mask."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _read(name: str, stream: IO[bytes], tail: deque[bytes]) -> None:
    with stream:
        while line := stream.readline(_LINE_BYTES):
            tail.append(line)
            _LOG.warning("%s: %s", name, line.decode(errors="replace").rstrip())


def _end(child: _Child) -> Exit:
    """What is to be told of a process that is no more; frees what was kept for it."""
    child.reader.join(0.5)  # a grandchild may still hold the other end
    failure = None
    with contextlib.suppress(msgspec.DecodeError):  # nothing, or a report that the process did not live to finish
        report = os.pread(child.report_fd, os.fstat(child.report_fd).st_size, 0)
        failure = msgspec.msgpack.decode(report, type=Failure)
    os.close(child.report_fd)
    code = child.popen.returncode
    return Exit(
        name=child.launch.name,
        attempt=child.launch.config["attempt"],
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        failure=failure,
        tail=b"".join(child.tail).decode(errors="replace"),
    )


def _terminate(children: Iterable[_Child], patience_s: float = 2.0) -> None:
    alive = [child for child in children if child.exit is None]
    for child in alive:
        child.popen.terminate()
    deadline = time.monotonic() + patience_s
    for child in alive:
        try:
            child.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.popen.kill()
            child.popen.wait()
        _end(child)
