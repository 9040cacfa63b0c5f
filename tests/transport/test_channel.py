import os
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import zmq

from lamarckian.errors import MisuseError
from lamarckian.transport.channel import LIMIT_BYTES, Inbox, Outbox, local_address
from lamarckian.transport.codec import PROTOCOL


class Word(msgspec.Struct, tag=True):
    text: str
    numbers: list[float] = []


class Count(msgspec.Struct, tag=True):
    count: int


TYPES = (Word, Count)
PREFIX = b"LMK" + bytes([PROTOCOL])


@pytest.fixture
def inbox():
    inbox = Inbox(TYPES, local_address())
    yield inbox
    inbox.close()


@pytest.fixture
def stranger(inbox):
    """A socket that may send anything."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.identity = b"stranger"
    socket.connect(inbox.address)
    yield socket
    socket.close()


def wait_for_refused(inbox: Inbox, number: int) -> None:
    deadline = time.monotonic() + 10
    while inbox.statistics().refused < number:
        assert inbox.receive(0.02) is None and time.monotonic() < deadline
    assert inbox.statistics().refused == number


def test_messages_go_both_ways(inbox):
    peers = [Outbox(TYPES, inbox.address, name) for name in ("left", "rïght")]
    for number, peer in enumerate(peers):
        assert peer.send(Count(number))
    received = dict(inbox.receive(5.0) for _ in peers)
    assert received == {"left": Count(0), "rïght": Count(1)}
    for name in received:
        assert inbox.send(name, Word(name, [0.5]))
    for name, peer in zip(("left", "rïght"), peers, strict=True):
        assert peer.receive(5.0) == Word(name, [0.5])
        counts = peer.statistics()
        assert (counts.sent, counts.received, counts.refused, counts.dropped) == (1, 1, 0, 0)
        assert counts.sent_bytes > 0 and counts.received_bytes > 0
        peer.close()
    assert inbox.statistics().sent == inbox.statistics().received == 2
    assert inbox.receive(0.0) is None


def test_receive_waits_no_longer_than_told(inbox):
    start = time.monotonic()
    assert inbox.receive(0.05) is None
    assert 0.04 < time.monotonic() - start < 5


def test_garbage_is_refused_and_counted(inbox, stranger, caplog):
    draw = random.Random(0)
    good = PREFIX + msgspec.msgpack.encode(Word("hello", [1.0, 2.0, 3.0]))
    foreign = msgspec.msgpack.encode({"type": "Other"}), msgspec.msgpack.encode({"type": "Count", "count": "x"})
    depths = PREFIX + b"\x81\xa4type" + b"\x91" * 100_000, PREFIX + b"\xdd\xff\xff\xff\xff", PREFIX + b"\xdf\xff\xff\xff\xff"
    garbage = [draw.randbytes(draw.randrange(60)) for _ in range(800)]
    garbage += [PREFIX + draw.randbytes(draw.randrange(60)) for _ in range(800)]
    garbage += [good[: draw.randrange(len(good))] for _ in range(400)]
    garbage += [good[:3] + bytes([PROTOCOL + 1]) + good[4:]] * 100
    garbage += [PREFIX + body for body in foreign] + [*depths, good + b"\x00", PREFIX + b"\xa1\xff"]
    garbage += [PREFIX + msgspec.msgpack.encode(Word("x" * LIMIT_BYTES))]
    for body in garbage:
        stranger.send(body)
        assert inbox.receive(0.0) is None
    stranger.send_multipart([good, good])
    stranger.send(good)
    assert inbox.receive(5.0)[1] == Word("hello", [1.0, 2.0, 3.0])
    assert inbox.statistics().refused == len(garbage) + 1
    assert inbox.statistics().received == 1
    assert len(caplog.records) == 4 and sum("version 1" in line for line in caplog.messages) == 1


def test_the_nameless_are_not_heard(inbox):
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(inbox.address)
    socket.send(PREFIX + msgspec.msgpack.encode(Count(1)))
    wait_for_refused(inbox, 1)
    socket.close(0)


def test_a_flood_of_garbage_does_not_keep_the_receiver(inbox, stranger):
    over = threading.Event()

    def flood() -> None:
        until = time.monotonic() + 30  # a receiver that is kept is kept until then
        while not over.is_set() and time.monotonic() < until:
            with suppress(zmq.Again):
                stranger.send(b"garbage", zmq.NOBLOCK)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(10):
            before = inbox.statistics().refused
            assert inbox.receive(0.05) is None
            assert thread.is_alive() and inbox.statistics().refused > before
    finally:
        over.set()
        thread.join()


def test_a_peer_beyond_all_bounds_is_cut_off_and_others_are_heard(inbox, stranger):
    stranger.send(bytes(5 * LIMIT_BYTES))
    peer = Outbox(TYPES, inbox.address, "peer")
    peer.send(Count(1))
    assert inbox.receive(5.0) == ("peer", Count(1))
    peer.close()


def test_too_large_a_message_is_not_sent(inbox):
    peer = Outbox(TYPES, inbox.address, "peer")
    with pytest.raises(ValueError, match="larger than a message may be"):
        peer.send(Word("x" * LIMIT_BYTES))
    peer.close()


def test_what_cannot_be_sent_is_dropped_and_counted(inbox):
    assert not inbox.send("nobody", Count(1))
    assert inbox.statistics().dropped == 1
    alone = Outbox(TYPES, local_address(), "alone")
    sent = [alone.send(Count(number)) for number in range(3000)]
    assert not sent[-1] and alone.statistics().dropped == sent.count(False)
    alone.close()


def test_a_peer_may_come_back_under_its_name(inbox):
    for life in range(3):
        peer = Outbox(TYPES, inbox.address, "peer")
        peer.send(Count(life))
        assert inbox.receive(5.0) == ("peer", Count(life))
        inbox.send("peer", Count(10 + life))
        assert peer.receive(5.0) == Count(10 + life)
        if life:
            peer.close()  # the first life is only left behind


def test_who_speaks_by_anothers_name_takes_nothing_from_it(inbox):
    peer, thief = Outbox(TYPES, inbox.address, "peer"), Outbox(TYPES, inbox.address, "peer")
    for number, one in enumerate((peer, thief, peer)):
        one.send(Count(number))
        assert inbox.receive(5.0) == ("peer", Count(number))
        inbox.send("peer", Count(10 + number))
        assert one.receive(5.0) == Count(10 + number)
    thief.close()
    peer.send(Count(3))
    assert inbox.receive(5.0) == ("peer", Count(3)) and inbox.send("peer", Count(13))
    assert peer.receive(5.0) == Count(13) and inbox.statistics().refused == 0
    peer.close()


OVERRUN = """
import time
from lamarckian.transport.channel import Inbox, Outbox, Terms
from tests.transport.test_channel import Word
inbox = Inbox((Word,), "tcp://127.0.0.1:*", Terms(queue=5))
peer = Outbox((), inbox.address, "peer")
for _ in range(300):
    peer.send(Word("x" * 100_000))
