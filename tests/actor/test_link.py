"""A link by itself: a wire that loses, pools that die and forget, and a clock of the test's own."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.actor import link as link_module
from lamarckian.actor.link import MAX_STALL_S, WINDOW_BYTES, Held, Link
from lamarckian.data.ledger import Meta
from lamarckian.data.parcels import Arrive, Parcel, Room
from lamarckian.transport.channel import LOCAL, ChannelStatistics
from tests.actor.memory_pools import Ledger

SIZE_BYTES = 100


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Wire:
    """Both directions of a connection, first in, first out."""

    def __init__(self, *_: object) -> None:
        self.sent: deque = deque()
        self.rooms: deque[Room] = deque()
        self.closed = False

    def send(self, message) -> bool:
        assert not self.closed
        self.sent.append(message)
        return True

    def receive(self, timeout_s: float) -> Room | None:
        assert not self.closed
        return self.rooms.popleft() if self.rooms else None

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics()

    def close(self) -> None:
        self.closed = True
        self.sent.clear()
        self.rooms.clear()


class Pool:
    """ahead: bytes granted beyond what it has. Takes parcels in order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ahead = 3 * SIZE_BYTES
        self.got: list[int] = []
        self._ledger = Ledger(-1)

    def forget(self) -> None:
        self._ledger = Ledger(-1)

    def hear(self, message, wire: Wire) -> None:
        if message.life != self._ledger.life:
            self._ledger = Ledger(message.life)
        ledger = self._ledger
        if isinstance(message, Parcel) and message.size_bytes <= self.ahead and ledger.take(message, ledger.taken_bytes + self.ahead):
            self.got.append(int(message.body[0]))
        wire.rooms.append(Room(self.number, ledger.life, ledger.taken, ledger.taken_bytes + self.ahead))


@pytest.fixture(scope="module", autouse=True)
def clock():
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_module, "Outbox", Wire)
        patch.setattr(link_module, "time", clock)
        yield clock


def held(number: int, size_bytes: int = SIZE_BYTES, body_bytes: int = 1) -> Held:
    body = np.full(body_bytes, number, np.uint8)
    return Held(Parcel(0, 0, "a", Meta(0, 0, 1), 0.0, 1, 1, size_bytes, "lz4", body), 999.0)


def exchange(link: Link, pool: Pool) -> list[int]:
    """Everything that is on the wire arrives; the numbers of what is in."""
    link.tick(0.25)
    while link.outbox.sent:
        pool.hear(link.outbox.sent.popleft(), link.outbox)
    return [int(held.parcel.body[0]) for held in link.hear()]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["make", "make", "deliver", "deliver", "lose", "answer", "lose answers", "die", "forget", "wait", "grant"]),
        st.integers(1, 5),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(operations=OPERATIONS, told=st.booleans())
def test_all_arrive_and_in_each_pool_once(clock, operations, told):
    """told: pools do not die or forget before the link knows what they have; then nothing comes twice at all."""
    link, pools = Link("ipc://nowhere", "m", LOCAL), [Pool(1)]
    made, arrived = 0, []
    forgot = False
    for operation, count in operations:
        pool, wire = pools[-1], link.outbox
        if operation == "make":
            for _ in range(count):
                if link.room_bytes >= SIZE_BYTES:
                    link.take(held(made))
                    made += 1
        elif operation == "deliver":
            for _ in range(min(count, len(wire.sent))):
                pool.hear(wire.sent.popleft(), wire)
        elif operation == "lose":
            for _ in range(min(count, len(wire.sent))):
                wire.sent.popleft()
        elif operation == "lose answers":
            wire.rooms.clear()
        elif operation == "grant":
            pool.ahead = (count - 1) * SIZE_BYTES
        elif operation == "wait":
            clock.now += count
            link.tick(0.25)
        elif operation in ("die", "forget"):
            if told:
                arrived += exchange(link, pool)
            if operation == "die":
                pools.append(Pool(pool.number + 1))
            else:
                pool.forget()
                forgot = True
        arrived += [int(held.parcel.body[0]) for held in link.hear()] if operation == "answer" else []
        assert len(arrived) + len(link.kept) == made
    pools[-1].ahead = 2 * SIZE_BYTES
    for _ in range(100):
        clock.now += MAX_STALL_S + 1
        arrived += exchange(link, pools[-1])
    assert not link.kept and sorted(arrived) == list(range(made))
    everywhere = [number for pool in pools for number in pool.got]
    assert set(everywhere) == set(range(made))
    if told:
        assert len(everywhere) == made
    elif not forgot:
        assert all(len(pool.got) == len(set(pool.got)) for pool in pools)


