import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.data.arena import Arena, aligned
from lamarckian.data.fragment import ALIGNMENT_BYTES as A


def test_entries_lie_one_behind_the_other_and_round_again():
    arena = Arena(10 * A)
    starts = [arena.take(size) for size in (3 * A, 1, 2 * A + 1)]
    assert starts == [0, 3 * A, 4 * A]
    assert arena.used_bytes == 7 * A
    arena.free(0)
    assert arena.take(4 * A) is None  # 3 at the end, 3 at the start
    assert arena.take(2 * A) == 7 * A
    assert arena.take(3 * A) == 0
    assert arena.take(A) == 9 * A
    assert arena.take(1) is None


def test_an_entry_that_stays_is_passed_over_every_time_round():
    arena = Arena(5 * A)
    arena.reserve(2 * A, A)
    round_ = []
    for _ in range(6):
        round_.append(arena.take(A))
        arena.free(round_[-1])
    assert 2 * A not in round_
    assert arena.take(2 * A) is not None and arena.take(2 * A) is not None and arena.take(1) is None


def test_what_is_not_there_is_neither_freed_nor_reserved():
    arena = Arena(4 * A)
    arena.take(A)
    for start, size in ((0, A), (A, 4 * A), (A + 1, 1), (-A, A), (8 * A, A)):
        with pytest.raises(ValueError, match="not free"):
            arena.reserve(start, size)
    with pytest.raises(ValueError, match="no entry"):
        arena.free(A)
    assert arena.used_bytes == A


@given(
    pieces=st.integers(1, 40),
    operations=st.lists(st.tuples(st.sampled_from(["take", "take", "free", "reserve"]), st.integers(0, 40 * A), st.integers(1, 12 * A))),
)
def test_the_books_are_those_of_a_row_of_pieces(pieces, operations):
    arena = Arena(pieces * A + 7)
    owner: list[int | None] = [None] * pieces  # brute force: whose each aligned piece is
    entries: dict[int, int] = {}

    def longest_gap() -> int:
        return max((len(run) for run in "".join("x" if who is not None else "." for who in owner).split("x")), default=0)

    def occupy(start: int, size: int) -> None:
        assert start % A == 0
        for piece in range(start // A, start // A + aligned(size) // A):
            assert owner[piece] is None  # nothing overlaps, nothing is outside
            owner[piece] = start
        entries[start] = size

    for operation, where, size in operations:
        if operation == "take":
            start = arena.take(size)
            assert (start is None) == (longest_gap() < aligned(size) // A)
            if start is not None:
                occupy(start, size)
        elif operation == "reserve":
            start = where // A * A
            wanted = range(start // A, start // A + aligned(size) // A)
            free = wanted.stop <= pieces and all(owner[piece] is None for piece in wanted)
            if free:
                arena.reserve(start, size)
                occupy(start, size)
            else:
                with pytest.raises(ValueError):
                    arena.reserve(start, size)
        elif entries:
            start = sorted(entries)[where % len(entries)]
            del entries[start]
            arena.free(start)
            owner = [None if who == start else who for who in owner]
        assert arena.used_bytes == sum(map(aligned, entries.values())) == A * sum(who is not None for who in owner)
        assert all(start in arena for start in entries)
