"""The root of a broadcast: takes versions from the learner's board, knows the relays, and lays them out."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import numpy as np

from lamarckian.errors import MisuseError
from lamarckian.transport.broadcast import (
    BEAT_S,
    MAX_CHUNK_BYTES,
    SILENCE_S,
    Assign,
    Beat,
    Children,
    Parcel,
    Took,
    Wire,
    terms,
    wire_bytes,
)
from lamarckian.transport.channel import BATCH, LOCAL, ChannelStatistics, Inbox, Outbox, Terms, batch, open_terms, wait
from lamarckian.transport.layouts import Layout, parents
from lamarckian.transport.versions import VersionBoard

CHUNK_BYTES = 64 << 10
_LOG = logging.getLogger(__name__)
_LOOK_S = 0.005
_SLOW, _GOOD = 1 / 8, 1 / 4
"""Of the usual rate."""
_PATIENCE, _PROBATION = 8, 20  # beats in a row
SEEN = 256
REPORT_S = 1.0


class RelayState(msgspec.Struct, frozen=True):
    """A relay as the root sees it. parent: None for the root. version: that it had at its last beat. slow: it has no children for that."""

    parent: str | None
    version: int
    slow: bool


class RootStatistics(msgspec.Struct, frozen=True, tag=True):
    """version: the newest, or −1. relays: by name. control, children: the channels.

    median_s, slowest_s: of the relays; how long the newest version that each said it shows had been on the board then. 0 with none.
    """

    version: int
    relays: dict[str, RelayState]
    control: ChannelStatistics
    children: ChannelStatistics
    median_s: float
    slowest_s: float


@dataclass
class _Relay:
    """address: of its parent. streak: beats in a row in which it was of the other kind, slow or not; who does not listen is slow.

    took_s: from where the newest version that it has shown was on the board to where it said so.
    """

    heard_s: float
    beat: Beat
    parent: str | None = None
    address: str = ""
    generation: int = 0
    streak: int = 0
    took_s: float | None = None

    def deaf(self, run: int) -> bool:
        """Whether it follows another assignment than it was given, or none."""
        return (self.beat.run, self.beat.generation) != (run, self.generation)


class Root:
    """Broadcasts what is published on `board` to all relays that come, by their `Beat`s, to tcp://`host`:`port`.

    layout: who hands to whom. wire: how numbers travel. chunk_bytes: of a version, handed on at once in a pipeline.
    port, children_port: where it hears beats, and serves children; 0 for one that the system chooses. `address` says the first.
    It moves only while `advance` runs, and belongs to one thread. Raises MisuseError when it cannot listen.
    """

    def __init__(
        self,
        board: VersionBoard,
        host: str = "127.0.0.1",
        port: int = 0,
        layout: Layout = "pipeline",
        wire: Wire = "float32",
        chunk_bytes: int = CHUNK_BYTES,
        base: Terms = LOCAL,
        children_port: int = 0,
    ) -> None:
        if not 1 <= chunk_bytes <= MAX_CHUNK_BYTES:
            raise MisuseError(f"a chunk has 1 to {MAX_CHUNK_BYTES} bytes, not {chunk_bytes}")
        self.run = 1 + secrets.randbits(62)
        self._board = board
        self._layout: Layout = layout
        self._wire: Wire = wire
        self._chunk_bytes = chunk_bytes
        self._control = Inbox((Beat,), f"tcp://{host}:{port or '*'}", terms(base))
        try:
            self._inbox = Inbox((Took,), f"tcp://{host}:{children_port or '*'}", terms(base))
        except MisuseError:
            self._control.close()
            raise
        self.address = self._control.address
        self._children = Children(self._inbox)
        self._children.chunk_bytes = chunk_bytes
        self._flat = np.empty(board.n, np.float32)
        self._version = -1
        self._relays: dict[str, _Relay] = {}
        self._good: list[str] = []
        self._slow: list[str] = []
        self._generation = 0
        self._judged_s = 0.0
        self._offered: deque[tuple[int, float]] = deque(maxlen=SEEN)

    def advance(self, timeout_s: float) -> None:
        """Works for `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            self._look(now)
            beats = list(batch(self._control))
            new = [self._hear(name, beat, now) for name, beat in beats]
            if any(new):
                self._lay_out()
            self._children.receive(self.run, now)
            if len(beats) < BATCH and now - self._judged_s >= BEAT_S:  # with none left to read, so that nobody is missed who has spoken
                self._judge(now)
            if now >= deadline:
                return
            wait((self._control, self._inbox), min(_LOOK_S, deadline - now))

    def statistics(self) -> RootStatistics:
        """How things stand."""
        relays = {name: RelayState(relay.parent, relay.beat.version, name in self._slow) for name, relay in self._relays.items()}
        took_s = [relay.took_s for relay in self._relays.values() if relay.took_s is not None] or [0.0]
        return RootStatistics(self._version, relays, self._control.statistics(), self._inbox.statistics(), median(took_s), max(took_s))

    def close(self) -> None:
        """Stops; relays wait for the next root at the same address. Harmless when repeated."""
        self._control.close()
        self._inbox.close()

    def _look(self, now: float) -> None:
        version = self._board.take(self._flat, self._version)
        if version is not None:
            self._version = version
            self._offered.append((version, now))
            self._children.offer(Parcel.of(self.run, version, self._flat, self._wire))
            self._children.send(now)

    def _hear(self, name: str, beat: Beat, now: float) -> bool:
        """Whether it is of a relay that has no place yet."""
        relay = self._relays.get(name)
        if relay is not None and relay.beat.address != beat.address:  # another life
            self._forget(name)
            relay = None
        if relay is None:
            self._relays[name] = _Relay(now, beat)
            self._good.append(name)
            return True
        if beat.version > relay.beat.version:
            relay.took_s = next((now - offered_s for version, offered_s in self._offered if version == beat.version), relay.took_s)
        relay.heard_s, relay.beat = now, beat
        if relay.address and relay.deaf(self.run):  # without one, it is about to get its first
            self._assign(name)
        return False

    def _judge(self, now: float) -> None:
        """Who is dead, who is slow, and who is no longer."""
        before = (list(self._good), list(self._slow))
        self._children.prune(now)
        late_s = now - self._judged_s - BEAT_S  # this process itself may have been kept from listening
        self._judged_s = now
        for name, relay in list(self._relays.items()):
            if now - relay.heard_s > SILENCE_S + max(0.0, late_s):
                _LOG.warning("relay %s is silent; its children get another parent", name)
                self._forget(name)
        rates = self._rates(now)
        usual = usual_rate(rates, {name for name, relay in self._relays.items() if _host(relay.beat.address) == _host(self.address)})
        for name, relay in self._relays.items():
            slow, deaf = name in self._slow, relay.deaf(self.run)
            rate = 0.0 if deaf else rates.get(name)
            if rate is None:
                continue
            turning = rate > _GOOD * usual and not deaf if slow else rate < _SLOW * usual or deaf
            relay.streak = relay.streak + 1 if turning else 0
            if relay.streak >= (_PROBATION if slow else _PATIENCE):
                relay.streak = 0
                self._forget_place(name)
                (self._good if slow else self._slow).append(name)
                _LOG.warning("relay %s is %s", name, "fast enough again" if slow else "slow; its children get another parent")
        if before != (self._good, self._slow):
            self._lay_out()

    def _rates(self, now: float) -> dict[str, float]:
        """Bytes/s at which relays take what their parents send them."""
        rates = {name: rate for name, rate in self._children.rates(now).items() if name in self._relays}
        for name, relay in self._relays.items():
            own = {child: rate for child, rate in relay.beat.rates.items() if child in self._relays and self._relays[child].parent == name}
            rates.update({child: rate for child, rate in own.items() if math.isfinite(rate)})
        return rates

    def _forget(self, name: str) -> None:
        del self._relays[name]
        self._forget_place(name)

    def _forget_place(self, name: str) -> None:
        """The last takes the place, so that few have to turn to another parent."""
        if name in self._slow:
            self._slow.remove(name)
            return
        place = self._good.index(name)
        last = self._good.pop()
        if last != name:
            self._good[place] = last

    def _lay_out(self) -> None:
        chunks = wire_bytes(self._board.n, self._wire) / self._chunk_bytes
        for name, parent in parents(self._layout, self._good, self._slow, chunks).items():
            relay = self._relays[name]
            address = self._inbox.address if parent is None else self._relays[parent].beat.address
            if relay.address != address:
                self._generation += 1
                relay.parent, relay.address, relay.generation = parent, address, self._generation
                self._assign(name)

    def _assign(self, name: str) -> None:
        relay = self._relays[name]
        self._control.send(name, Assign(self.run, relay.generation, relay.address, self._chunk_bytes, self._layout == "pipeline"))


def usual_rate(rates: Mapping[str, float], beside: Collection[str]) -> float:
    """The rate that a quarter of the relays reach: behind a slow one, others may look slow, too. 0 with no rates.

    beside: those on the root's own machine, where data goes much faster than between machines: they count where there are no others.
    """
    counted = [rate for name, rate in rates.items() if name not in beside] or list(rates.values())
    return sorted(counted)[-len(counted) // 4] if counted else 0.0


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def main(config: dict[str, Any]) -> None:
    """Runs a root until the process is ended.

    config: `host`, `port`, `layout`, `wire`, `children_port` as for `Root`; `board_fd`, `parameters`, of the board; `network`; `keys`, a
    file, or None; `report`: the address of an inbox that gets the statistics once a second.
    """
    base = open_terms(config["network"], config["keys"])
    board = VersionBoard.attach(config["board_fd"], config["parameters"])
    root = Root(board, config["host"], config["port"], config["layout"], config["wire"], base=base, children_port=config["children_port"])
    report = Outbox((), config["report"], "root")
    while True:
        root.advance(REPORT_S)
        report.send(root.statistics())
