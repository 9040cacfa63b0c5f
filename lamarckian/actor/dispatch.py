"""The dispatch of a machine: takes the fragments of its actors from shared memory, packs them, and brings them to memory pools.

Each fragment is kept until a pool says that it is in. What is kept is bounded: when there is no room for more, slots are not taken, and
actors wait for one.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

import msgspec

from lamarckian.actor.link import Held, Link, LinkReport
from lamarckian.data.fragment import Layout
from lamarckian.data.ledger import SlotStatistics
from lamarckian.data.packing import Packer, Setting
from lamarckian.data.parcels import Parcel, terms
from lamarckian.data.pool import Filled, MemoryPool
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import Inbox, Outbox, batch, open_terms, wait

TICK_S = 0.25
_LOG = logging.getLogger(__name__)


class DispatchConfig(msgspec.Struct, frozen=True):
    """What a dispatch is to do. Plain data, so that a process can be started with it.

    name: of the machine; no other dispatch of its pools has it. layout: of the fragments, by `Layout.plain`.
    pool_fd, slots, lent, address: as for `MemoryPool.attach`. station: the address of who hears its reports.
    pools: addresses of the memory pools. network, keys: of the channels to them; keys is a file.
    hold_bytes: how much is kept, packed. silence_s: a pool of which nothing was heard for so long is left to others, where there are any.
    report_s: how often it reports; ticks of `TICK_S` are counted.
    """

    name: str
    layout: dict[str, Any]
    pool_fd: int
    slots: int
    address: str
    station: str
    pools: list[str]
    hold_bytes: int
    lent: int = 2
    network: bool = False
    keys: str | None = None
    packing: Setting = "auto"
    silence_s: float = 10.0
    report_s: float = 1.0


class DispatchReport(msgspec.Struct, frozen=True, tag=True):
    """Dispatch to station, again and again: what it did since it began, and how things stand.

    fragments = arrived + kept at every moment.

    fragments, fragment_bytes: taken from actors. packed_bytes, packing_s: of those, after packing, and how long that took.
    sent, sent_bytes: parcels to pools, packed. resent: those of them that were sent before. arrived: that are in a pool.
    kept, kept_bytes: that are not, packed.
    actors: of those who have a slot to fill, seconds since each was heard of, or lent one.
    slots: of the machine's own pool. pools: the links to the memory pools, by address.
    """

    fragments: int
    fragment_bytes: int
    packed_bytes: int
    packing_s: float
    sent: int
    sent_bytes: int
    resent: int
    arrived: int
    kept: int
    kept_bytes: int
    actors: dict[str, float]
    slots: SlotStatistics
    pools: dict[str, LinkReport]

    @property
    def ratio(self) -> float:
        """How many times smaller packing made the fragments; 1 before there were any."""
        return self.fragment_bytes / self.packed_bytes if self.packed_bytes else 1.0


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Station to dispatch: this actor is dead, and its process has been waited for."""

    actor: str


