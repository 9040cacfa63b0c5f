"""A training whose sockets, every one of them, are sent garbage and lies by who has no key: it refuses, counts, says so once, and goes on.

The store by which several learners meet is torch.distributed's own, which takes whoever reaches it: it is left out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from lamarckian.actor.station import Report
from lamarckian.cluster.interface import Machine
from lamarckian.data.ledger import Meta
from lamarckian.data.parcels import Arrive, Parcel, Room
from lamarckian.evaluate.places import addresses, ports, seats
from lamarckian.evaluate.posts import Addresses
from lamarckian.record.run import open_run
from lamarckian.record.status import MachineStatus, read_status
from lamarckian.transport.broadcast import Beat, Chunk, Took
from lamarckian.transport.channel import Outbox, Terms, host_port
from lamarckian.transport.codec import PROTOCOL, Codec
from lamarckian.transport.keys import Keys
from lamarckian.transport.relay import Relay
from lamarckian.transport.versions import VersionBoard
from tests.commands import wait_for
from tests.evaluate.clusters import ClusterRun, add_up, begin

GROWTH_BYTES = 96 << 20
NAMES = ["machine-0", "machine-1", "stranger", "x" * 200, "ünknown"]
WILD = [0, 1, 2**31, 2**53, 2**62]
FLOATS = [0.0, 0.5, -1.0, 1e308, float("inf"), float("-inf"), float("nan")]


def report(draw: random.Random) -> Report:
    number, rate = draw.choice(WILD), draw.choice(FLOATS)
    name = draw.choice(NAMES)
    return Report(MachineStatus(name, "nowhere", number, rate, rate, number, number, [], {"x": rate}), None, [])


def beat(draw: random.Random) -> Beat:
    address = draw.choice(["tcp://127.0.0.1:1", "tcp://127.0.0.1:99999", "tcp://nowhere.invalid:5", "tcp://a:0"])
    return Beat(address, draw.choice(WILD), draw.choice(WILD), draw.choice(WILD), {draw.choice(NAMES): draw.choice(FLOATS)})


def took(draw: random.Random) -> Took:
    return Took(draw.choice(WILD), draw.choice(WILD), draw.choice(WILD), draw.choice(WILD), draw.random() < 0.5)


def parcel(draw: random.Random) -> Arrive | Parcel:
    if draw.random() < 0.3:
        return Arrive(draw.choice(WILD))
    life, number, version = (draw.choice(WILD) for _ in range(3))
    meta = Meta(version, -version, version, [], {"waiting_s": draw.choice(FLOATS)})
    steps, columns = (draw.choice([1, 16, 2**20, 2**31]) for _ in range(2))
    body = np.frombuffer(draw.randbytes(draw.choice([0, 10, 1000])), np.uint8)
    made_s = draw.choice([0.0, 1e308, float("inf")])
    return Parcel(
        life, number, "actor", meta, made_s, steps, columns, draw.choice([*WILD, steps * columns]), draw.choice(["none", "lz4"]), body
    )


def chunk(draw: random.Random) -> Chunk:
    return Chunk(draw.choice(WILD), draw.choice(WILD), draw.choice(WILD), draw.choice(WILD), "float32", 0, np.zeros(3, np.uint8))


def spoilt(draw: random.Random, frames: list[bytes]) -> list[bytes]:
    """A message that is none any more, in one of the ways that there are."""
    prefix, body, *arrays = frames[0][:4], frames[0][4:], *frames[1:]
    match draw.randrange(7):
        case 0:
            return [draw.randbytes(draw.randrange(200)) for _ in range(draw.randrange(1, 4))]
        case 1:
            return [frames[0][: draw.randrange(len(frames[0]))], *arrays]
        case 2:
            return [b"LMK" + bytes([draw.choice([0, PROTOCOL + 1, 255])]) + body, *arrays]
        case 3:
            return [*frames, draw.randbytes(draw.choice([1, 50, 20_000]))]
        case 4:
            return [prefix + draw.randbytes(draw.randrange(100)), *arrays]
        case 5:
            return [prefix + draw.choice([b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"]) + b"\xff\xff\xff\xff", *arrays]
        case _:
            place = draw.randrange(len(body))
            return [prefix + body[:place] + draw.randbytes(1) + body[place + 1 :], *arrays]


class Attacker:
    """Sends what `make` makes, half of it spoilt, to one socket of a training, under all `NAMES` in turn."""

    def __init__(self, port: int, make: Callable[[random.Random], msgspec.Struct], seed: int) -> None:
        self._draw = random.Random(seed)
        self._make = make
        self._codec = Codec((), 1 << 24)
        self._sockets = []
        for name in NAMES:
            socket = zmq.Context.instance().socket(zmq.DEALER)
            socket.linger, socket.identity, socket.sndhwm, socket.rcvhwm = 0, name.encode(), 100, 10
            socket.connect(f"tcp://127.0.0.1:{port}")
            self._sockets.append(socket)
        self.sent = 0

    def send(self) -> bool:
        """Whether there was room for one more."""
        frames = [bytes(memoryview(frame)) for frame in self._codec.encode(self._make(self._draw))[0]]
        if self._draw.random() < 0.5:
            frames = spoilt(self._draw, frames)
        socket = self._sockets[self.sent % len(NAMES)]
        try:
            socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            return False
        self.sent += 1
        return True

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()


def listening(process: psutil.Process) -> list[int]:
    """The ports at which a process listens."""
    return [connection.laddr.port for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN]


def found_at(port: int) -> Addresses:
    """Where everything is found of a training with one learner and this `cluster.port`."""
    return addresses("127.0.0.1", port, seats([Machine("home", "127.0.0.1", 2)], 1), fixed=False)


def attack(going: ClusterRun, port: int, messages: int) -> list[Attacker]:
    """So many messages to every socket."""
    where = found_at(port)
    desk, root, children, pool = (host_port(there)[1] for there in (where.desk, where.root, where.children, where.pools[0]))
    listened = [there for helper in ("root", "pool") for found in going.named(helper) for there in listening(found)]
    assert sorted(listened) == [root, children, pool]
    relays = [there for relay in going.named("relay") for there in listening(relay)]
    assert len(relays) == 2
    targets = [(desk, report), (root, beat), (children, took), (pool, parcel), (relays[0], took), (relays[1], chunk)]
    attackers = [Attacker(there, make, seed) for seed, (there, make) in enumerate(targets)]
    deadline = time.monotonic() + 60 + messages / 100
    while any(attacker.sent < messages for attacker in attackers):
        assert time.monotonic() < deadline, [attacker.sent for attacker in attackers]
        sent = [attacker.send() for attacker in attackers if attacker.sent < messages]
        if not any(sent):
            time.sleep(0.01)
    return attackers


@pytest.mark.parametrize("messages", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_socket_of_a_training_stands_garbage_and_lies(messages, tmp_path):
    port = ports("127.0.0.1", 0)
    with begin(tmp_path / "run", "checkpoint.every_s=5", f"cluster.port={port}") as going:
        going.wait_for_updates(3, 120)
        wait_for(lambda: going.look()[-1]["machines"] == 2, 60, "two machines")
        processes = going.processes()
        warm = attack(going, port, messages // 4)
        before = {process.pid: process.memory_info().rss for process in processes}
        attackers = attack(going, port, messages - messages // 4)
        refused = ("machines/refused", "broadcast/refused", "pool/refused")
        wait_for(lambda: all(going.look()[-1][name] > messages // 4 for name in refused), 60, "counts of what was refused")
        for attacker in [*warm, *attackers]:
            attacker.close()
        grown = {process.pid: process.memory_info().rss - before[process.pid] for process in processes if process.pid in before}
        assert {process.pid for process in going.processes()} == {process.pid for process in processes}, going.said[-3000:]
        assert max(grown.values()) < GROWTH_BYTES, grown
        going.wait_for_updates(10, 60)
        newest = going.look()[-1]["updates"]
        run = open_run(going.folder)

        def recovered() -> bool:
            _, *machines = read_status(run).machines
            return {machine.name for machine in machines if newest < machine.version < 2**31} == {"machine-0", "machine-1"}

        wait_for(lambda: recovered() and going.look()[-1]["machines"] == going.look()[-1]["actors"] == 2, 60, "what was before")
        assert going.interrupt() == 1
        lines, said = going.look(), going.said
        going.wait_until_nothing_is_left()
    assert all(add_up(line) for line in lines)
    assert 5 <= said.count("(said once)") <= 60 and len(said.splitlines()) < 300


@pytest.mark.slow
def test_who_has_no_key_neither_reads_versions_nor_brings_fragments(tmp_path):
    keys, other = Keys.create(tmp_path / "key"), Keys.create(tmp_path / "other")
    port = ports("127.0.0.1", 0)
    with begin(tmp_path / "run", "checkpoint.every_s=5", f"cluster.port={port}", f"cluster.keys={tmp_path / 'key'}") as going:
        going.wait_for_updates(3, 120)
        parameters = 211
        heard = {}
        for name, terms in {"friend": Terms(keys=keys), "stranger": Terms(), "other": Terms(keys=other)}.items():
            board = VersionBoard.create(parameters)
            relay = Relay(board, found_at(port).root, name, base=terms)
            pool = Outbox((Room,), found_at(port).pools[0], name, terms)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not (board.newest() > 0 and heard.get(name)):
                relay.advance(0.1)
                pool.send(Arrive(1))
                heard[name] = heard.get(name) or pool.receive(0.0) is not None
            assert (board.newest() > 0, heard[name]) == (name == "friend", name == "friend"), name
            relay.close()
            pool.close()
            board.close()
        going.wait_for_updates(3, 60)
        line = going.look()[-1]
        assert line["pool/refused"] + line["broadcast/refused"] > 0 and line["machines"] == 2
        assert going.interrupt() == 1
