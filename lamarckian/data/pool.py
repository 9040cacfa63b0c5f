"""The memory pool of one machine: slots for fragments, between the actors that fill them and the learner that reads them.

An actor sees a `Sink`, a learner a `Source`; whether they share a process (`LocalPool`) or memory (`MemoryPool` and
`PoolClient`) is nothing to them. Flow is by credit: an actor owns nothing until the pool lends it a slot, and has at
most `lent` of them, so that a slow learner slows its actors instead of reading ever older fragments.

Each of these objects belongs to one thread at a time. A learner that reads ahead gives its source to the thread that
reads: `get`, `release` and `forget` are called there. Only `version` may be set from anywhere.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from lamarckian.data.fragment import Layout, fill_unwritten
from lamarckian.data.ledger import Ledger, MatchResult, Meta, PoolStatistics, SlotStatistics
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import Inbox, Outbox, local_address
from lamarckian.transport.memory import Block

__all__ = ["Claim", "Filled", "LocalPool", "MatchResult", "MemoryPool", "Meta", "PoolClient", "PoolStatistics", "Sink", "Source"]

Views = Mapping[str, np.ndarray]


class Claim(NamedTuple):
    """A slot to fill. Its arrays hold whatever was in them before, and are the actor's until it submits the slot."""

    slot: int
    views: Views


class Filled(NamedTuple):
    """A fragment to learn from. Its arrays are the learner's until it releases the slot."""

    slot: int
    views: Views
    actor: str
    meta: Meta


class Sink(Protocol):
    """The actor's side."""

    def claim(self, timeout_s: float) -> Claim | None:
        """A slot to fill; None when the learner frees none within `timeout_s`."""
        ...

    def submit(self, slot: int, meta: Meta) -> None:
        """Hands a claimed slot on, filled."""
        ...


class Source(Protocol):
    """The learner's side. `version` is the learner's own, by which a fragment's age is told; the learner sets it."""

    version: int

    def get(self, timeout_s: float) -> Filled | None:
        """The fragment that has waited longest; None when none comes within `timeout_s`."""
        ...

    def release(self, slot: int) -> None:
        """Gives the slot of a fragment back."""
        ...

    def statistics(self) -> PoolStatistics:
        """What became of fragments so far."""
        ...


class LocalPool:
    """Source and sink in one process, for serial mode. Nobody else could change anything, so nothing waits.

    slots: how many. max_staleness: versions between the learner's and a fragment's oldest; older fragments are dropped.
    """

    def __init__(self, layout: Layout, slots: int, max_staleness: int | None = None) -> None:
        _check_sizes(slots, 1)
        self.version = 0
        self._views = [layout.empty() for _ in range(slots)]
        self._ledger = Ledger(slots)
        self._tickets: dict[int, int] = {}
        self._max_staleness = max_staleness

    def claim(self, timeout_s: float) -> Claim | None:
        """A slot to fill; None when none is free."""
        loan = self._ledger.lend("local")
        if loan is None:
            return None
        slot, self._tickets[slot] = loan
        return Claim(slot, self._views[slot])

    def submit(self, slot: int, meta: Meta) -> None:
        """Hands a claimed slot on, filled; raises ValueError when it is not claimed."""
        self._ledger.submit(slot, _redeem(self._tickets, slot), "local", meta)

    def get(self, timeout_s: float) -> Filled | None:
        """The fragment that has waited longest; None when none waits."""
        entry = self._ledger.next(_oldest(self.version, self._max_staleness))
        return entry and Filled(entry.slot, self._views[entry.slot], entry.actor, entry.meta)

    def release(self, slot: int) -> None:
        """Gives the slot of a fragment back; raises ValueError when it is not held."""
        self._ledger.release(slot)

    def statistics(self) -> PoolStatistics:
        """What became of fragments so far."""
        return self._ledger.statistics()


class Hello(msgspec.Struct, frozen=True, tag=True):
    """An actor is there, and has no slot."""

    pid: int


