"""The broadcast of versions: what is said, and the half that root and relays share, which serves children.

A root stands beside the learner and takes versions from its board; a relay, one a machine, shows them on the board of its own.
Connections lead upward: every relay connects to the root's address, and says by `Beat` that it is there and where its children find it. The
root lays the relays out and tells each its parent by `Assign`. A relay connects to its parent and says by `Took` what it has; the parent
answers with the `Chunk`s that it lacks, of the newest version, until that is whole, then of the one that is the newest then.

Every message says how things stand, not what changed, and `Beat` and `Took` are repeated, so that one that is lost costs no more than its
time. At most a window of bytes is on its way to a child: a child that is slow or gone delays nobody else, and skips whole versions.
Bytes travel in order, a checksum of the root's covers a version from end to end, and what is not whole and right is not shown.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import msgspec
import numpy as np

from lamarckian.transport.bfloat16 import rounded, widened
from lamarckian.transport.channel import Inbox, Terms, batch

Wire = Literal["float32", "bfloat16"]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

BEAT_S = 0.3
SILENCE_S = 1.5
"""Whoever has not been heard of for so long is taken for dead."""
STALL_S = 2.0
"""When nothing has come for so long, something may be lost: what is lacking is asked for again, from where it stopped."""
WINDOW_BYTES = 512 << 10
SMALL_WINDOW_BYTES = 256 << 10
WINDOW_S = 0.25
"""What is on its way to a child at once takes no longer than this, as far as is known, lest it hold up beats on a slow link."""
PROBE_BYTES = 256 << 10
"""How much of a version is timed on its way to a child. That the rest was taken, a parent hears in passing, which saves it much work."""
ACKNOWLEDGE_BYTES = SMALL_WINDOW_BYTES // 2
MAX_CHUNK_BYTES = 1 << 20
QUEUE = 256
_SAMPLES = 8


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Relay to root: it is there.

    address: where children find it. run, generation: of the assignment that it follows. version: that it shows, or −1.
    rates: bytes/s at which each of its children takes what it is sent.
    """

    address: Annotated[str, msgspec.Meta(pattern=r"^tcp://[\w.-]{1,253}:\d{1,5}$")]
    run: int
    generation: int
    version: int
    rates: dict[str, float]


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Root to relay: follow the parent at this address. The newest of a run holds.

    cut_through: hand on what has come of a version, before it is whole.
    """

    run: int
    generation: int
    parent: str
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHUNK_BYTES)]
    cut_through: bool


class Took(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: whole is the newest version that it has whole, or −1; of `version`, it has the first `position` bytes.

    again: what was sent beyond that is lost, or was never sent.
    """

    run: int
    whole: int
    version: int
    position: Count
    again: bool


