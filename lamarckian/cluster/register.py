"""What a cluster remembers of its processes: that a name is given once, and how often each died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from lamarckian.cluster.interface import Exit
from lamarckian.errors import ProcessError


@dataclass(kw_only=True)
class Record:
    """A process: how it ended, once that was told, and when it and its forerunners did (`time.monotonic`, s)."""

    exit: Exit | None = None
    deaths: deque[float] = field(default_factory=deque)


R = TypeVar("R", bound=Record)


class Register(dict[str, R]):
    """Processes by name. A process may be started anew after `max_deaths` unasked ends within `window_s`, and no more."""

    def __init__(self, max_deaths: int, window_s: float) -> None:
        super().__init__()
        self._max_deaths = max_deaths
        self._window_s = window_s

    def check_free(self, name: str) -> None:
        """Raises ValueError when a process of this name is there."""
        if name in self and self[name].exit is None:
            raise ValueError(f"a process named {name!r} is there already")

    def end(self, record: R, exit: Exit) -> None:
        """Notes an unasked end."""
        record.exit = exit
        record.deaths.append(time.monotonic())

    def revive(self, name: str) -> R:
        """The ended process that may be started anew.

        Raises ValueError when its end was not told, ProcessError when it died too often in too short a time.
        """
        record = self.get(name)
        if record is None or record.exit is None:
            raise ValueError(f"only a process whose end was told can be started anew; {name!r} is not one")
        while record.deaths and record.deaths[0] < time.monotonic() - self._window_s:
            record.deaths.popleft()
        if len(record.deaths) > self._max_deaths:
            raise ProcessError(f"a process ended {len(record.deaths)} times within {self._window_s:g} s: {record.exit.describe()}")
        return record


def check_machine(process: str, machine: str, machines: Iterable[str]) -> None:
    """Raises ProcessError when the machine that a process is to run on is none of those there."""
    known = list(machines)
    if machine not in known:
        raise ProcessError(f"{process} is to run on {machine!r}, but the machines are {', '.join(known)}")
