"""Where entries of varied length lie in a circular buffer. It only keeps the books: the memory is somebody else's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import chain, islice

from lamarckian.data.fragment import ALIGNMENT_BYTES


class Arena:
    """`size_bytes` of which entries take one piece each, aligned to `ALIGNMENT_BYTES`, one behind the other and round again.

    An entry that is still there when its place comes round is passed over, and so is an end that is too short.
    used_bytes: what entries take, each with what aligns the next.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        self.used_bytes = 0
        self._taken: dict[int, int] = {}
        self._gaps: dict[int, int] = {}  # bytes by start; no two touch
        self._starts: list[int] = []  # of gaps, ascending
        self._next = 0
        self._add_gap(0, self.size_bytes)

    def __contains__(self, start: int) -> bool:
        """Whether an entry starts there."""
        return start in self._taken

    def take(self, size_bytes: int) -> int | None:
        """Where a new entry of that many bytes starts; None when there is no such piece."""
        wanted = aligned(size_bytes)
        place = bisect_left(self._starts, self._next)
        for gap in chain(islice(self._starts, place, None), islice(self._starts, place)):
            if self._gaps[gap] >= wanted:
                self._occupy(gap, gap, wanted)
                self._next = gap + wanted
                return gap
        return None

    def reserve(self, start: int, size_bytes: int) -> None:
        """Takes the piece that starts there; raises ValueError when it is not free."""
        wanted = aligned(size_bytes)
        place = bisect_right(self._starts, start) - 1
        gap = self._starts[place] if place >= 0 else 0
        if start % ALIGNMENT_BYTES or not gap <= start <= start + wanted <= gap + self._gaps.get(gap, 0):
            raise ValueError(f"{size_bytes} bytes at {start} are not free")
        self._occupy(gap, start, wanted)

    def free(self, start: int) -> None:
        """Gives an entry's piece back; raises ValueError when there is none."""
        if start not in self._taken:
            raise ValueError(f"no entry starts at {start}")
        size_bytes = self._taken.pop(start)
        self.used_bytes -= size_bytes
        place = bisect_right(self._starts, start)
        if place < len(self._starts) and self._starts[place] == start + size_bytes:
            size_bytes += self._remove_gap(place)
        if place and self._starts[place - 1] + self._gaps[self._starts[place - 1]] == start:
            start = self._starts[place - 1]
            size_bytes += self._remove_gap(place - 1)
        self._add_gap(start, size_bytes)

    def _occupy(self, gap: int, start: int, size_bytes: int) -> None:
        end = gap + self._remove_gap(bisect_left(self._starts, gap))
        self._add_gap(gap, start - gap)
        self._add_gap(start + size_bytes, end - start - size_bytes)
        self._taken[start] = size_bytes
        self.used_bytes += size_bytes

    def _add_gap(self, start: int, size_bytes: int) -> None:
        if size_bytes:
            self._gaps[start] = size_bytes
            insort(self._starts, start)

    def _remove_gap(self, place: int) -> int:
        return self._gaps.pop(self._starts.pop(place))


def aligned(size_bytes: int) -> int:
    """So many bytes, and as many more as align what comes behind them."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
