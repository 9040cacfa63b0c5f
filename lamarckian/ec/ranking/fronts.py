"""Non-dominated ranks, compiled: one kernel for one, two, three, and more objectives, all maximised.

Each takes `points` `[N, M]`, finite; `order` `[M, K]`, rows as `sort_objectives` arranges them; and writes `ranks` of
these K rows. Rows are met in descending lexicographic order, so that whatever dominates a row was met before it; a copy
stands beside its like and shares its rank. Each kernel gives the number of fronts.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.ranking.sorting import same

BLOCK_BITS = 1 << 24
"""Bits of a block of `rank_by_bits`: 2 MiB, which bounds its memory."""

MANY_FRONTS = 64
"""Fronts beyond which `rank_by_search` takes over from `rank_by_bits`.

With four objectives, in layers, both took as long at about 30 fronts of 300 rows, 70 of 2,000 and 80 of 20,000. With
8 fronts the bits were 2, 8 and 9 times as fast; with 256 the search was, by 2 to 6 times."""


@njit
def rank_one(points, order, ranks):
    """One objective: dense ranks of the distinct values."""
    rank = -1
    for i in range(order.shape[1] - 1, -1, -1):
        row = order[0, i]
        if rank < 0 or points[row, 0] != points[order[0, i + 1], 0]:
            rank += 1
        ranks[row] = rank
    return rank + 1


@njit
def rank_two(points, order, ranks):
    """Two objectives: a sweep in O(K log K).

    A front dominates the row if its best second objective so far is as good; these bests descend from front to front.
    """
    best = np.empty(order.shape[1])
    fronts, previous = 0, -1
    for i in range(order.shape[1] - 1, -1, -1):
        row = order[0, i]
        if previous >= 0 and same(points, row, previous):
            ranks[row] = ranks[previous]
            continue
        low, high = 0, fronts
        while low < high:
            middle = (low + high) // 2
            if best[middle] >= points[row, 1]:
                low = middle + 1
            else:
                high = middle
        best[low] = points[row, 1]
        ranks[row] = low
        fronts = max(fronts, low + 1)
        previous = row
    return fronts


@njit
def _first_below(y, start, count, value):
    """Index of the first of `y[start : start + count]`, descending, that is less than `value`; the end if none is."""
    low, high = start, start + count
    while low < high:
        middle = (low + high) // 2
        if y[middle] >= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def rank_three(points, order, ranks):
    """Three objectives: binary search over the fronts (Zhang et al. 2015), each with a staircase; O(K log² K) as a rule.

    A front's staircase holds what is maximal in the second and third objectives, y descending and z ascending. It is
    kept in a part of `y` and `z`, and moves to a new part, twice as long, when it is full: 4K entries always suffice.
    """
    size = order.shape[1]
    y, z = np.empty(4 * size), np.empty(4 * size)
    start, count, capacity = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    fronts, used, previous = 0, 0, -1
    for i in range(size - 1, -1, -1):
        row = order[0, i]
        if previous >= 0 and same(points, row, previous):
            ranks[row] = ranks[previous]
            continue
        row_y, row_z = points[row, 1], points[row, 2]
        low, high, steps = 0, fronts, 0  # steps: how many of the staircase have at least this y
        while low < high:
            front = (low + high) // 2
            at = _first_below(y, start[front], count[front], row_y)
            if at > start[front] and z[at - 1] >= row_z:
                low = front + 1
            else:
                high, steps = front, at - start[front]
        if low == fronts:
            fronts, steps = fronts + 1, 0
        if count[low] == capacity[low]:
            for k in range(count[low]):
                y[used + k], z[used + k] = y[start[low] + k], z[start[low] + k]
            start[low], capacity[low] = used, max(1, 2 * capacity[low])
            used += capacity[low]
        at, end = start[low] + steps, start[low] + count[low]
        if steps > 0 and y[at - 1] == row_y:
            at -= 1
        after = at
        while after < end and z[after] <= row_z:
            after += 1
        if after == at:
            for k in range(end, at, -1):
                y[k], z[k] = y[k - 1], z[k - 1]
        else:
            for k in range(after, end):
                y[k - after + at + 1], z[k - after + at + 1] = y[k], z[k]
        y[at], z[at] = row_y, row_z
        count[low] += 1 - (after - at)
        ranks[row] = low
        previous = row
    return fronts


@njit
def _intersect(bits, others, last):
    """Leaves in `bits` what is in `others`, up to the word `last`."""
    for word in range(last + 1):
        bits[word] &= others[word]


@njit
def _meet(bits, others, last):
    """Whether two sets have something in common, up to the word `last`."""
    for word in range(last + 1):  # noqa: SIM110 (Numba does not compile generators well)
        if bits[word] & others[word]:
            return True
    return False


@njit
def rank_by_bits(points, order, ranks):
    """Any number of objectives: for every row the set of those as good in all of them, as bits; O(M K² / 64).

    Rows are numbered as they are met, and taken in blocks. The row's front is found by binary search (Zhang et al. 2015):
    a front dominates it if their sets meet. Gives -1, with ranks half written, when there are more than MANY_FRONTS.
    """
    size = order.shape[1]
    words = (size + 63) // 64
    number = np.empty(points.shape[0], np.int64)
    number[order[0, ::-1]] = np.arange(size)
    numbers, tied = np.empty(order.shape, np.int64), np.zeros(order.shape, np.bool_)  # in descending order of each objective
    for j in range(1, order.shape[0]):
        for i in range(size):
            row = order[j, size - 1 - i]
            numbers[j, i] = number[row]
            tied[j, i] = i > 0 and points[row, j] == points[order[j, size - i], j]
    block = max(1, min(size, BLOCK_BITS // max(size, 1)))
    bits, prefix = np.empty((block, words), np.uint64), np.empty(words, np.uint64)
    members = np.zeros((min(size, MANY_FRONTS), words), np.uint64)
    one = np.uint64(1)
    fronts = 0
    for begin in range(0, size, block):
        end = min(begin + block, size)
        for i in range(begin, end):  # all that were met before
            bits[i - begin, : i >> 6] = ~np.uint64(0)
            bits[i - begin, i >> 6] = (one << np.uint64(i & 63)) - one
        for j in range(1, order.shape[0]):
            prefix[:] = 0
            entered = 0
            for i in range(size):
                if i == entered:  # a new value: all who have it enter before any is compared
                    while entered == i or (entered < size and tied[j, entered]):
                        met = numbers[j, entered]
                        prefix[met >> 6] |= one << np.uint64(met & 63)
                        entered += 1
                met = numbers[j, i]
                if begin <= met < end:
                    _intersect(bits[met - begin], prefix, met >> 6)
        for i in range(begin, end):
            row = order[0, size - 1 - i]
            low, high = 0, fronts
            if i > 0 and same(points, row, order[0, size - i]):
                low = high = ranks[order[0, size - i]]
            while low < high:
                middle = (low + high) // 2
                if _meet(bits[i - begin], members[middle], i >> 6):
                    low = middle + 1
                else:
                    high = middle
            if low == MANY_FRONTS:
                return -1
            members[low, i >> 6] |= one << np.uint64(i & 63)
            ranks[row] = low
            fronts = max(fronts, low + 1)
    return fronts


@njit
def _as_good(points, a, b):
    """Whether row a is as good as row b in every objective."""
    for j in range(points.shape[1]):  # noqa: SIM110 (Numba does not compile generators well)
        if points[a, j] < points[b, j]:
            return False
    return True


@njit
def rank_by_search(points, order, ranks):
    """Any number of objectives: binary search over the fronts, comparing with each row of one (Zhang et al. 2015, ENS-BS)."""
    size = order.shape[1]
    latest, before = np.empty(size, np.int64), np.empty(points.shape[0], np.int64)
    fronts, previous = 0, -1
    for i in range(size - 1, -1, -1):
        row = order[0, i]
        if previous >= 0 and same(points, row, previous):
            ranks[row] = ranks[previous]
            continue
        low, high = 0, fronts
        while low < high:
            middle = (low + high) // 2
            other = latest[middle]
            while other >= 0 and not _as_good(points, other, row):
                other = before[other]
            if other >= 0:
                low = middle + 1
            else:
                high = middle
        if low == fronts:
            latest[low] = -1
            fronts += 1
        before[row], latest[low] = latest[low], row
        ranks[row] = low
        previous = row
    return fronts


def rank_feasible(points: np.ndarray, order: np.ndarray, ranks: np.ndarray) -> int:
    """Calls the kernel that fits the number of objectives; gives the number of fronts."""
    kernel = {1: rank_one, 2: rank_two, 3: rank_three}.get(len(order), rank_by_bits)
    fronts = kernel(points, order, ranks)
    return fronts if fronts >= 0 else rank_by_search(points, order, ranks)


def rank(points: np.ndarray, violation: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Ranks int64 `[N]` by constraint domination (Deb et al. 2002), and the number of fronts.

    violation: `[N]`, feasible where it is not above 0; or `[0]`, when all are feasible.
    """
    ranks = np.empty(len(points), np.int64)
    infeasible = (violation > 0).nonzero()[0]
    if not len(infeasible):
        return ranks, rank_feasible(points, order, ranks)
    feasible = order[violation[order] <= 0].reshape(len(order), -1)
    fronts = rank_feasible(points, feasible, ranks)
    levels, level = np.unique(violation[infeasible], return_inverse=True)
    ranks[infeasible] = fronts + level
    return ranks, fronts + len(levels)
