"""A relay: takes versions from its parent, shows them on its machine's board, hands them to its children."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec

from lamarckian.errors import MisuseError
from lamarckian.transport.broadcast import (
    ACKNOWLEDGE_BYTES,
    BEAT_S,
    STALL_S,
    Assign,
    Beat,
    Children,
    Chunk,
    Parcel,
    Took,
    terms,
    wire_bytes,
)
from lamarckian.transport.channel import LOCAL, ChannelStatistics, Inbox, Outbox, Terms, batch, open_terms, wait
from lamarckian.transport.versions import VersionBoard

_LOG = logging.getLogger(__name__)
_AGAIN_S = 0.2


class RelayStatistics(msgspec.Struct, frozen=True):
    """What a relay did. version: shown, or −1. spoilt: versions that came whole, but not as the root sent them.

    root, parent, children: the channels to them; parent: the present one.
    """

    version: int
    spoilt: int
    root: ChannelStatistics
    parent: ChannelStatistics | None
    children: ChannelStatistics


class Relay:
    """Follows the root at the address `root` under a `name` of its own, for the board of its machine.

    host: the address of this machine by which other relays reach it. port: 0 for one that the system chooses.
    It moves only while `advance` runs, belongs to one thread, and needs none to wait for: root and parent may come, go and come back.
    """

    def __init__(self, board: VersionBoard, root: str, name: str, host: str = "127.0.0.1", base: Terms = LOCAL, port: int = 0) -> None:
        self._board = board
        self._name = name
        self._terms = terms(base)
        self._inbox = Inbox((Took,), f"tcp://{host}:{port or '*'}", self._terms)
        self._root = Outbox((Assign,), root, name, self._terms)
        self._parent: Outbox | None = None
        self._children = Children(self._inbox)
        self._assigned: Assign | None = None
        self._whole = -1
        self._shown = 0  # the run that the board is of
        self._growing: Parcel | None = None
        self._acknowledged = 0
        self._spoilt = 0
        self._beat_s = self._came_s = self._asked_s = 0.0

    def advance(self, timeout_s: float) -> int:
        """Works until another version is shown, or for `timeout_s`; returns the version that the board shows."""
        shown = self._board.newest()
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            if now - self._beat_s >= BEAT_S:
                self._beat(now)
            self._wait(max(0.0, min(deadline, self._beat_s + BEAT_S) - now))
            now = time.monotonic()
            self._hear(now)
            if self._board.newest() != shown or now >= deadline:
                return self._board.newest()

    def _wait(self, timeout_s: float) -> None:
        """Until there is something to do."""
        channels: list[Inbox | Outbox] = [self._root]
        if self._parent is not None:
            channels.append(self._parent)
        if self._children.watched:
            channels.append(self._inbox)
        wait(channels, timeout_s)

    def _hear(self, now: float) -> None:
        if self._parent is not None:
            for chunk in batch(self._parent):
                self._take(chunk, now)
                self._children.send(now)
        if self._assigned is not None:
            self._children.receive(self._assigned.run, now)
        for assign in batch(self._root):
            self._follow(assign, now)

    def statistics(self) -> RelayStatistics:
        """What it did so far."""
        parent = None if self._parent is None else self._parent.statistics()
        return RelayStatistics(self._board.newest(), self._spoilt, self._root.statistics(), parent, self._inbox.statistics())

    def close(self) -> None:
        """Leaves; the root takes its silence for that. Harmless when repeated."""
        for channel in (self._inbox, self._root, self._parent):
            if channel is not None:
                channel.close()

    def _beat(self, now: float) -> None:
        self._beat_s = now
        self._children.prune(now)
        run, generation = (0, -1) if self._assigned is None else (self._assigned.run, self._assigned.generation)
        self._root.send(Beat(self._inbox.address, run, generation, self._whole, self._children.rates(now)))
        self._say(now, again=now - self._came_s > STALL_S)

    def _follow(self, assign: Assign, now: float) -> None:
        """Turns to another parent, and forgets what is of another run."""
        old = self._assigned
        if old is not None and old.run == assign.run and old.generation >= assign.generation:
            return
        if old is None or old.run != assign.run:
            self._abandon()
            self._whole = -1
            self._children.reset()
        self._children.chunk_bytes = assign.chunk_bytes
        self._assigned = assign
        if self._parent is None or self._parent.address != assign.parent:
            if self._parent is not None:
                self._parent.close()
            self._parent = self._reach(assign.parent)
        self._say(now, again=True)

    def _reach(self, address: str) -> Outbox | None:
        try:
            return Outbox((Chunk,), address, self._name, self._terms)
        except MisuseError as error:  # the root was told nonsense; until it knows better, nothing comes
            _LOG.warning("%s is to follow a parent that cannot be: %s", self._name, error)
            return None

    def _take(self, chunk: Chunk, now: float) -> None:
        assert self._assigned is not None
        growing = self._growing
        if chunk.run != self._assigned.run:
            return
        self._came_s = now
        if growing is None or chunk.version > growing.version:
            if chunk.version <= self._whole:
                return
            if chunk.offset > 0:
                self._ask_again(now)
                return
            if chunk.size_bytes != wire_bytes(self._board.n, chunk.wire):
                self._spoil(f"{chunk.size_bytes} bytes of {chunk.wire} are not {self._board.n} parameters")
                return
            self._abandon()
            growing = self._growing = Parcel.begun(chunk)
            self._acknowledged = 0
            if self._assigned.cut_through:
                self._children.offer(growing)
        elif chunk.version < growing.version or chunk.offset < growing.filled:
            return
        elif chunk.offset > growing.filled:
            self._ask_again(now)
            return
        if chunk.body.ndim != 1 or chunk.body.itemsize != 1 or growing.filled + chunk.body.size > growing.data.size:
            self._spoil("it has more bytes than it was to have")
            return
        growing.append(chunk.body)
        if growing.whole:
            self._finish(growing, now)
        elif growing.filled - self._acknowledged >= ACKNOWLEDGE_BYTES:
            self._say(now)

    def _finish(self, parcel: Parcel, now: float) -> None:
        if parcel.intact:
            self._growing = None
            self._whole = parcel.version
            anew = parcel.run != self._shown  # then they may count from less
            if anew or parcel.version > self._board.newest():
                self._board.publish(parcel.version, parcel.parameters(), anew)
                self._shown = parcel.run
            self._children.offer(parcel)
            if now - self._beat_s >= BEAT_S / 3:  # sooner than it has to, so that the root sees how long a version takes
                self._beat(now)
        else:
            self._spoil("its checksum is wrong")
        self._say(now, again=not parcel.intact)

    def _say(self, now: float, again: bool = False) -> None:
        """Tells the parent what is here."""
        if self._parent is None or self._assigned is None:
            return
        version, position = (-1, 0) if self._growing is None else (self._growing.version, self._growing.filled)
        self._acknowledged = position
        if again:
            self._asked_s = self._came_s = now
        self._parent.send(Took(self._assigned.run, self._whole, version, position, again))

    def _ask_again(self, now: float) -> None:
        """Something between was lost. What follows it was sent before the parent knows, and is no reason to ask once more."""
        if now - self._asked_s > _AGAIN_S:
            self._say(now, again=True)

    def _abandon(self) -> None:
        if self._growing is not None:
            self._growing.abandoned = True
            self._growing = None

    def _spoil(self, why: str) -> None:
        self._abandon()
        self._spoilt += 1
        if self._spoilt == 1:
            _LOG.warning("a version that came to %s is thrown away: %s (said once)", self._name, why)


def main(config: dict[str, Any]) -> None:
    """Runs a relay until the process is ended.

    config: `root`, `name`, `host`, `port` as for `Relay`; `board_fd`, `parameters`, of the board; `network`; `keys`, a file, or None.
    """
    base = open_terms(config["network"], config["keys"])
    board = VersionBoard.attach(config["board_fd"], config["parameters"])
    relay = Relay(board, config["root"], config["name"], config["host"], base, config["port"])
    while True:
        relay.advance(60.0)
