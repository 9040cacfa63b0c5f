"""The learner's side of a pool server."""

from __future__ import annotations

import time
from collections import deque
from functools import lru_cache
from typing import Any

import msgspec

from lamarckian.data.fragment import Layout
from lamarckian.data.ledger import COUNTED, ServedStatistics
from lamarckian.data.pool import Filled
from lamarckian.data.server import AHEAD, LEARNER, TERMS, Ask, Attach, Given, PoolSettings, Started, create_block, shared
from lamarckian.data.store import Loan
from lamarckian.transport.channel import ChannelStatistics, Outbox, batch, local_address, wait

SERVER = "lamarckian.data.server:main"
_AHEAD_BYTES = 1 << 20
_BEAT_S = 0.25
_SHAPES = 64


class PoolReader:
    """A `Source` of fragments of `layout`, or shorter or narrower ones, from a server process of its own on this machine.

    Whoever makes it also starts the server, and starts it anew when it died: `cluster.start(name, SERVER, reader.config, reader.fds)` and
    `cluster.restart(name)`. The reader notices by itself. What it then still holds stays what it is; what waited in the server is lost.

    address: what dispatches connect to. Raises MisuseError when the pool does not fit in memory, or no fragment in the pool.
    """

    def __init__(self, layout: Layout, settings: PoolSettings) -> None:
        self.version = 0
        self.address = settings.address
        self._block = create_block(layout, settings)
        self._counts, self._memory = shared(self._block)
        self._layout = lru_cache(_SHAPES)(layout.resized)
        self._limits = settings.limits
        learner = local_address()
        plain = msgspec.to_builtins(settings)
        self.config: dict[str, Any] = {"layout": layout.plain(), "settings": plain, "block_fd": self._block.fd, "learner": learner}
        self.fds = (self._block.fd,)
        self._outbox = Outbox((Started, Given), learner, LEARNER, TERMS)
        few = min(_AHEAD_BYTES, settings.size_bytes // 8) // layout.size_bytes  # what is asked for ahead, nothing newer can overtake
        self._most_ahead = min(AHEAD, max(1, few))
        self._ahead: deque[Loan] = deque()
        self._held: dict[int, int] = {}  # bytes by slot
        self._released: list[int] = []
        self._used = self._stale = 0
        self._pool = self._received = self._wanted = 0  # of the present server
        self._asked_s = 0.0

    def get(self, timeout_s: float) -> Filled | None:
        """The next fragment; None when none comes within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            for message in batch(self._outbox):
                self._hear(message)
            self._ask()  # what the last fragment left room for, and in the same message that it is given back
            filled = self._next()
            remaining_s = deadline - time.monotonic()
            if filled is not None or remaining_s <= 0:
                return filled
            self._ask()  # what was too old left room, too
            wait((self._outbox,), min(remaining_s, _BEAT_S))

    def release(self, slot: int) -> None:
        """Gives a fragment's place back; raises ValueError when it is not held."""
        if slot not in self._held:
            raise ValueError(f"slot {slot} is released, but the slots held are {sorted(self._held)}")
        del self._held[slot]
        self._used += 1
        self._released.append(slot)

    def forget(self, actor: str) -> None:
        """Nothing to do: what an actor had not handed on when it died, its dispatch takes care of."""

    def statistics(self) -> ServedStatistics:
        """What became of fragments so far, over all lives of the server. From any thread."""
        used, held, stale = self._used, len(self._held), self._stale
        counts = {name: int(self._counts[name]) for name in COUNTED[1:]}
        produced = int(self._counts["produced"])  # last: whatever became of a fragment, it was produced before
        counts["stale"] += stale
        waiting = produced - used - held - counts["stale"] - counts["overwritten"] - counts["lost"]
        channel = ChannelStatistics(*self._counts["channel"].item())
        size_bytes = self._memory.size
        return ServedStatistics(produced=produced, used=used, waiting=waiting, held=held, size_bytes=size_bytes, channel=channel, **counts)

    def close(self) -> None:
        """Closes the channel and lets go of the memory; the server is ended by whoever started it. Harmless when repeated."""
        self._outbox.close()
        self._block.close()

    def _hear(self, message: Started | Given) -> None:
        if isinstance(message, Given):
            if message.pool == self._pool:
                self._received += len(message.loans)
                self._ahead.extend(message.loans)
        elif message.pool != self._pool:
            held = [*self._held.items(), *((loan.start, loan.size_bytes) for loan in self._ahead)]
            if self._outbox.send(Attach(message.pool, self._used + self._stale + len(held), held)):
                self._pool, self._received, self._wanted = message.pool, 0, 0
                self._released.clear()

    def _next(self) -> Filled | None:
        while self._ahead:
            loan = self._ahead.popleft()
            if self._limits.allow(loan, self.version, time.monotonic()):
                self._held[loan.start] = loan.size_bytes
                block = self._memory[loan.start : loan.start + loan.size_bytes]
                return Filled(loan.start, self._layout(loan.steps, loan.columns).views(block), loan.actor, loan.meta)
            self._stale += 1
            self._released.append(loan.start)
        return None

    def _ask(self) -> None:
        """Says what the server is to know, when it has become enough, or the server may have become another."""
        now = time.monotonic()
        wanted = self._received + self._most_ahead - len(self._ahead)
        enough = max(1, self._most_ahead // 2) if self._ahead else 1
        due = max(wanted - self._wanted, len(self._released)) >= enough or now - self._asked_s >= _BEAT_S
        if due and self._outbox.send(Ask(self._pool, self.version, wanted, self._released)):
            self._wanted, self._released, self._asked_s = wanted, [], now
