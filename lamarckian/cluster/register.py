"""What a cluster remembers of its processes: that a name is given once, and how often each died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from lamarckian.cluster.interface import Exit
from lamarckian.errors import ProcessError

KILLS = 10


def deaths(exits: Iterable[Exit]) -> int:
    """How many deaths these ends count for: one from outside is no fault of the process, which may do better next time; `KILLS` are one."""
    outside = [exit.outside for exit in exits]
    return outside.count(False) + outside.count(True) // KILLS


@dataclass(kw_only=True)
class Record:
    """A process: how it ended, once that was told, and when (`time.monotonic`, s) and how it and its forerunners did."""

    exit: Exit | None = None
    ends: deque[tuple[float, Exit]] = field(default_factory=deque)


R = TypeVar("R", bound=Record)


class Register(dict[str, R]):
    """Processes by name. One may be started anew after `max_deaths` unasked ends within `window_s`, as `deaths` counts, and no more."""

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
        record.ends.append((time.monotonic(), exit))

    def revive(self, name: str) -> R:
        """The ended process that may be started anew.

        Raises ValueError when its end was not told, ProcessError when it died too often in too short a time.
        """
        record = self.get(name)
        if record is None or record.exit is None:
            raise ValueError(f"only a process whose end was told can be started anew; {name!r} is not one")
        while record.ends and record.ends[0][0] < time.monotonic() - self._window_s:
            record.ends.popleft()
        if deaths(exit for _, exit in record.ends) > self._max_deaths:
            raise ProcessError(f"a process ended {len(record.ends)} times within {self._window_s:g} s: {record.exit.describe()}")
        return record


def check_machine(process: str, machine: str, machines: Iterable[str]) -> None:
    """Raises ProcessError when the machine that a process is to run on is none of those there."""
    known = list(machines)
    if machine not in known:
        raise ProcessError(f"{process} is to run on {machine!r}, but the machines are {', '.join(known)}")
