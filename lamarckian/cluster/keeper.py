"""What a cluster of machines runs on each of them: it starts processes there and tells of their ends."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from lamarckian.cluster import local
from lamarckian.cluster.interface import Exit
from lamarckian.cluster.local import LocalCluster

_MAX_LINES = 200


class Order(msgspec.Struct, frozen=True):
    """A process to be started, as by `Cluster.start`."""

    name: str
    target: str
    config: dict[str, Any]
    environment: dict[str, str]
    attempt: int


class Report(msgspec.Struct, frozen=True):
    """What happened since the last one. lines: what processes wrote, the last of it."""

    exits: list[Exit]
    lines: list[str]


class Keeper:
    """Parent of the processes of its machine. All that comes and goes is msgpack.

    paths: folders where whoever gives the orders finds modules; those that are here, too, are where processes find them, after the
        interpreter's own.
    foreign: a folder whose modules are for this process only.
    gpus: how many of the machine's are reserved for us. Where it is none, processes see none.
    """

    def __init__(self, paths: Sequence[str], foreign: str, gpus: int) -> None:
        if "OMP_NUM_THREADS" not in psutil.Process().environ():
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray's, for a process that computes by itself; this one has children
        if gpus == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray shows what it reserved, but all where it reserved nothing
        own = [path for path in sys.path if not Path(path).is_relative_to(foreign)]
        self._cluster = LocalCluster(path=[*own, *(path for path in paths if path not in own and os.path.isdir(path))])
        self._lines = _Lines()
        logging.getLogger(local.__name__).addHandler(self._lines)

    def start(self, order: bytes) -> int:
        """Starts the process of an `Order`; returns its pid."""
        process = msgspec.msgpack.decode(order, type=Order)
        return self._cluster.start(
            process.name, process.target, process.config, environment=process.environment, attempt=process.attempt
        ).pid

    def report(self) -> bytes:
        """A `Report`."""
        exits = self._cluster.poll()
        return msgspec.msgpack.encode(Report(exits, self._lines.take()))

    def stop(self, name: str) -> None:
        """As `Cluster.stop`."""
        self._cluster.stop(name)

    def close(self) -> None:
        """As `Cluster.close`."""
        self._cluster.close()


class _Lines(logging.Handler):
    """Keeps the last lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def take(self) -> list[str]:
        return [self._lines.popleft() for _ in range(len(self._lines))]
