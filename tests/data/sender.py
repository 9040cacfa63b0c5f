"""A dispatch as a pool server knows it: sends within the room it has, again what was not taken, and to a new server what is not in."""

from __future__ import annotations

import itertools
import time
from collections import deque

import msgspec
import numpy as np

from lamarckian.data.fragment import Field, Layout
from lamarckian.data.ledger import Meta
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.transport.channel import LOCAL, Outbox, Terms, batch

LAYOUT = Layout(4, 2, {"value": Field(5, (64,), np.dtype(np.float32)), "version": Field(4, (), np.dtype(np.int64))})
_LIVES = itertools.count(1)


def parcel(number: int, *, life: int = 1, steps: int = 4, columns: int = 2, version: int = 0, made_s: float = 0.0, mark: int | None = None):
    """A fragment whose values are all `mark`, or its number."""
    shape = LAYOUT.resized(steps, columns)
    body = np.zeros(shape.size_bytes, np.uint8)
    views = shape.views(body)
    views["value"][:] = number if mark is None else mark
    views["version"][:] = version
    meta = Meta(version, version, steps * columns)
    return Parcel(life, number, f"actor-{number % 3}", meta, made_s, steps, columns, shape.size_bytes, "none", body)


class Sender:
    """Sends parcels that `give` was given, each until it is in. patience_s: when nothing is taken for so long, all is sent again."""

    def __init__(self, address: str, name: str, base: Terms = LOCAL, patience_s: float = 0.5) -> None:
        self.room: Room | None = None
        self.taken = 0
        self._kept: deque[Parcel] = deque()
        self._address, self._name, self._terms, self._patience_s = address, name, terms(base, LAYOUT.size_bytes), patience_s
        self._begin()

    def _begin(self) -> None:
        self.outbox = Outbox((Room,), self._address, self._name, self._terms)
        self.life, self.room = next(_LIVES), None
        self._first = self._sent = self._arrived_bytes = 0
        self._progress_s = time.monotonic()
        self._arrive_s = 0.0

    def give(self, parcel: Parcel) -> None:
        self._kept.append(parcel)

    @property
    def kept(self) -> int:
        return len(self._kept)

    @property
    def leave_bytes(self) -> int:
        """What it may send now."""
        sent = self._arrived_bytes + sum(parcel.size_bytes for parcel in itertools.islice(self._kept, self._sent))
        return 0 if self.room is None else self.room.bytes - sent

    def advance(self) -> None:
        """Hears the server, and sends what it may."""
        now = time.monotonic()
        for room in list(batch(self.outbox)):
            if room.life == self.life:
                self._hear(room, now)
        if self._sent and now - self._progress_s > self._patience_s:
            self._sent, self._progress_s = 0, now
        if now - self._arrive_s > 0.1:
            self._arrive_s = now
            self.outbox.send(Arrive(self.life))
        while self._sent < len(self._kept) and self._kept[self._sent].size_bytes <= self.leave_bytes:
            number = self._first + self._sent
            if not self._sent:
                self._progress_s = now
            self.outbox.send(msgspec.structs.replace(self._kept[self._sent], life=self.life, number=number))
            self._sent += 1

    def _hear(self, room: Room, now: float) -> None:
        if self.room is not None and room.pool != self.room.pool:
            self.outbox.close()
            self._begin()
            return
        self.room = room
        for _ in range(room.taken - self._first):
            self._arrived_bytes += self._kept.popleft().size_bytes
            self._first, self._sent, self.taken, self._progress_s = self._first + 1, max(0, self._sent - 1), self.taken + 1, now

    def close(self) -> None:
        self.outbox.close()
