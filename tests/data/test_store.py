import math
import random

import lz4.block
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.data.ledger import COUNTS
from lamarckian.data.store import Limits, Store
from tests.data.sender import LAYOUT, parcel

SIZE = LAYOUT.size_bytes


class Case:
    """A store of so many bytes, and what was put into it."""

    def __init__(self, size_bytes: int = 4 * SIZE, sampling="fifo", full="wait", limits=None, seed=0):
        self.memory = np.zeros(size_bytes, np.uint8)
        self.counts = np.zeros((), COUNTS)
        self.store = Store(self.memory, LAYOUT, self.counts, sampling, full, limits or Limits(), seed)
        self.number = self.given = 0

    def put(self, now: float = 0.0, **about) -> None:
        coming = parcel(self.number, **about)
        self.number += 1
        self.store.check(coming)
        self.store.put(coming, now)

    def draw(self, version: int = 0, now: float = 0.0):
        loan = self.store.draw(version, now)
        self.given += loan is not None
        return loan

    def mark(self, loan) -> float:
        """What the fragment was filled with; all of it was."""
        block = self.memory[loan.start : loan.start + loan.size_bytes]
        values = LAYOUT.resized(loan.steps, loan.columns).views(block)["value"]
        assert (values == values.flat[0]).all()
        return float(values.flat[0])

    def marks(self, version: int = 0, now: float = 0.0) -> list[float]:
        found = []
        while (loan := self.draw(version, now)) is not None:
            found.append(self.mark(loan))
            self.store.release(loan.start)
        return found

    def check(self) -> dict[str, int]:
        counts = {name: int(self.counts[name]) for name in ("produced", "stale", "overwritten", "lost", "refused")}
        assert counts["produced"] == self.given + counts["stale"] + counts["overwritten"] + counts["lost"] + len(self.store)
        assert 0 <= self.store.used_bytes <= self.memory.size
        return counts


def test_each_is_given_once_in_the_order_in_which_they_were_made():
    case = Case(limits=Limits(max_age_s=100.0))
    for made_s in (3.0, 5.0, 4.0):
        case.put(now=10.0, made_s=made_s)
    assert case.marks(now=10.0) == [1.0, 2.0, 0.0]
    assert case.marks() == []


def test_the_newest_first():
    case = Case(sampling="newest")
    for made_s in (3.0, 5.0, 4.0):
        case.put(now=10.0, made_s=made_s)
    assert case.marks() == [0.0, 2.0, 1.0]


def test_uniform_gives_any_alike_and_the_same_seed_the_same():
    first = []
    for seed in range(600):
        case = Case(sampling="uniform", seed=seed)
        for _ in range(4):
            case.put()
        marks = case.marks()
        assert sorted(marks) == [0.0, 1.0, 2.0, 3.0]
        first.append(marks)
    counts = np.bincount([int(marks[0]) for marks in first], minlength=4)
    assert (abs(counts - 150) < 5 * math.sqrt(600 * 0.25 * 0.75)).all(), counts
    again = Case(sampling="uniform", seed=7)
    for _ in range(4):
        again.put()
    assert again.marks() == first[7]


def test_what_is_too_stale_is_dropped_and_its_room_is_free():
    case = Case(limits=Limits(max_staleness=2))
    for version in (0, 3, 1, 4):
        case.put(version=version)
    assert case.mark(case.draw(version=4)) == 1.0
    assert case.check()["stale"] == 2
    assert case.store.used_bytes == 2 * SIZE
    case.put(version=1)  # it is too old when it comes
    assert case.mark(case.draw(version=4)) == 3.0
    assert case.draw(version=4) is None
    assert case.check()["stale"] == 3


def test_what_is_too_stale_when_it_comes_is_not_given_though_it_be_the_newest():
    case = Case(sampling="newest", limits=Limits(max_staleness=2))
    assert case.draw(version=4) is None
    for version in (4, 1):
        case.put(version=version)
    assert case.mark(case.draw(version=4)) == 0.0
    assert case.check()["stale"] == 1