assert inbox.receive(5.0)
time.sleep(0.5)
peer.close()
time.sleep(2.5)
print(sum(inbox.receive(0.5) is not None for _ in range(4)))
"""


def test_an_inbox_outlives_a_peer_that_leaves_with_more_than_the_queue_holds_on_its_way():
    done = subprocess.run([sys.executable, "-c", OVERRUN], cwd=Path(__file__).parents[2], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 4


def test_only_this_machine():
    with pytest.raises(MisuseError, match="stays on this machine"):
        Inbox(TYPES, "tcp://0.0.0.0:1234")
    with pytest.raises(MisuseError, match="stays on this machine"):
        Outbox(TYPES, "tcp://example.com:1234", "peer")


def test_an_address_in_use_is_refused(inbox):
    with pytest.raises(MisuseError, match="cannot listen at"):
        Inbox(TYPES, inbox.address)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_machine_is_not_heard(inbox):
    send = "import sys, zmq; c = zmq.Context(); s = c.socket(zmq.DEALER); s.connect(sys.argv[1]); s.send(b'x'); s.close({}); c.term()"
    other = "import os, zmq; os.setuid(65534); "
    subprocess.run([sys.executable, "-c", other + send.format(1000), inbox.address], timeout=20, check=True)
    assert inbox.receive(0.2) is None and inbox.statistics().refused == 0
    subprocess.run([sys.executable, "-c", send.format(10_000), inbox.address], timeout=20, check=True)
    wait_for_refused(inbox, 1)