class Lend(msgspec.Struct, frozen=True, tag=True):
    """A slot is the actor's to fill."""

    slot: int
    ticket: int


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A slot is filled."""

    slot: int
    ticket: int
    meta: Meta


def create_block(layout: Layout, slots: int) -> Block:
    """The memory of a `MemoryPool` of `slots` fragments. Raises MisuseError when they do not fit."""
    try:
        return Block.create(_size_bytes(layout, slots))
    except MisuseError as error:
        wanted = f"{slots} slots of {layout.size_bytes / 2**20:.2f} MiB (fragments of {layout.steps} steps × {layout.columns} columns)"
        raise MisuseError(f"a memory pool of {wanted} does not fit: {error}; ask for fewer slots or shorter fragments") from error


class MemoryPool:
    """The learner's side of slots in shared memory. It moves only while one of its methods runs.

    fd, address: what a `PoolClient` needs to attach. inbox: for `wait`: what actors say comes there.
    """

    def __init__(
        self, layout: Layout, block: Block, slots: int, max_staleness: int | None, lent: int, poison: bool, address: str | None = None
    ) -> None:
        self.version = 0
        self.fd = block.fd
        self.address = address or local_address()
        self._block = block
        self._size_bytes = layout.size_bytes
        self._views, self._begun = _slots(layout, block, slots)
        self._ledger = Ledger(slots)
        self._max_staleness = max_staleness
        self._lent = lent
        self._poison = poison
        self.inbox = Inbox((Hello, Submit), self.address)
        self._filled_s = [0.0] * slots
        self._heard_s: dict[str, float] = {}
        self._pids: dict[str, int] = {}
        self._wanting: deque[str] = deque()  # actors that may have one more slot, each once, who waited longest first

    @classmethod
    def create(cls, layout: Layout, slots: int, max_staleness: int | None = None, lent: int = 2, poison: bool = False) -> MemoryPool:
        """A pool of `slots` fragments, of which each actor has `lent` at most.

        max_staleness: versions between the learner's and a fragment's oldest; older fragments are dropped.
        poison: fill a slot with `fill_unwritten` before it is lent, so that a fragment not wholly written shows.
        Raises MisuseError when the slots do not fit in memory.
        """
        _check_sizes(slots, lent)
        return cls(layout, create_block(layout, slots), slots, max_staleness, lent, poison)

    @classmethod
    def attach(cls, fd: int, layout: Layout, slots: int, address: str, lent: int = 2) -> MemoryPool:
        """A pool in memory that another process made by `create_block`, for actors that were told `address`.

        fd: of that memory; it stays the caller's to close. Raises MisuseError when the memory is smaller, or nobody can listen there.
        """
        _check_sizes(slots, lent)
        return cls(layout, Block.attach(fd, _size_bytes(layout, slots)), slots, None, lent, False, address)

    def listen(self) -> None:
        """Hears what actors have to say, and lends them what is free."""
        while (received := self.inbox.receive(0.0)) is not None:
            self._handle(*received)

    def get(self, timeout_s: float) -> Filled | None:
        """The fragment that has waited longest; None when none comes within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        self.listen()
        while (entry := self._ledger.next(_oldest(self.version, self._max_staleness))) is None:
            self._lend()  # what was stale is free now
            received = self.inbox.receive(max(0.0, deadline - time.monotonic()))
            if received is None:
                return None
            self._handle(*received)
        self._lend()
        return Filled(entry.slot, self._views[entry.slot], entry.actor, entry.meta)

    def content(self, slot: int) -> np.ndarray:
        """The block of a fragment, uint8 `[layout.size_bytes]`, without a copy."""
        return np.frombuffer(self._block.buffer, np.uint8, self._size_bytes, slot * self._size_bytes)

    def filled_s(self, slot: int) -> float:
        """When the fragment in a slot was heard of, by `time.monotonic`."""
        return self._filled_s[slot]

    def release(self, slot: int) -> None:
        """Gives the slot of a fragment back; raises ValueError when it is not held."""
        self._ledger.release(slot)
        self._lend()

    def forget(self, actor: str) -> None:
        """Takes back the slots of an actor that is dead; what it had submitted stays valid.

        Its process must have been waited for. An actor that was started anew meanwhile keeps the slots of its new life.
        """
        self.listen()
        if not _alive(self._pids.get(actor)):
            self._take_back(actor)
            self._heard_s.pop(actor, None)
            self._lend()

    def silence(self) -> dict[str, float]:
        """Seconds since each actor that has a slot to fill was heard of, or was lent one: who waits for a slot has nothing to say."""
        now = time.monotonic()
        return {actor: now - heard_s for actor, heard_s in self._heard_s.items() if self._ledger.loans(actor)}

    def statistics(self) -> SlotStatistics:
        """What became of fragments so far."""
        counts = self._ledger.statistics()
        return msgspec.structs.replace(counts, refused=counts.refused + self.inbox.statistics().refused)

    def close(self) -> None:
        """Closes the channel and lets go of the memory; harmless when repeated."""
        self.inbox.close()
        self._block.close()

    def _handle(self, actor: str, message: Hello | Submit) -> None:
        now = time.monotonic()
        if isinstance(message, Hello):
            self._take_back(actor)  # what it had in a life before
            self._pids[actor] = message.pid
        elif self._ledger.submit(message.slot, message.ticket, actor, message.meta):
            self._filled_s[message.slot] = now
        else:
            return
        self._heard_s[actor] = now
        if actor not in self._wanting:
            self._wanting.append(actor)
        self._lend()

    def _lend(self) -> None:
        while self._wanting and (loan := self._ledger.lend(self._wanting[0])) is not None:
            actor, (slot, ticket) = self._wanting.popleft(), loan
            self._begun[slot] = False
            self._heard_s[actor] = time.monotonic()
            if self._poison:
                fill_unwritten(self._views[slot])
            if not self.inbox.send(actor, Lend(slot, ticket)):
                self._take_back(actor)
            elif len(self._ledger.loans(actor)) < self._lent:
                self._wanting.append(actor)

    def _take_back(self, actor: str) -> None:
        self._ledger.forget(actor, lambda slot: bool(self._begun[slot]))
        if actor in self._wanting:
            self._wanting.remove(actor)