@pytest.mark.parametrize("sampling", ["fifo", "newest", "uniform"])
def test_what_was_made_too_long_ago_is_dropped(sampling):
    case = Case(sampling=sampling, limits=Limits(max_age_s=5.0))
    case.put(now=100.0, made_s=0.0)
    case.put(now=101.0, made_s=4.0)  # at 97
    case.put(now=101.0, made_s=6.0)  # at 95, too long ago when it comes
    case.put(now=101.0, made_s=math.inf)
    case.store.sweep(0, 101.5)
    assert case.check()["stale"] == 2
    case.store.sweep(0, 102.5)
    assert case.check()["stale"] == 3
    assert case.marks(now=104.9) == [0.0]
    case.put(now=106.0)
    assert case.marks(now=112.0) == []
    assert case.check()["stale"] == 4


def test_when_full_the_oldest_that_waits_gives_way_and_what_is_held_stays():
    case = Case(full="overwrite")
    for _ in range(4):
        case.put()
    held = case.draw()
    for _ in range(4):
        case.put()
    assert case.mark(held) == 0.0
    assert case.check()["overwritten"] == 4
    assert case.store.room_bytes == 4 * SIZE
    assert case.marks() == [5.0, 6.0, 7.0]
    assert case.mark(held) == 0.0


def test_when_the_learner_has_all_there_is_what_comes_gives_way_itself():
    case = Case(2 * SIZE, full="overwrite")
    held = []
    for _ in range(2):
        case.put()
        held.append(case.draw())
    case.put()
    assert case.check()["overwritten"] == 1
    assert case.draw() is None
    assert [case.mark(loan) for loan in held] == [0.0, 1.0]


def test_what_finds_room_but_not_in_one_piece_waits_aside_in_turn():
    half = LAYOUT.resized(2, 2).size_bytes
    assert half < SIZE < 2 * half
    case = Case(4 * half)
    loans = []
    for _ in range(4):
        case.put(steps=2)
        loans.append(case.draw())
    for index in (0, 2):
        case.store.release(loans[index].start)
    assert case.store.room_bytes == 2 * half
    case.put()  # as large as both gaps together
    assert case.store.room_bytes == 2 * half - SIZE and len(case.store) == 1
    case.put(steps=1, columns=1)  # there is a piece for this one, but it is not its turn
    assert case.draw() is None and len(case.store) == 2
    case.store.release(loans[1].start)
    assert case.marks() == [4.0, 5.0]
    assert case.mark(loans[3]) == 3.0
    case.check()


def test_varied_lengths_and_widths():
    case = Case(40 * SIZE)
    shapes = [(steps, columns) for steps in range(1, 5) for columns in (1, 2)]
    for steps, columns in shapes:
        case.put(steps=steps, columns=columns)
    for number, shape in enumerate(shapes):
        loan = case.draw()
        assert (loan.steps, loan.columns) == shape and case.mark(loan) == number


