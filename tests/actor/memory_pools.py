"""A memory pool as dispatches see it, small: it takes the parcels of a life in order, and keeps all of them."""

from __future__ import annotations

import secrets
import time

import numpy as np

from lamarckian.data.fragment import Field, Layout
from lamarckian.data.packing import unpack
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import LOCAL, Inbox, Terms, batch

LAYOUT = Layout(4, 2, {"inputs": Field(5, (256,), np.dtype(np.uint8)), "version": Field(4, (), np.dtype(np.int64))})


def fill(views, number: int) -> None:
    views["inputs"][:] = number % 251
    views["version"][:] = number


class Ledger:
    """What a memory pool has of one dispatch's life: it takes parcels in order, within what it granted."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.taken = 0
        self.taken_bytes = 0

    def take(self, parcel: Parcel, granted: int) -> bool:
        """Whether it is the next one."""
        if parcel.number != self.taken:
            return False
        self.taken += 1
        self.taken_bytes += parcel.size_bytes
        assert self.taken_bytes <= granted, "more came than was granted"
        return True


class MemoryPoolDouble:
    """Serves at `address`. ahead: bytes granted beyond what it has. lost: numbers of parcels that it does not hear the first time.

    got: the fragments that it has, by the number that `fill` wrote. quiet: it hears nothing, and says nothing.
    """

    def __init__(self, address: str = "tcp://127.0.0.1:*", ahead: int = 1 << 40, lost=(), base: Terms = LOCAL) -> None:
        self.number = secrets.randbits(62)
        self.ahead = ahead
        self.lost = set(lost)
        self.quiet = False
        self.got: list[int] = []
        self.parcels: list[Parcel] = []
        self.repeated = 0
        self._lives: dict[str, Ledger] = {}
        deadline = time.monotonic() + 20
        while True:
            try:
                self.inbox = Inbox((Arrive, Parcel), address, terms(base, LAYOUT.size_bytes))
                break
            except MisuseError:  # the one before is not quite gone
                assert time.monotonic() < deadline
                time.sleep(0.02)
        self.address = self.inbox.address

    def reborn(self) -> MemoryPoolDouble:
        """Another one at the same place, after this one died."""
        self.close()
        return MemoryPoolDouble(self.address, self.ahead)

    def serve(self) -> None:
        if self.quiet:
            return
        for name, message in batch(self.inbox):
            ledger = self._lives.get(name)
            if ledger is None or ledger.life != message.life:
                ledger = self._lives[name] = Ledger(message.life)
            if isinstance(message, Parcel):
                self._take(ledger, message)
            self.inbox.send(name, Room(self.number, ledger.life, ledger.taken, ledger.taken_bytes + self.ahead))

    def _take(self, ledger: Ledger, parcel: Parcel) -> None:
        if parcel.number in self.lost:
            self.lost.remove(parcel.number)
        elif ledger.take(parcel, ledger.taken_bytes + self.ahead):
            block = np.empty(parcel.size_bytes, np.uint8)
            unpack(parcel, block)
            views = LAYOUT.views(block)
            number = int(views["version"][0, 0])
            assert (views["version"] == number).all() and (views["inputs"] == number % 251).all()
            self.got.append(number)
            self.parcels.append(parcel)
        else:
            self.repeated += parcel.number < ledger.taken

    def close(self) -> None:
        self.inbox.close()
