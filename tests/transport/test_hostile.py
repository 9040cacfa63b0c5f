"""Whatever comes over a socket is refused, counted and logged once; nothing crashes, nothing grows, and friends are heard."""

import os
import random
import socket
import time
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from lamarckian.transport.broadcast import Beat, Took
from lamarckian.transport.channel import Inbox, Outbox, Terms
from lamarckian.transport.codec import PROTOCOL, Codec
from lamarckian.transport.keys import Keys
from lamarckian.transport.relay import Relay
from lamarckian.transport.root import Root
from lamarckian.transport.versions import VersionBoard
from tests.commands import wait_for

LIMIT = 1 << 16
PREFIX = b"LMK" + bytes([PROTOCOL])
GROWTH_BYTES = 48 << 20


class Parcel(msgspec.Struct, tag=True):
    text: str
    numbers: np.ndarray


def spoilt(draw: random.Random, frames: list[bytes]) -> list[bytes]:
    """A message that is none any more, in one of the ways that there are."""
    frames, place = list(frames), draw.randrange(len(frames))
    header = msgspec.msgpack.decode(frames[0][4:])
    match draw.randrange(8):
        case 0:
            return [draw.randbytes(draw.randrange(200)) for _ in range(draw.randrange(1, 4))]
        case 1:
            frames[place] = frames[place][: draw.randrange(len(frames[place]))]
        case 2:
            header["numbers"][1] = [draw.choice([-1, 0, 3, 5, 2**31, 2**63])]
            frames[0] = PREFIX + msgspec.msgpack.encode(header)
        case 3:
            frames[0] = b"LMK" + bytes([draw.choice([0, 2, 3, 255])]) + frames[0][4:]
        case 4:
            frames.append(draw.randbytes(draw.randrange(50)))
        case 5:
            return [PREFIX + draw.randbytes(draw.randrange(100)), *frames[1:]]
        case 6:
            return [frames[0], draw.randbytes(draw.choice([LIMIT, 2 * LIMIT]))]
        case 7:
            return [PREFIX + draw.choice([b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"]) + b"\xff\xff\xff\xff", *frames[1:]]
    return frames


def take(inbox: Inbox, messages: int) -> None:
    """Reads until so many have come, of either kind."""
    deadline = time.monotonic() + 30
    while inbox.statistics().refused + inbox.statistics().received < messages:
        assert time.monotonic() < deadline, inbox.statistics()
        inbox.receive(0.002)


def storm(messages: int) -> None:
    inbox = Inbox((Parcel,), "tcp://127.0.0.1:*", Terms(message_bytes=LIMIT, queue=100))
    good = [bytes(memoryview(frame)) for frame in Codec((Parcel,), LIMIT).encode(Parcel("hello", np.arange(4, dtype=np.int64)))[0]]
    draw = random.Random(messages)
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.linger, stranger.identity = 0, b"stranger"
    stranger.connect(inbox.address)
    memory, resident = psutil.Process(), 0
    for number in range(messages):
        stranger.send_multipart(spoilt(draw, good))
        if number % 50 == 0:
            take(inbox, number + 1)
        if number == messages // 4:
            resident = memory.memory_info().rss
    take(inbox, messages)
    assert memory.memory_info().rss - resident < GROWTH_BYTES
    assert inbox.statistics().received <= messages // 100  # what was spoilt so that it is a message after all
    friend = Outbox((Parcel,), inbox.address, "friend")
    friend.send(Parcel("still here", np.zeros(1)))
    name, message = inbox.receive(10.0)
    assert (name, message.text) == ("friend", "still here")
    for channel in (friend, inbox, stranger):
        channel.close()


def test_a_storm_of_garbage(caplog):
    storm(5000)
    assert 3 <= len(caplog.records) <= 5


@pytest.mark.slow
def test_a_long_storm_of_garbage(caplog):
    storm(150_000)
    assert 3 <= len(caplog.records) <= 5


@pytest.mark.parametrize("guarded", [False, True])
def test_bytes_that_are_not_zeromq(guarded, tmp_path):
    terms = Terms(keys=Keys.create(Path(tmp_path) / "key") if guarded else None)
    inbox = Inbox((Parcel,), "tcp://127.0.0.1:*", terms)
    draw = random.Random(0)
    port = int(inbox.address.rpartition(":")[2])
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00"
    starts = [b"", greeting, greeting + b"NULL" + bytes(48), greeting + b"CURVE" + bytes(47), b"GET / HTTP/1.1\r\n\r\n"]
    for _ in range(150):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(draw.choice(starts) + draw.choice([b"", b"\x02" + b"\xff" * 8]) + draw.randbytes(draw.randrange(300)))
        inbox.receive(0.0)
    friend = Outbox((Parcel,), inbox.address, "friend", terms)
    friend.send(Parcel("hello", np.zeros(1)))
    while (received := inbox.receive(10.0)) is not None and received[0] != "friend":
        pass
    assert received is not None and received[1].text == "hello"
    assert inbox.statistics().received == 1
    wait_for(lambda: inbox.statistics().refused > 1, 10.0, "count of what was refused")
    friend.close()
    inbox.close()


def test_a_broadcast_survives_lies(caplog):
    """Well-formed messages that are not true, at every socket of a broadcast; versions still arrive, whole."""
    n = 50_000
    boards = [VersionBoard.create(n) for _ in range(3)]
    root = Root(boards[0], chunk_bytes=10_000)
    relays = [Relay(board, root.address, f"relay-{index}") for index, board in enumerate(boards[1:])]
    draw = random.Random(1)
    control = zmq.Context.instance().socket(zmq.DEALER)
    control.linger, control.identity = 0, b"liar"
    control.connect(root.address)
    data = zmq.Context.instance().socket(zmq.DEALER)
    data.linger, data.identity = 0, b"liar"
    data.connect(root._inbox.address)
    data.connect(relays[0]._inbox.address)
    codec = Codec((Beat, Took), LIMIT)
    for number in range(300):
        claims = [draw.choice([-1, 0, 1, number, 2**40, 2**62]) for _ in range(4)]
        took = Took(
            draw.choice([root.run, claims[0]]), draw.choice([-1, number // 10, claims[1]]), number // 10, abs(claims[3]) % 2**62, True
        )
        beat = Beat("tcp://127.0.0.1:1", root.run, claims[0], claims[1], {"relay-0": float("nan"), "nobody": -1.0})
        lie = Beat(draw.choice(["x", "ipc://y", "tcp://a b:1", "tcp://127.0.0.1:99999999", os.devnull]), 0, 0, 0, {})
        control.send_multipart([bytes(frame) for frame in codec.encode(draw.choice([beat, lie]) if number < 20 else lie)[0]])
        data.send_multipart([bytes(frame) for frame in codec.encode(took)[0]])
        if number % 10 == 0:
            boards[0].publish(number // 10, np.full(n, number // 10, np.float32))
        for node in (root, *relays):
            node.advance(0.001)
    flat = np.empty(n, np.float32)
    for _ in range(3000):
        for node in (root, *relays):
            node.advance(0.002)
        if all(board.newest() == 29 for board in boards):
            break
    for board in boards[1:]:
        assert board.take(flat, -1) == 29 and (flat == 29).all()
    for closing in (root, *relays, control, data):
        closing.close()