class Chunk(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: bytes of a version, from `offset` on. checksum: CRC-32 of the whole version."""

    run: int
    version: Count
    offset: Count
    size_bytes: Count
    wire: Wire
    checksum: int
    body: np.ndarray


def terms(base: Terms) -> Terms:
    """The terms of a broadcast's channels: messages of a chunk, and queues to match."""
    return replace(base, message_bytes=2 * MAX_CHUNK_BYTES, queue=QUEUE)


class Parcel:
    """A version on its way, of which the first `filled` bytes are here. abandoned: the rest will not come."""

    def __init__(self, run: int, version: int, wire: Wire, checksum: int, data: np.ndarray, filled: int) -> None:
        self.run = run
        self.version = version
        self.wire = wire
        self.checksum = checksum
        self.data = data
        self.filled = filled
        self.abandoned = False
        self._sum = 0

    @classmethod
    def of(cls, run: int, version: int, flat: np.ndarray, wire: Wire) -> Parcel:
        """All of a version, float32 `[n]`, which is copied."""
        numbers = rounded(flat) if wire == "bfloat16" else flat.astype("<f4")
        data = numbers.view(np.uint8)
        return cls(run, version, wire, zlib.crc32(data.data), data, data.size)

    @classmethod
    def begun(cls, chunk: Chunk) -> Parcel:
        """The version that a chunk is of, with nothing in it yet."""
        return cls(chunk.run, chunk.version, chunk.wire, chunk.checksum, np.empty(chunk.size_bytes, np.uint8), 0)

    @property
    def whole(self) -> bool:
        return self.filled == self.data.size

    @property
    def intact(self) -> bool:
        """Whether what was appended, all of it, is what the root sent."""
        return self._sum == self.checksum

    def append(self, body: np.ndarray) -> None:
        """The next bytes, uint8."""
        self.data[self.filled : self.filled + body.size] = body
        self._sum = zlib.crc32(body.data, self._sum)
        self.filled += body.size

    def chunk(self, start: int, end: int) -> Chunk:
        """The bytes from `start` to `end`."""
        return Chunk(self.run, self.version, start, self.data.size, self.wire, self.checksum, self.data[start:end])

    def parameters(self) -> np.ndarray:
        """The version, float32 `[n]`."""
        return widened(self.data.view("<u2")) if self.wire == "bfloat16" else self.data.view("<f4")


def wire_bytes(n: int, wire: Wire) -> int:
    """How long a version of n parameters is."""
    return n * (2 if wire == "bfloat16" else 4)


@dataclass
class _Child:
    """sent, taken: bytes of `parcel`. marks: of each piece on its way, where it ends, when it was sent, how much was under way with it."""

    heard_s: float
    whole: int = -1
    parcel: Parcel | None = None
    sent: int = 0
    taken: int = 0
    marks: deque[tuple[int, float, int]] = field(default_factory=deque)
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    @property
    def rate(self) -> float | None:
        """The best of late: a busy processor makes a good link look slow now and then, but nothing makes a slow one look good."""
        return max(self.samples, default=None)

    @property
    def room(self) -> bool:
        """Whether more may be sent before it says that it took something."""
        rate = 0.0 if self.rate is None else self.rate
        return self.sent - self.taken < min(max(rate * WINDOW_S, SMALL_WINDOW_BYTES), WINDOW_BYTES)

    def begin(self, parcel: Parcel | None, position: int) -> None:
        self.parcel, self.sent, self.taken = parcel, position, position
        self.marks.clear()

    @property
    def held_back(self) -> bool:
        """Whether there is more for it than may be sent yet."""
        return self.parcel is not None and self.sent < self.parcel.filled and not self.room

    @property
    def watched(self) -> bool:
        """Whether to listen for what it took, as soon as it says so."""
        return self.held_back or bool(self.marks and self.marks[0][0] <= PROBE_BYTES)

    def acknowledge(self, position: int, now: float) -> None:
        watched, done = self.watched, None
        while self.marks and self.marks[0][0] <= position:
            done = self.marks.popleft()
        self.taken = max(self.taken, position)
        if watched and done is not None:
            _, sent_s, under_way = done
            self.samples.append(under_way / max(now - sent_s, 1e-6))


class Children:
    """Serves those who connect to `inbox`, each at its own pace. It moves only while one of its methods runs."""

    def __init__(self, inbox: Inbox) -> None:
        self.chunk_bytes = MAX_CHUNK_BYTES
        self._inbox = inbox
        self._children: dict[str, _Child] = {}
        self._whole: Parcel | None = None
        self._growing: Parcel | None = None

    @property
    def watched(self) -> bool:
        """Whether to listen for what children say, as soon as they do."""
        return not self._children or any(child.watched for child in self._children.values())

    def offer(self, parcel: Parcel) -> None:
        """A newer version is there, whole or growing."""
        if parcel.whole:
            self._whole, self._growing = parcel, None
        else:
            self._growing = parcel

    def reset(self) -> None:
        """Forgets all versions, and what is on its way: another run begins."""
        self._whole = self._growing = None
        self._children.clear()

    def receive(self, run: int, now: float) -> None:
        """Hears what children say, and sends what they lack."""
        for name, took in batch(self._inbox):
            if took.run == run:
                self._hear(name, took, now)

    def prune(self, now: float) -> None:
        """Forgets the children that are silent."""
        for name in [name for name, child in self._children.items() if now - child.heard_s > 2 * SILENCE_S]:
            del self._children[name]

    def send(self, now: float) -> None:
        """Sends what has come meanwhile."""
        for name in list(self._children):
            self._serve(name, now)

    def rates(self, now: float) -> dict[str, float]:
        """Bytes/s at which each child takes what it is sent, so far as that was seen."""
        rates = {}
        for name, child in self._children.items():
            bounds = [] if child.rate is None else [child.rate]
            if child.marks and now - child.marks[0][1] > STALL_S:
                bounds.append((child.sent - child.taken) / (now - child.marks[0][1]))
            if bounds:
                rates[name] = min(bounds)
        return rates

    def _hear(self, name: str, took: Took, now: float) -> None:
        child = self._children.get(name)
        unknown = child is None
        if child is None:
            child = self._children[name] = _Child(now)
        child.heard_s, child.whole = now, took.whole
        if unknown or took.again:
            known = (parcel for parcel in (self._growing, self._whole, child.parcel) if parcel is not None)
            same = next((parcel for parcel in known if parcel.version == took.version and took.position <= parcel.data.size), None)
            child.begin(same, took.position)
        elif child.parcel is not None:
            if took.whole >= child.parcel.version:
                child.acknowledge(child.parcel.data.size, now)
            elif took.version == child.parcel.version:
                child.acknowledge(took.position, now)
        self._serve(name, now)

    def _serve(self, name: str, now: float) -> None:
        child = self._children[name]
        parcel = child.parcel
        if parcel is None or parcel.abandoned or parcel.version <= child.whole:
            parcel = self._newest()
            if parcel is None or parcel.version <= child.whole:
                child.begin(None, 0)
                return
            child.begin(parcel, 0)
        while child.sent < parcel.filled and child.room:
            end = min(child.sent + self.chunk_bytes, parcel.filled)
            if not self._inbox.send(name, parcel.chunk(child.sent, end)):
                del self._children[name]  # gone; when it is back it says what it has
                return
            child.marks.append((end, now, end - child.taken))
            child.sent = end

    def _newest(self) -> Parcel | None:
        growing = self._growing
        return self._whole if growing is None or growing.abandoned else growing