def make_lies():
    """What makes a parcel one that is none, in one way each."""
    good = parcel(0)
    packed = np.frombuffer(lz4.block.compress(good.body, store_size=False), np.uint8)
    return {
        "more steps": {"steps": 5},
        "more columns": {"columns": 3},
        "fewer steps": {"steps": 3},
        "a larger size": {"size_bytes": SIZE + 1},
        "an endless size": {"size_bytes": 2**62},
        "no size": {"size_bytes": 0},
        "a short body": {"body": good.body[:-1]},
        "a long body": {"body": np.zeros(SIZE + 1, np.uint8)},
        "no body": {"body": good.body[:0]},
        "a body of floats": {"body": np.zeros(SIZE // 4, np.float32)},
        "a square body": {"body": good.body.reshape(2, -1)},
        "lz4 that is none": {"packing": "lz4"},
        "lz4 cut short": {"packing": "lz4", "body": packed[:-3]},
        "lz4 of more": {"packing": "lz4", "body": np.frombuffer(lz4.block.compress(bytes(SIZE + 64), store_size=False), np.uint8)},
        "lz4 of less": {"packing": "lz4", "body": np.frombuffer(lz4.block.compress(bytes(SIZE - 64), store_size=False), np.uint8)},
        "a bomb": {"packing": "lz4", "body": np.frombuffer(lz4.block.compress(bytes(64 << 20), store_size=False), np.uint8)},
    }


LIES = make_lies()


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("full", ["wait", "overwrite"])
def test_lies_are_refused_and_leave_nothing(lie, full):
    case = Case(2 * SIZE, full=full)
    coming = msgspec.structs.replace(parcel(0), **LIES[lie])
    with pytest.raises(ValueError):
        case.store.check(coming)
        case.store.put(coming, 0.0)
    assert case.store.used_bytes == 0 and case.check()["produced"] == 0
    case.put()
    assert case.marks() == [0.0]


def test_thousands_of_spoilt_bodies():
    draw = random.Random(3)
    case, entered = Case(8 * SIZE), 0
    good = parcel(0)
    packed = np.frombuffer(lz4.block.compress(good.body, store_size=False), np.uint8)
    for _ in range(4000):
        packing = draw.choice(["none", "lz4"])
        body = bytearray(draw.choice([good.body, packed]).tobytes())
        for _ in range(draw.randrange(4)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        body = body[: draw.choice([len(body), draw.randrange(len(body))])] + draw.randbytes(draw.choice([0, 0, 5]))
        about = {
            "steps": draw.choice([4, 4, 1, 2**31]),
            "columns": draw.choice([2, 2, 1]),
            "size_bytes": draw.choice([SIZE, SIZE, 0, 64, 2**62]),
        }
        coming = msgspec.structs.replace(good, packing=packing, body=np.frombuffer(bytes(body), np.uint8), **about)
        try:
            case.store.check(coming)
            case.store.put(coming, 0.0)
            entered += 1
        except ValueError:
            continue
        case.store.release(case.draw().start)
    assert case.check()["produced"] == entered
    assert 50 < entered < 3000
    assert case.store.used_bytes == 0


def test_refusals_are_counted_and_said_once(caplog):
    case = Case()
    for _ in range(3):
        case.store.refuse("a", "it is none")
    assert case.check()["refused"] == 3
    assert [record.getMessage() for record in caplog.records] == ["a parcel of a is refused: it is none (said once)"]


@settings(max_examples=200)
@given(
    operations=st.lists(
        st.tuples(st.sampled_from(["put", "put", "put", "draw", "release", "learn", "wait"]), st.integers(1, 4), st.integers(1, 2)),
        max_size=100,
    ),
    sampling=st.sampled_from(["fifo", "newest", "uniform"]),
    full=st.sampled_from(["wait", "overwrite"]),
    limits=st.sampled_from([Limits(), Limits(max_staleness=1), Limits(max_age_s=4.0)]),
)
def test_counts_add_up_and_nothing_is_spoilt_whatever_happens(operations, sampling, full, limits):
    case = Case(3 * SIZE, sampling, full, limits)
    held, seen, version, now = {}, set(), 0, 0.0
    for operation, steps, columns in operations:
        if operation == "put" and case.store.room_bytes >= SIZE:
            case.put(now=now, steps=steps, columns=columns, version=version)
        elif operation == "draw" and (loan := case.draw(version, now)) is not None:
            mark = case.mark(loan)
            assert mark not in seen and limits.allow(loan, version, now)
            seen.add(mark)
            held[loan.start] = loan, mark
        elif operation == "release" and held:
            start = next(iter(held))
            del held[start]
            assert case.store.release(start) and not case.store.release(start)
        elif operation == "learn":
            version += 1
        elif operation == "wait":
            now += 1.0
        assert all(case.mark(loan) == mark for loan, mark in held.values())
        case.check()
    for start in held:
        case.store.release(start)
    case.marks(version, now)
    assert case.store.used_bytes == 0 and len(case.store) == 0  # nothing is stuck
    case.check()