def test_what_nobody_sent_is_not_in(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    exchange(link, pool)
    for number in range(2):
        link.take(held(number))
    life = link.outbox.sent[0].life
    for room in (Room(1, life, 3, 1 << 40), Room(1, life + 1, 2, 1 << 40), Room(9, life, 2**62, 0)):
        link.outbox.rooms.append(room)
        assert link.hear() == [] and len(link.kept) == 2
    assert exchange(link, pool) == [0, 1]


def test_no_more_is_under_way_than_a_window(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    pool.ahead = 1 << 40
    exchange(link, pool)
    size_bytes, made = WINDOW_BYTES // 8, 0
    while link.room_bytes >= size_bytes:
        link.take(held(made, size_bytes, size_bytes))
        made += 1
    assert made == 8
    kinds = [type(message) for message in link.outbox.sent]
    assert kinds.count(Arrive) == 4 and kinds[-1] is Arrive  # the pool is asked in time for the window to open
    assert exchange(link, pool) == list(range(8)) and link.room_bytes > 0


def test_what_did_not_come_is_sent_again_but_not_for_ever(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    exchange(link, pool)
    link.take(held(0))
    for _ in range(200):  # a pool that speaks, and takes nothing
        clock.now += 0.5
        link.tick(0.5)
        link.outbox.rooms.append(Room(1, link.outbox.sent[0].life, 0, 1 << 20))
        link.hear()
    assert 4 <= link.resent <= 8  # after 2, 4, 8, 16, 32 and 32 s
    assert exchange(link, pool) == [0]


def test_another_pool_gets_at_once_what_none_had_taken(clock):
    link = Link("ipc://nowhere", "m", LOCAL)
    exchange(link, Pool(1))
    for number in range(3):
        link.take(held(number))
    wire = link.outbox
    wire.sent.clear()
    other = Pool(2)
    assert exchange(link, other) == [] and link.outbox is wire
    assert exchange(link, other) == [0, 1, 2]


def test_what_is_in_counts_though_it_was_to_be_sent_again(clock):
    link = Link("ipc://nowhere", "m", LOCAL)
    exchange(link, Pool(1))
    for number in range(3):
        link.take(held(number))
    life = link.outbox.sent[0].life
    link.outbox.rooms.append(Room(1, life, 0, 0))
    assert link.hear() == [] and link.sent == 3
    link.outbox.rooms.append(Room(1, life, 1, 2 * SIZE_BYTES))
    assert len(link.hear()) == 1 and link.sent == 4  # the second, but not the third


def test_leave_that_was_taken_back_is_waited_for(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    exchange(link, pool)
    for number in range(3):
        link.take(held(number))
    pool.ahead = 0
    assert exchange(link, pool) == [] and link.room_bytes == 0
    assert exchange(link, pool) == [] and link.sent == 3  # nothing is sent without leave
    pool.ahead = SIZE_BYTES
    assert [exchange(link, pool) for _ in range(4)] == [[], [0], [1], [2]]  # at once, without a stall


def test_what_is_given_up_is_of_another_life_when_it_comes_back(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    exchange(link, pool)
    for number in range(3):
        link.take(held(number))
    old = [message for message in link.outbox.sent if isinstance(message, Parcel)]
    pool.hear(old[0], link.outbox)
    given_up = link.surrender()
    assert [int(each.parcel.body[0]) for each in given_up] == [0, 1, 2] and not link.kept and link.room_bytes == 0
    exchange(link, pool)
    link.take(held(7))
    new = link.outbox.sent[0]
    assert new.number == old[0].number == 0 and new.life != old[0].life
    assert exchange(link, pool) == [7] and pool.got == [0, 7]


def test_a_pool_that_is_not_heard_of_gets_nothing_more(clock):
    link, pool = Link("ipc://nowhere", "m", LOCAL), Pool(1)
    assert link.room_bytes == 0
    exchange(link, pool)
    assert link.room_bytes == pool.ahead
    for _ in range(20):
        link.tick(0.25)
    assert link.room_bytes == 0
    exchange(link, pool)
    assert link.room_bytes == pool.ahead