class Dispatch:
    """It moves only while `advance` runs, belongs to one thread, and needs no pool to wait for: they may come, go and come back.

    Raises MisuseError when it has no pool, or `hold_bytes` do not hold one fragment.
    """

    def __init__(self, config: DispatchConfig) -> None:
        self._layout = Layout.from_plain(config.layout)
        if not config.pools or config.hold_bytes < self._layout.size_bytes:
            raise MisuseError(
                f"a dispatch brings fragments to at least 1 memory pool and may keep at least one of {self._layout.size_bytes} bytes; "
                f"given are {len(config.pools)} pools and {config.hold_bytes} bytes to keep"
            )
        base = open_terms(config.network, config.keys)
        self._hold_bytes = config.hold_bytes
        self._silence_s = config.silence_s
        self._interval_s = config.report_s
        self._packer = Packer(config.packing)
        self._slots = MemoryPool.attach(config.pool_fd, self._layout, config.slots, config.address, config.lent)
        self._station = Outbox((Forget,), config.station, config.name)
        self._links = [Link(address, config.name, terms(base, self._layout.size_bytes)) for address in config.pools]
        self._queue: deque[Held] = deque()  # that are on their way to no pool yet
        self._fragments = self._packed_bytes = self._arrived = self._kept_bytes = 0
        self._packing_s = 0.0
        self._tick_s = self._report_s = 0.0

    def advance(self, timeout_s: float) -> None:
        """Works for `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._hear()
            filled = self._next()
            if filled is not None:
                self._pack(filled)
            self._send()
            now = time.monotonic()
            if now - self._tick_s >= TICK_S:
                self._tick(now)
            if now >= deadline:
                return
            if filled is None:
                channels: list[Inbox | Outbox] = [self._slots.inbox, self._station, *(link.outbox for link in self._links)]
                wait(channels, min(deadline, self._tick_s + TICK_S) - now)

    def statistics(self) -> DispatchReport:
        """What it did so far."""
        return DispatchReport(
            fragments=self._fragments,
            fragment_bytes=self._fragments * self._layout.size_bytes,
            packed_bytes=self._packed_bytes,
            packing_s=self._packing_s,
            sent=sum(link.sent for link in self._links),
            sent_bytes=sum(link.sent_bytes for link in self._links),
            resent=sum(link.resent for link in self._links),
            arrived=self._arrived,
            kept=len(self._queue) + sum(len(link.kept) for link in self._links),
            kept_bytes=self._kept_bytes,
            actors=self._slots.silence(),
            slots=self._slots.statistics(),
            pools={link.address: link.report() for link in self._links},
        )

    def close(self) -> None:
        """Stops at once: what it keeps is lost. Harmless when repeated."""
        self._slots.close()
        self._station.close()
        for link in self._links:
            link.close()

    def _hear(self) -> None:
        for link in self._links:
            taken = link.hear()
            self._arrived += len(taken)
            self._kept_bytes -= sum(held.parcel.body.nbytes for held in taken)
        for forget in batch(self._station):
            self._slots.forget(forget.actor)

    def _next(self) -> Filled | None:
        """A fragment of an actor's, when it may be kept, however it packs."""
        if self._kept_bytes + self._layout.size_bytes > self._hold_bytes:
            self._slots.listen()
            return None
        return self._slots.get(0.0)

    def _pack(self, filled: Filled) -> None:
        start = time.perf_counter()
        packing, body = self._packer.pack(self._slots.content(filled.slot))
        self._packing_s += time.perf_counter() - start
        filled_s = self._slots.filled_s(filled.slot)
        self._slots.release(filled.slot)
        shape = self._layout
        parcel = Parcel(0, 0, filled.actor, filled.meta, 0.0, shape.steps, shape.columns, shape.size_bytes, packing, body)
        self._queue.append(Held(parcel, filled_s))
        self._fragments += 1
        self._packed_bytes += body.nbytes
        self._kept_bytes += body.nbytes

    def _send(self) -> None:
        """To the pool with most room; to the one that was sent least, where several have the same."""
        while self._queue:
            link = max(self._links, key=lambda link: (link.room_bytes, -link.sent))
            if link.room_bytes < self._layout.size_bytes:
                return
            link.take(self._queue.popleft())

    def _tick(self, now: float) -> None:
        passed_s = min(now - self._tick_s, 2 * TICK_S)  # while this process itself was stopped, it could hear nobody
        self._tick_s = now
        for link in self._links:
            link.tick(passed_s)
        for link in self._links:
            if link.kept and link.silent_s >= self._silence_s and min(other.silent_s for other in self._links) < self._silence_s:
                given_up = link.surrender()
                self._queue.extendleft(reversed(given_up))
                _LOG.warning("the memory pool at %s is silent; %d fragments on their way to it go to others", link.address, len(given_up))
        if now - self._report_s >= self._interval_s:
            self._report_s = now
            self._station.send(self.statistics())


def main(config: dict[str, Any]) -> None:
    """Runs a dispatch until the process is ended. config: a `DispatchConfig`."""
    dispatch = Dispatch(msgspec.convert(config, DispatchConfig))
    while True:
        dispatch.advance(60.0)
