"""What a pool server holds: fragments that wait or that the learner has, in a circular buffer, and what became of all others."""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from functools import lru_cache
from itertools import compress
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.data.arena import Arena, aligned
from lamarckian.data.fragment import Layout
from lamarckian.data.ledger import Meta
from lamarckian.data.packing import unpack
from lamarckian.data.parcels import Parcel

_LOG = logging.getLogger(__name__)
_SHAPES = 256

Sampling = Literal["fifo", "newest", "uniform"]
Full = Literal["wait", "overwrite"]


class Limits(msgspec.Struct, frozen=True):
    """Which fragments are learned from; None sets no limit.

    max_staleness: versions between the learner's and the oldest that acted. max_age_s: since the fragment was filled.
    """

    max_staleness: Annotated[int, msgspec.Meta(ge=0)] | None = None
    max_age_s: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def allow(self, loan: Loan, version: int, now: float) -> bool:
        """Whether a fragment is to be learned from at `now`, for this version."""
        fresh = self.max_staleness is None or version - loan.meta.oldest_version <= self.max_staleness
        return fresh and (self.max_age_s is None or now - loan.made_s <= self.max_age_s)


class Loan(msgspec.Struct, frozen=True, array_like=True):
    """A fragment that lies at `start` of the buffer. made_s: when it was filled, by this machine's `time.monotonic`."""

    start: int
    size_bytes: int
    steps: int
    columns: int
    actor: str
    meta: Meta
    made_s: float


class _Waiting(NamedTuple):
    """What waits, in the order in which it was made."""

    made_s: float
    number: int
    loan: Loan


class Store:
    """Fragments of a `layout`, or shorter or narrower ones, in `memory`, uint8 `[n]`.

    counts: of `COUNTS`, where it counts. full: what happens to a fragment for which there is no room: it waits for some, or those
        that were made first give way to it.
    sampling: of those that wait, `draw` gives the one that was made first (`fifo`), last (`newest`), or any (`uniform`).
    """

    def __init__(
        self, memory: np.ndarray, layout: Layout, counts: np.ndarray, sampling: Sampling, full: Full, limits: Limits, seed: int
    ) -> None:
        self._memory = memory
        self._size_bytes = lru_cache(_SHAPES)(lambda steps, columns: layout.resized(steps, columns).size_bytes)
        self._counts = counts
        self._sampling = sampling
        self._overwrites = full == "overwrite"
        self._limits = limits
        self._random = seeding.generator(seed, "pool")
        self._arena = Arena(memory.size)
        self._waiting: list[_Waiting] = []
        self._held: set[int] = set()
        self._aside: deque[tuple[Parcel, float]] = deque()  # unpacked; there is room for them, but not yet in one piece
        self._aside_bytes = 0
        self._number = 0
        self._version = 0
        self._said = False

    @property
    def used_bytes(self) -> int:
        """What fragments take."""
        return self._arena.used_bytes + self._aside_bytes

    @property
    def room_bytes(self) -> int:
        """How much may come."""
        return self._arena.size_bytes - (0 if self._overwrites else self.used_bytes)

    def __len__(self) -> int:
        """How many fragments wait."""
        return len(self._waiting) + len(self._aside)

    def check(self, parcel: Parcel) -> None:
        """Raises ValueError when a parcel is not of the size that its layout has."""
        expected = self._size_bytes(parcel.steps, parcel.columns)
        if parcel.size_bytes != expected:
            raise ValueError(f"{parcel.steps} steps × {parcel.columns} columns take {expected} bytes, not {parcel.size_bytes}")

    def put(self, parcel: Parcel, now: float) -> None:
        """Takes a parcel that `check` let pass. Raises ValueError when its body is not what it says."""
        start = None if self._aside else self._place(parcel.size_bytes)
        into = np.empty(parcel.size_bytes, np.uint8) if start is None else self._memory[start : start + parcel.size_bytes]
        try:
            unpack(parcel, into)
        except ValueError:
            if start is not None:
                self._arena.free(start)
            raise
        self._counts["produced"] += 1
        if start is not None:
            self._shelve(start, parcel, now - parcel.made_s)
        elif self._overwrites:  # the learner has all the room there is
            self._counts["overwritten"] += 1
        else:
            self._aside.append((msgspec.structs.replace(parcel, packing="none", body=into), now - parcel.made_s))
            self._aside_bytes += aligned(parcel.size_bytes)

    def refuse(self, who: str, why: str) -> None:
        """Counts what is not a fragment, and says so once."""
        self._counts["refused"] += 1
        if not self._said:
            self._said = True
            _LOG.warning("a parcel of %s is refused: %s (said once)", who, why)

    def draw(self, version: int, now: float) -> Loan | None:
        """A fragment that waits, for the learner, whose version is `version`; it is not given again. None when none waits."""
        self.sweep(version, now)
        while self._waiting:
            place = {"fifo": 0, "newest": -1}.get(self._sampling)
            loan = self._waiting.pop(int(self._random.integers(len(self._waiting))) if place is None else place).loan
            if self._limits.allow(loan, version, now):
                self._held.add(loan.start)
                return loan
            self._counts["stale"] += 1  # it was too old when it came
            self._free(loan.start)
        return None

    def release(self, start: int) -> bool:
        """Frees what the learner had; False when it had no such."""
        if start not in self._held:
            return False
        self._held.remove(start)
        self._free(start)
        return True

    def reserve(self, start: int, size_bytes: int) -> None:
        """Says that the learner has a fragment from a life of this server before."""
        self._arena.reserve(start, size_bytes)
        self._held.add(start)

    def sweep(self, version: int, now: float) -> None:
        """Drops what is too old for the learner."""
        if version == self._version and (not self._waiting or self._limits.allow(self._waiting[0].loan, version, now)):
            return  # those behind the first are younger
        self._version = version
        allowed = [self._limits.allow(entry.loan, version, now) for entry in self._waiting]
        stale = [entry.loan for entry, fresh in zip(self._waiting, allowed, strict=True) if not fresh]
        self._waiting = list(compress(self._waiting, allowed))
        self._counts["stale"] += len(stale)
        for loan in stale:
            self._free(loan.start)

    def _place(self, size_bytes: int) -> int | None:
        while (start := self._arena.take(size_bytes)) is None and self._overwrites and self._waiting:
            self._arena.free(self._waiting.pop(0).loan.start)
            self._counts["overwritten"] += 1
        return start

    def _shelve(self, start: int, parcel: Parcel, made_s: float) -> None:
        loan = Loan(start, parcel.size_bytes, parcel.steps, parcel.columns, parcel.actor, parcel.meta, made_s)
        self._number += 1
        insort(self._waiting, _Waiting(made_s, self._number, loan))

    def _free(self, start: int) -> None:
        self._arena.free(start)
        while self._aside and (start_of_next := self._arena.take(self._aside[0][0].size_bytes)) is not None:
            parcel, made_s = self._aside.popleft()
            self._aside_bytes -= aligned(parcel.size_bytes)
            unpack(parcel, self._memory[start_of_next : start_of_next + parcel.size_bytes])
            self._shelve(start_of_next, parcel, made_s)
