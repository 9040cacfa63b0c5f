"""A pool server, its reader, and dispatches, all in one thread: what is said goes back and forth while `turn` runs."""

import contextlib
import dataclasses
import random
import time
from collections import Counter

import msgspec
import numpy as np
import pytest
import zmq

from lamarckian.data import credit, server
from lamarckian.data.fragment import fill_unwritten
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.data.pool import Source
from lamarckian.data.reader import PoolReader
from lamarckian.data.server import PoolServer, PoolSettings
from lamarckian.data.store import Limits
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import LOCAL, Outbox, Terms
from lamarckian.transport.codec import Codec
from lamarckian.transport.memory import Block
from tests.commands import wait_for
from tests.data.sender import LAYOUT, Sender, parcel
from tests.data.test_store import LIES
from tests.transport.test_faults import free_port

SIZE = LAYOUT.size_bytes
PATIENCE_S = 20.0


class Case:
    """A server of a pool of so many whole fragments, and who speaks to it. Counts are looked at after every turn."""

    def __init__(self, stack: contextlib.ExitStack, fragments: int = 8, **settings):
        self.settings = PoolSettings("127.0.0.1", free_port(), fragments * SIZE, **settings)
        self.reader = PoolReader(LAYOUT, self.settings)
        self.stack = stack
        self.life = 0
        self.senders: list[Sender] = []
        stack.callback(self.reader.close)
        self.start()

    def start(self) -> None:
        block = Block.attach(self.reader.config["block_fd"], self.reader._block.size_bytes)
        self.server = PoolServer(LAYOUT, self.settings, block, self.reader.config["learner"], self.life)
        self.life += 1
        self.stack.callback(self.server.close)

    def restart(self) -> None:
        """As if it had been killed, and started anew."""
        self.server.close()

        def start() -> bool:
            with contextlib.suppress(MisuseError):  # within one process, ZeroMQ lets go of an address when it has time
                self.start()
                return True
            return False

        wait_for(start, PATIENCE_S, "address to listen at")

    def sender(self, name: str = "machine-0") -> Sender:
        self.senders.append(Sender(self.reader.address, name))
        self.stack.callback(self.senders[-1].close)
        return self.senders[-1]

    def turn(self) -> None:
        self.server.advance(0.002)
        for sender in self.senders:
            sender.advance()
        self.check()

    def check(self):
        counts = self.reader.statistics()
        assert counts.produced == counts.used + counts.stale + counts.overwritten + counts.lost + counts.waiting + counts.held
        assert counts.waiting >= len(self.reader._ahead) and counts.held == len(self.reader._held)
        assert self.server._store.used_bytes <= counts.size_bytes
        return counts

    def until(self, condition, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what}: {self.check()}"
            self.turn()

    def get(self):
        """A fragment of one mark, and that mark."""
        found = []

        def look() -> bool:
            found.append(self.reader.get(0.0))
            return found[-1] is not None

        self.until(look, "fragment")
        return found[-1], mark(found[-1])

    def marks(self, number: int) -> list[float]:
        """Of so many fragments, which are given back."""
        found = []
        for _ in range(number):
            filled, value = self.get()
            found.append(value)
            self.reader.release(filled.slot)
        return found


def mark(filled) -> float:
    values = filled.views["value"]
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **settings: Case(stack, *arguments, **settings)


def test_fragments_come_as_they_were_sent_in_order_once(make):
    case = make()
    sender = case.sender()
    for number in range(50):
        sender.give(parcel(number, steps=1 + number % 4, columns=1 + number % 2, version=number))
    source: Source = case.reader
    for number in range(50):
        filled, value = case.get()
        assert value == number
        assert filled.views["value"].shape == (2 + number % 4, 1 + number % 2, 64)
        assert (filled.actor, filled.meta.oldest_version) == (f"actor-{number % 3}", number)
        assert (filled.views["version"] == number).all()
        source.release(filled.slot)
    case.until(lambda: sender.kept == 0, "word that all are in")
    counts = case.check()
    assert (counts.produced, counts.used, counts.waiting, counts.held) == (50, 50, 0, 0)
    assert (counts.repeated, counts.postponed, counts.refused, counts.dispatches) == (0, 0, 0, 1)
    assert counts.channel.received > 50 and counts.channel.sent > 0 and counts.channel.refused == 0


