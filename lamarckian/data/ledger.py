"""The bookkeeping of a memory pool: who has which slot, and what became of the fragments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from lamarckian.transport.channel import ChannelStatistics

POINTS = {"win": 1.0, "draw": 0.5, "loss": 0.0}


class MatchResult(msgspec.Struct, frozen=True):
    """How a match that ended in a fragment went for one role.

    length: steps of the role. returns: summed rewards, one per reward name. opponent: who came from a league, by name; empty without one.
    points: what the match counts, once, in the result of the last of its learning roles: the mean of their `POINTS`. None in those of the
        others, and where the game does not say who won.
    The rest as `lamarckian.mdp.interface.Result`.
    """

    role: str
    score: float
    outcome: Literal["win", "draw", "loss"] | None
    length: int
    returns: list[float]
    objectives: dict[str, float] = {}
    opponent: str = ""
    points: float | None = None


class Meta(msgspec.Struct, frozen=True):
    """What travels beside a fragment.

    oldest_version, newest_version: the range of versions that acted.
    samples: how many steps of it are to be learned from.
    results: matches that ended since the actor's last fragment.
    statistics: figures of the actor since its last fragment; times end in `_s`.
    metrics: of the gradient, by name, where an actor computed one.
    """

    oldest_version: int
    newest_version: int
    samples: int
    results: list[MatchResult] = []
    statistics: dict[str, float] = {}
    metrics: dict[str, float] = {}


class PoolStatistics(msgspec.Struct, frozen=True):
    """What became of fragments.

    produced = used + stale + lost + waiting + held

    produced: submitted, or lost. used: given to the learner and released. stale: too old when their turn came.
    lost: begun by an actor that was forgotten before they arrived, or gone with the server that they waited in.
    refused: messages that were not from an actor that owns the slot it names; in a server, fragments that are none.
    """

    produced: int
    used: int
    stale: int
    lost: int
    refused: int
    waiting: int
    held: int


class SlotStatistics(PoolStatistics, frozen=True):
    """Of a pool of slots, also where they are: slots = free + lent + waiting + held."""

    slots: int
    free: int
    lent: int


class ServedStatistics(PoolStatistics, frozen=True):
    """Of a server, whose fragments come from other machines: produced = used + stale + overwritten + lost + waiting + held.

    overwritten: gave way to others when there was no room.
    repeated: came twice, which counts once. postponed: came before one that was lost on its way, or without leave; they will come again.
    used_bytes: what those that wait, or are held, take, of `size_bytes` that there are. dispatches: how many are there.
    channel: of the socket that dispatches speak to.
    """

    overwritten: int
    repeated: int
    postponed: int
    used_bytes: int
    size_bytes: int
    dispatches: int
    channel: ChannelStatistics


COUNTED = ("produced", "stale", "overwritten", "lost", "refused", "repeated", "postponed", "used_bytes", "dispatches")
COUNTS = np.dtype(
    [(name, np.int64) for name in COUNTED] + [("channel", [(name, np.int64) for name in ChannelStatistics.__struct_fields__])]
)
"""What a server counts in shared memory, so that whatever ends it, what it counted stays."""


class Entry(NamedTuple):
    """A submitted fragment."""

    slot: int
    actor: str
    meta: Meta


class Ledger:
    """A slot is free, lent to an actor, waiting for the learner, or held by it; it moves in that order.

    Each loan has a ticket, so that what an actor said before it was forgotten is not taken for the slot's next owner.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots))
        self._lent: dict[int, tuple[str, int]] = {}
        self._waiting: deque[Entry] = deque()
        self._held: set[int] = set()
        self._tickets = self._produced = self._used = self._stale = self._lost = self._refused = 0

    def lend(self, actor: str) -> tuple[int, int] | None:
        """Lends a free slot; returns it and its ticket."""
        if not self._free:
            return None
        slot, self._tickets = self._free.pop(), self._tickets + 1
        self._lent[slot] = actor, self._tickets
        return slot, self._tickets

    def loans(self, actor: str) -> list[int]:
        """The slots that `actor` has."""
        return [slot for slot, (owner, _) in self._lent.items() if owner == actor]

    def submit(self, slot: int, ticket: int, actor: str, meta: Meta) -> bool:
        """Queues a fragment; False when the slot is not `actor`'s by this ticket."""
        if self._lent.get(slot) != (actor, ticket):
            self._refused += 1
            return False
        del self._lent[slot]
        self._waiting.append(Entry(slot, actor, meta))
        self._produced += 1
        return True

    def next(self, oldest_version: int) -> Entry | None:
        """The fragment that has waited longest. Those with samples older than `oldest_version` are freed, one and all."""
        stale = [entry for entry in self._waiting if entry.meta.oldest_version < oldest_version]
        for entry in stale:
            self._waiting.remove(entry)
            self._free.append(entry.slot)
        self._stale += len(stale)
        if not self._waiting:
            return None
        entry = self._waiting.popleft()
        self._held.add(entry.slot)
        return entry

    def release(self, slot: int) -> None:
        """Frees a slot that the learner held; raises ValueError when it did not."""
        if slot not in self._held:
            raise ValueError(f"slot {slot} is released, but the slots held are {sorted(self._held)}")
        self._held.remove(slot)
        self._free.append(slot)
        self._used += 1

    def forget(self, actor: str, begun: Callable[[int], bool]) -> None:
        """Takes back what was lent to `actor`; `begun` says whether a fragment was begun in a slot."""
        for slot in self.loans(actor):
            lost = begun(slot)
            self._lost += lost
            self._produced += lost
            del self._lent[slot]
            self._free.append(slot)

    def statistics(self) -> SlotStatistics:
        """The counts so far."""
        return SlotStatistics(
            produced=self._produced,
            used=self._used,
            stale=self._stale,
            lost=self._lost,
            refused=self._refused,
            slots=self.slots,
            free=len(self._free),
            lent=len(self._lent),
            waiting=len(self._waiting),
            held=len(self._held),
        )
