"""The memory pool as a server beside a learner: fragments come by the network, and go on by shared memory.

The server and its learner, a `PoolReader`, share a block: first `COUNTS`, then the buffer. Whoever starts the process starts it anew when
it dies, with the same block. The new server begins with what the learner still has there, and counts on where the last one ended.
"""

from __future__ import annotations

import secrets
import time
from itertools import islice
from typing import Annotated, Any

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.data.arena import aligned
from lamarckian.data.credit import Account, Credit
from lamarckian.data.fragment import Layout
from lamarckian.data.ledger import COUNTS
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.data.store import Full, Limits, Loan, Sampling, Store
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import LIMIT_BYTES, Inbox, Terms, batch, open_terms, wait
from lamarckian.transport.memory import Block

LEARNER = "learner"
AHEAD = 32
"""How many fragments a learner asks for ahead, at most."""

_TURN = 8
_COUNTS_BYTES = aligned(COUNTS.itemsize)
TERMS = Terms(message_bytes=AHEAD * 10 * LIMIT_BYTES)  # what comes beside a fragment takes up to nine times the bytes that it came in


class PoolSettings(msgspec.Struct, frozen=True):
    """What a pool server is to be like. sampling, full, limits: as for `Store`. size_bytes: of all that waits or is held, unpacked.

    host, port: where it listens for dispatches. network: whether those of other machines. keys: a file, or None.
    """

    host: str
    port: int
    size_bytes: Annotated[int, msgspec.Meta(ge=1)]
    sampling: Sampling = "fifo"
    full: Full = "wait"
    limits: Limits = Limits()
    seed: int = 0
    network: bool = False
    keys: str | None = None

    @property
    def address(self) -> str:
        """What dispatches connect to."""
        return f"tcp://{self.host}:{self.port}"


class Started(msgspec.Struct, frozen=True, tag=True):
    """Server to learner: it is another than the learner thought."""

    pool: int


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Learner to server `pool`: received fragments in all, and has those of `held` still: starts and sizes."""

    pool: int
    received: int
    held: list[tuple[int, int]]


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Learner to server `pool`.

    version: the learner's. wanted: how many fragments it would like to have got from this server, in all. released: where those lie that it
    is done with.
    """

    pool: int
    version: int
    wanted: int
    released: list[int]


class Given(msgspec.Struct, frozen=True, tag=True):
    """Server `pool` to learner: fragments, which are the learner's until it returns them."""

    pool: int
    loans: list[Loan]


def create_block(layout: Layout, settings: PoolSettings) -> Block:
    """The memory of a server and its learner. Raises MisuseError when there is not so much, or it would not hold one fragment."""
    if settings.size_bytes < layout.size_bytes:
        raise MisuseError(f"a memory pool of {settings.size_bytes} bytes does not hold one fragment of {layout.size_bytes}: give it more")
    return Block.create(_COUNTS_BYTES + settings.size_bytes)


def shared(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Of a block, the counts and the buffer, uint8 `[n]`."""
    return np.ndarray((), COUNTS, block.buffer), np.frombuffer(block.buffer, np.uint8, offset=_COUNTS_BYTES)


class PoolServer:
    """Listens for dispatches, and serves the learner that asks at the address `learner`. It moves only while `advance` runs.

    life: how many servers were there before it.
    """

    def __init__(self, layout: Layout, settings: PoolSettings, block: Block, learner: str, life: int = 0) -> None:
        self._pool = secrets.randbits(62)
        self._counts, memory = shared(block)
        seed = seeding.derive(settings.seed, life)
        self._store = Store(memory, layout, self._counts, settings.sampling, settings.full, settings.limits, seed)
        self._credit = Credit(layout.size_bytes)
        self._learner = Inbox((Attach, Ask), learner, TERMS)
        base = open_terms(settings.network, settings.keys)
        self._dispatches = Inbox((Arrive, Parcel), settings.address, terms(base, layout.size_bytes))
        self._attached = not self._counts["produced"]  # of nothing, the learner holds nothing
        self._version = self._wanted = self._given = 0

    def advance(self, timeout_s: float) -> None:
        """Does what there is to do; waits for it for `timeout_s` at most."""
        wait((self._learner, self._dispatches), timeout_s)
        now = time.monotonic()
        for _, message in islice(batch(self._learner), _TURN):
            self._serve(message)
        asking = {name for name, message in islice(batch(self._dispatches), _TURN) if not self._take(name, message, now)}
        if self._attached:
            self._store.sweep(self._version, now)
            self._give(now)
        self._credit.share(self._store.room_bytes if self._attached else 0, now)
        for account in self._credit.living():
            if account.room != account.told or account.name in asking:
                self._tell(account)
        self._counts["used_bytes"] = self._store.used_bytes
        self._counts["dispatches"] = len(self._credit)
        self._counts["channel"] = msgspec.structs.astuple(self._dispatches.statistics())

    def close(self) -> None:
        """Leaves; harmless when repeated."""
        self._learner.close()
        self._dispatches.close()

    def _serve(self, message: Attach | Ask) -> None:
        if message.pool != self._pool:
            self._learner.send(LEARNER, Started(self._pool))
        elif isinstance(message, Attach):
            self._attach(message)
        else:
            self._version, self._wanted = message.version, message.wanted
            for start in message.released:
                self._store.release(start)

    def _attach(self, attach: Attach) -> None:
        """Begins with what the learner has; all else that was here died with the last server."""
        if self._attached:
            return
        self._attached = True
        for start, size_bytes in attach.held:
            self._store.reserve(start, size_bytes)
        gone = sum(int(self._counts[name]) for name in ("stale", "overwritten", "lost")) + attach.received
        self._counts["lost"] += self._counts["produced"] - gone

    def _take(self, name: str, message: Arrive | Parcel, now: float) -> bool:
        """Hears a account. Whether it is one parcel on; if not, it is to hear how things stand."""
        account = self._credit.hear(name, message.life, now)
        if isinstance(message, Arrive):
            return False
        if message.number < account.taken:
            self._counts["repeated"] += 1
            return False
        if message.number > account.taken:
            self._counts["postponed"] += 1
            return False
        try:
            self._store.check(message)
            if not self._credit.covers(account, message.size_bytes):
                self._counts["postponed"] += 1
                return False
            self._store.put(message, now)
        except ValueError as error:
            self._store.refuse(name, str(error))
        self._credit.spend(account, message.size_bytes, now)
        return True

    def _give(self, now: float) -> None:
        loans = []
        while self._given < self._wanted and (loan := self._store.draw(self._version, now)) is not None:
            loans.append(loan)
            self._given += 1
        if loans:
            self._learner.send(LEARNER, Given(self._pool, loans))

    def _tell(self, account: Account) -> None:
        account.told = account.room
        self._dispatches.send(account.name, Room(self._pool, account.life, *account.room))


def main(config: dict[str, Any]) -> None:
    """Runs a pool server until the process is ended. config: as `PoolReader.config`."""
    layout = Layout.from_plain(config["layout"])
    settings = msgspec.convert(config["settings"], PoolSettings)
    block = Block.attach(config["block_fd"], _COUNTS_BYTES + settings.size_bytes)
    server = PoolServer(layout, settings, block, config["learner"], config["attempt"])
    while True:
        server.advance(1.0)