def test_a_slow_learner_slows_the_dispatches_and_nothing_is_lost(make):
    case = make(fragments=4)
    sender = case.sender()
    for number in range(20):
        sender.give(parcel(number))
    case.until(lambda: sender.taken == 4, "four fragments in the pool")
    for _ in range(100):
        case.turn()
        assert sender.leave_bytes == 0
    assert case.check().used_bytes == 4 * SIZE == case.check().size_bytes
    filled, value = case.get()
    assert value == 0 and sender.taken == 4
    case.reader.release(filled.slot)
    assert case.marks(19) == list(range(1, 20))
    assert case.check().postponed == 0


def test_what_the_learner_holds_stays_while_all_else_is_overwritten(make):
    case = make(fragments=4, full="overwrite")
    sender = case.sender()
    for number in range(4):
        sender.give(parcel(number))
    held, value = case.get()
    assert value == 0
    for number in range(4, 60):
        sender.give(parcel(number))
    case.until(lambda: sender.kept == 0, "end")
    assert mark(held) == 0
    counts = case.check()
    assert (counts.produced, counts.held) == (60, 1)
    assert counts.overwritten == 60 - 1 - counts.waiting and 1 <= counts.waiting <= 3
    case.reader.release(held.slot)
    last = case.marks(counts.waiting)
    assert last == sorted(last) and last[-1] == 59


@pytest.mark.parametrize("sampling", ["fifo", "newest", "uniform"])
def test_sampling(make, sampling):
    case = make(fragments=16, sampling=sampling, seed=5)
    sender = case.sender()
    for number in range(16):
        sender.give(parcel(number))
    case.until(lambda: sender.taken == 16, "sixteen fragments in the pool")
    marks = case.marks(16)
    assert sorted(marks) == list(range(16))
    assert (marks == sorted(marks)) == (sampling == "fifo")
    assert (marks == sorted(marks, reverse=True)) == (sampling == "newest")


def test_staleness_is_told_by_the_learners_version_even_of_what_was_asked_for_ahead(make):
    case = make(fragments=16, limits=Limits(max_staleness=1))  # so that two are asked for at a time
    sender = case.sender()
    for number in range(6):
        sender.give(parcel(number, version=number))
    assert case.marks(1) == [0]
    case.until(lambda: sender.taken == 6 and case.server._given == 2, "fragment ahead")
    case.reader.version = 5
    assert case.marks(2) == [4, 5]
    counts = case.check()
    assert (counts.produced, counts.used, counts.stale, case.reader._stale) == (6, 3, 3, 1)


def test_a_window_of_generation_time(make):
    case = make(limits=Limits(max_age_s=30.0))
    sender = case.sender()
    for number, made_s in enumerate((0.0, 31.0, 5.0, 1e9)):
        sender.give(parcel(number, made_s=made_s))
    assert sorted(case.marks(2)) == [0, 2]  # in either order: whichever was there when it asked
    case.until(lambda: case.check().stale == 2, "count of what is too old")
    assert case.check().waiting == 0


def test_dispatches_share_alike_and_one_that_does_not_send_keeps_nobody_waiting(make, monkeypatch):
    monkeypatch.setattr(credit, "SILENT_S", 1.0)
    case = make(fragments=8)
    idle = case.sender("idle")
    case.until(lambda: idle.leave_bytes == 8 * SIZE, "leave for the first that comes")
    busy = case.sender("busy")
    for number in range(200):
        busy.give(parcel(number))
    case.until(lambda: busy.leave_bytes > 0 or busy.taken > 0, "leave for the next")
    assert case.marks(30) == list(range(30))
    assert idle.leave_bytes == SIZE
    case.senders.remove(idle)
    idle.close()  # it is silent from now on
    case.until(lambda: case.check().dispatches == 1, "notice of its silence")
    case.until(lambda: case.check().used_bytes == 8 * SIZE, "the whole pool for who is left")


