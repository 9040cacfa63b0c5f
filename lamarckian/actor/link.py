"""A memory pool as a dispatch sees it: the parcels that are on their way there, until they are in."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from dataclasses import dataclass

import msgspec

from lamarckian.data.parcels import Arrive, Parcel, Room
from lamarckian.transport.channel import ChannelStatistics, Outbox, Terms, batch

WINDOW_BYTES = 4 << 20
"""What is on its way at once, packed: enough for a fast link, and little enough that on a slow one `Arrive` is not late for it."""
ASK_BYTES = WINDOW_BYTES // 4
"""After so much the pool is asked what it has."""
QUIET_S = 3.0
"""A pool that was not heard of for so long gets nothing more until it is."""
STALL_S, MAX_STALL_S = 2.0, 32.0
"""A pool that speaks and has taken nothing for so long did not get what was sent. Doubled each time, until it takes something."""

_LOG = logging.getLogger(__name__)


@dataclass
class Held:
    """A parcel that is not in a pool yet, and whether it was sent before. filled_s: when its fragment was, by `time.monotonic`."""

    parcel: Parcel
    filled_s: float
    sent: bool = False


class LinkReport(msgspec.Struct, frozen=True):
    """A link to a memory pool. silent_s: since the pool was last heard of; infinite before it was.

    room_bytes: unpacked, that it may be sent now. kept, kept_bytes: parcels on their way, packed. channel: of the present connection.
    """

    silent_s: float
    room_bytes: int
    kept: int
    kept_bytes: int
    channel: ChannelStatistics


class Link:
    """Sends parcels to the pool at `address`, which need not be there yet, and keeps each until the pool says that it is in.

    Within a life, a number always means the same parcel, and each is sent after all before it. So whoever takes them in order takes each
    once, however often it comes. A pool that lacks what was in, since it is another one or has forgotten it, gets a new life, and in that,
    from 0, what is not in. Another pool that lacks nothing, since nothing was in yet, may have taken some of what was still on its way:
    there the old life goes on.

    silent_s: since the pool was last heard of, counting only what `tick` was told; infinite before it was.
    sent, sent_bytes, resent: parcels, packed; resent: those that were sent before, here or elsewhere.
    """

    def __init__(self, address: str, name: str, terms: Terms) -> None:
        self.address = address
        self.kept: deque[Held] = deque()
        self.silent_s = math.inf
        self.sent = self.sent_bytes = self.resent = 0
        self._name = name
        self._terms = terms
        self._misled = False
        self._open()

    @property
    def room_bytes(self) -> int:
        """Unpacked bytes that more parcels may have now."""
        if self._cursor < len(self.kept) or self._under_way >= WINDOW_BYTES or self.silent_s >= QUIET_S:
            return 0
        return max(0, self._granted - self._position)

    def tick(self, passed_s: float) -> None:
        """Says that it is there. passed_s: for how long this process has listened since it said so last."""
        self.silent_s += passed_s
        self.outbox.send(Arrive(self._life))

    def hear(self) -> list[Held]:
        """Hears what the pool says; returns the parcels that are in, which are not kept any longer."""
        taken: list[Held] = []
        for room in list(batch(self.outbox)):  # before any of it closes the channel
            if room.life == self._life:
                taken += self._heed(room, time.monotonic())
        self._send(time.monotonic())
        return taken

    def take(self, held: Held) -> None:
        """Sends a parcel, for which there is room."""
        self.kept.append(held)
        self._send(time.monotonic())

    def surrender(self) -> list[Held]:
        """Gives up what is on its way; should the pool have got it after all, that is for it to know. Begins a new life."""
        given_up = list(self.kept)
        self.kept.clear()
        self._begin_anew()
        return given_up

    def report(self) -> LinkReport:
        """How things stand."""
        kept_bytes = sum(held.parcel.body.nbytes for held in self.kept)
        return LinkReport(self.silent_s, self.room_bytes, len(self.kept), kept_bytes, self.outbox.statistics())

    def close(self) -> None:
        """Closes the channel; what is on its way is lost. Harmless when repeated."""
        self.outbox.close()

    def _open(self) -> None:
        self.outbox = Outbox((Room,), self.address, self._name, self._terms)
        self._life = secrets.randbits(62)
        self._pool: int | None = None
        self._granted = 0
        self._first = 0  # number of the first parcel that is kept
        self._cursor = 0  # how many of those that are kept have been sent
        self._reached = 0  # the largest cursor of this life
        self._position = 0  # unpacked bytes of all parcels before the cursor
        self._under_way = 0  # packed bytes of what is kept before the cursor
        self._unasked = 0  # packed bytes that were sent since the pool was asked
        self._stall_s, self._progress_s = STALL_S, time.monotonic()

    def _begin_anew(self) -> None:
        """Closes the connection, too: what still waits in it to be sent is of the old life."""
        self.outbox.close()
        self._open()
        self.outbox.send(Arrive(self._life))

    def _heed(self, room: Room, now: float) -> list[Held]:
        self.silent_s = 0.0
        if room.taken < self._first:
            _LOG.warning("the pool at %s is another, or has forgotten what it had; what is not in is sent again", self.address)
            self._begin_anew()
            return []
        if self._pool is not None and room.pool != self._pool:
            self._go_back()
        self._pool = room.pool
        if room.taken > self._first + self._reached:
            if not self._misled:
                _LOG.warning("the pool at %s says that it has what it was never sent (said once)", self.address)
            self._misled = True
            return []
        self._granted = room.bytes
        taken = [self._pop() for _ in range(room.taken - self._first)]
        if taken:
            self._stall_s, self._progress_s = STALL_S, now
        if self._position > self._granted:  # leave that was not used was taken back, and what was sent meanwhile is not taken
            self._go_back()
        elif self._cursor and now - self._progress_s > self._stall_s:
            self._stall_s = min(2 * self._stall_s, MAX_STALL_S)
            self._go_back()
        return taken

    def _pop(self) -> Held:
        held = self.kept.popleft()
        if self._cursor:
            self._cursor -= 1
            self._under_way -= held.parcel.body.nbytes
        else:
            self._position += held.parcel.size_bytes
        self._first += 1
        self._reached -= 1
        return held

    def _go_back(self) -> None:
        """All that is kept is to be sent again."""
        self._position -= sum(self.kept[place].parcel.size_bytes for place in range(self._cursor))
        self._cursor = self._under_way = 0

    def _send(self, now: float) -> None:
        while self._cursor < len(self.kept) and self._under_way < WINDOW_BYTES:
            held = self.kept[self._cursor]
            parcel, size_bytes = held.parcel, held.parcel.body.nbytes
            number, made_s = self._first + self._cursor, max(0.0, now - held.filled_s)
            if self._position + parcel.size_bytes > self._granted or not self.outbox.send(
                msgspec.structs.replace(parcel, life=self._life, number=number, made_s=made_s)
            ):
                return
            if not self._cursor:
                self._progress_s = now
            self.sent += 1
            self.sent_bytes += size_bytes
            self.resent += held.sent
            held.sent = True
            self._cursor += 1
            self._reached = max(self._reached, self._cursor)
            self._position += parcel.size_bytes
            self._under_way += size_bytes
            self._unasked += size_bytes
            if self._unasked >= ASK_BYTES:
                self._unasked = 0
                self.outbox.send(Arrive(self._life))