class PoolClient:
    """The actor's side of a `MemoryPool`, whose `fd` and `address` it is given.

    name: the actor's, by which the pool knows it; no other actor of the pool has it.
    Raises MisuseError when the pool was made for another layout.
    """

    def __init__(self, fd: int, layout: Layout, address: str, name: str) -> None:
        size_bytes = os.fstat(fd).st_size
        slots, rest = divmod(size_bytes, layout.size_bytes + 1)
        if rest:
            raise MisuseError(f"the pool's {size_bytes} bytes are not slots for fragments of {layout.size_bytes} bytes: another layout?")
        self._block = Block.attach(fd, size_bytes)
        self._views, self._begun = _slots(layout, self._block, slots)
        self._claimed: dict[int, int] = {}
        self._outbox = Outbox((Lend,), address, name)
        self._outbox.send(Hello(os.getpid()))

    def claim(self, timeout_s: float) -> Claim | None:
        """A slot to fill; None when the pool lends none within `timeout_s`."""
        loan = self._outbox.receive(timeout_s)
        if loan is None:
            return None
        self._claimed[loan.slot] = loan.ticket
        self._begun[loan.slot] = True
        return Claim(loan.slot, self._views[loan.slot])

    def submit(self, slot: int, meta: Meta) -> None:
        """Hands a claimed slot on, filled; raises ValueError when it is not claimed."""
        self._outbox.send(Submit(slot, _redeem(self._claimed, slot), meta))

    def close(self) -> None:
        """Closes the channel and lets go of the memory; the pool is to forget this actor. Harmless when repeated."""
        self._outbox.close()
        self._block.close()


def _slots(layout: Layout, block: Block, slots: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """The arrays of each slot, and behind them all, whether the actor that has it began to fill it, bool `[slots]`."""
    starts = range(0, slots * layout.size_bytes, layout.size_bytes)
    views = [layout.views(block.buffer[start : start + layout.size_bytes]) for start in starts]
    return views, np.ndarray(slots, np.bool_, block.buffer, slots * layout.size_bytes)


def _size_bytes(layout: Layout, slots: int) -> int:
    return slots * (layout.size_bytes + 1)


def _redeem(tickets: dict[int, int], slot: int) -> int:
    if slot not in tickets:
        raise ValueError(f"slot {slot} is submitted, but the slots claimed are {sorted(tickets)}")
    return tickets.pop(slot)


def _alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _oldest(version: int, max_staleness: int | None) -> int:
    return np.iinfo(np.int64).min if max_staleness is None else version - max_staleness


def _check_sizes(slots: int, lent: int) -> None:
    if slots < 1 or lent < 1:
        raise MisuseError(f"a memory pool has at least 1 slot and lends at least 1, not {slots} and {lent}")