def test_more_dispatches_than_the_pool_has_room_for(make):
    case = make(fragments=2)
    senders = [case.sender(f"machine-{index}") for index in range(5)]
    for index, sender in enumerate(senders):
        for number in range(8):
            sender.give(parcel(number, mark=10 * index + number))
    marks = case.marks(40)
    assert sorted(marks) == sorted(10 * index + number for index in range(5) for number in range(8))
    first = Counter(int(value) // 10 for value in marks[:20])
    assert all(2 <= first[index] <= 6 for index in range(5)), marks
    assert case.check().postponed == 0


def speak(case: Case, name: str, about: Terms = LOCAL) -> Outbox:
    outbox = Outbox((Room,), case.reader.address, name, terms(about, SIZE))
    case.stack.callback(outbox.close)
    return outbox


def heard(case: Case, outbox: Outbox, condition) -> Room:
    """What the server says, as soon as it says what is expected."""
    said: list[Room] = []

    def listen() -> bool:
        case.reader.get(0.0)
        while (room := outbox.receive(0.0)) is not None:
            said.append(room)
        return bool(said) and condition(said[-1])

    case.until(listen, f"answer but {said[-1:]}")
    return said[-1]


def test_repetitions_do_not_enter_and_what_follows_a_loss_is_to_come_again(make):
    case = make()
    case.reader.get(0.0)
    outbox = speak(case, "machine-0")
    outbox.send(Arrive(1))
    room = heard(case, outbox, lambda room: room.bytes == 8 * SIZE)
    assert room.taken == 0
    for number in (0, 1, 0, 1, 3):  # 2 is lost
        outbox.send(parcel(number))
    outbox.send(msgspec.structs.replace(parcel(4), size_bytes=1))  # one that is none comes again, too
    room = heard(case, outbox, lambda room: case.check().postponed == 2)
    assert room.taken == 2 and case.check().repeated == 2
    for number in (2, 3, 4):
        outbox.send(parcel(number))
    room = heard(case, outbox, lambda room: room.taken == 5)
    assert case.check().produced == 5
    outbox.send(Arrive(2))
    heard(case, outbox, lambda room: room.life == 2 and room.bytes > SIZE)
    outbox.send(parcel(0, life=2, mark=100))
    heard(case, outbox, lambda room: (room.life, room.taken) == (2, 1))
    outbox.send(parcel(5))  # a straggler of the life before, which ends before it
    outbox.send(parcel(1, life=2, mark=101))
    outbox.send(parcel(0, life=2, mark=100))
    heard(case, outbox, lambda room: case.check().repeated == 3 and room.life == 2)


def test_what_was_sent_without_leave_does_not_enter(make):
    case = make(fragments=2)
    case.reader.get(0.0)
    outbox = speak(case, "greedy")
    for number in range(10):
        outbox.send(parcel(number))
    room = heard(case, outbox, lambda room: room.bytes == 2 * SIZE and case.check().postponed == 10)
    for number in range(10):
        outbox.send(parcel(number))
    room = heard(case, outbox, lambda room: case.check().postponed == 18)
    assert room.taken == 2
    counts = case.check()
    assert (counts.produced, counts.used_bytes) == (2, 2 * SIZE)


def test_a_parcel_that_is_none_counts_as_taken_and_its_sender_goes_on(make, caplog, monkeypatch):
    monkeypatch.setattr(credit, "SILENT_S", 1.0)
    case = make()
    case.reader.get(0.0)
    outbox = speak(case, "liar")
    outbox.send(Arrive(1))
    heard(case, outbox, lambda room: room.bytes >= SIZE)
    for number, lie in enumerate(LIES.values()):
        outbox.send(msgspec.structs.replace(parcel(0), **lie, number=number))
        heard(case, outbox, lambda room, number=number: room.taken == number + 1)
    counts = case.check()
    assert (counts.produced, counts.refused, counts.used_bytes) == (0, len(LIES), 0)
    assert len([record for record in caplog.records if "is refused" in record.getMessage()]) == 1
    outbox.send(Arrive(1))
    heard(case, outbox, lambda room: room.bytes - sum(lie.get("size_bytes", SIZE) for lie in LIES.values()) >= SIZE or room.bytes >= 2**62)
    friend = case.sender("friend")
    friend.give(parcel(7))
    assert case.marks(1) == [7]


def test_a_storm_of_lies_and_garbage(make):
    case = make()
    case.reader.get(0.0)
    draw = random.Random(11)
    friend = case.sender("friend")
    codec = Codec((Arrive, Parcel), 1 << 20)
    stranger = zmq.Context.instance().socket(zmq.DEALER)
    stranger.linger, stranger.identity, stranger.sndtimeo = 0, b"stranger", 10_000
    stranger.connect(case.reader.address)
    case.stack.callback(stranger.close)
    marks = []
    for index in range(3000):
        lie = {
            **draw.choice([{}, *LIES.values()]),
            "life": draw.choice([0, index]),
            "number": draw.choice([0, 0, 0, 1, index // 50, 2**62]),
        }
        coming = parcel(0, version=draw.choice([0, -(2**62), 2**62]), made_s=draw.choice([0.0, 1e300]))
        message = draw.choice([*3 * [msgspec.structs.replace(coming, **lie)], Arrive(draw.choice([0, 1, 2**62]))])
        frames = [bytes(memoryview(frame).cast("B")) for frame in codec.encode(message)[0]]
        if draw.random() < 0.2:
            place = draw.randrange(len(frames))
            frames[place] = frames[place][: draw.randrange(len(frames[place]) + 1)] + draw.randbytes(draw.randrange(3))
        stranger.send_multipart(frames)
        if index % 100 == 0:
            friend.give(parcel(index, mark=10_000 + index))
        if index % 4 == 0:
            case.turn()
            if (filled := case.reader.get(0.0)) is not None:
                marks.append(mark(filled))
                case.reader.release(filled.slot)
    while len([value for value in marks if value >= 10_000]) < 30:
        filled, value = case.get()
        marks.append(value)
        case.reader.release(filled.slot)
    assert [value for value in marks if value >= 10_000] == [10_000.0 + index for index in range(0, 3000, 100)]
    counts = case.check()
    assert counts.refused > 100 and counts.channel.refused > 100


def test_a_server_that_is_another_begins_with_what_the_learner_holds(make):
    case = make(fragments=6)
    sender = case.sender()
    for number in range(12):
        sender.give(parcel(number))
    held = [case.get() for _ in range(2)]
    case.until(lambda: case.check().used_bytes == 6 * SIZE and sender.kept == 6, "full pool")
    before = case.check()
    assert (before.produced, before.waiting, before.held) == (6, 4, 2)
    case.restart()
    assert case.check() == before
    values = case.marks(6)
    case.until(lambda: sender.kept == 0, "word that all are in")
    values += case.marks(case.check().waiting)
    counts = case.check()
    assert (counts.produced, counts.waiting, counts.held) == (12, 0, 2)
    assert values == [*range(2, 2 + len(values) - 6), *range(6, 12)]  # what had been asked for ahead is not lost
    assert 0 < counts.lost == 10 - len(values)
    assert [mark(filled) for filled, _ in held] == [0, 1]
    for filled, _ in held:
        case.reader.release(filled.slot)
    case.until(lambda: case.reader.get(0.0) is None and case.check().used_bytes == 0, "empty pool")


def test_arrays_outlive_the_pool(make):
    case = make()
    case.sender().give(parcel(3))
    filled, _ = case.get()
    case.reader.close()
    case.server.close()
    assert mark(filled) == 3
    fill_unwritten(filled.views)


def test_misuse_is_told(make):
    with pytest.raises(MisuseError, match="does not hold one fragment"):
        PoolReader(LAYOUT, PoolSettings("127.0.0.1", 1, SIZE - 1))
    with pytest.raises(MisuseError, match="are available"):
        PoolReader(LAYOUT, PoolSettings("127.0.0.1", 1, 1 << 60))
    case = make()
    with pytest.raises(ValueError, match="slots held are"):
        case.reader.release(0)
    with pytest.raises(MisuseError, match="cannot listen"):
        case.start()
    for steps, columns in ((0, 1), (5, 1), (1, 3), (1, 0)):
        with pytest.raises(ValueError, match="1 to 4 steps and 1 to 2 columns"):
            LAYOUT.resized(steps, columns)
    assert LAYOUT.resized(4, 2) == LAYOUT
    assert dataclasses.asdict(LAYOUT.resized(2, 1))["fields"]["value"]["rows"] == 3
    assert server.COUNTS.itemsize <= server._COUNTS_BYTES
    assert isinstance(np.zeros((), server.COUNTS)["channel"].item(), tuple)
