"""Rows in the order of each objective: the one sort that ranking, crowding and pruning share."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit

RUN = 8
"""Length of the runs that are sorted by insertion before they are merged."""


@njit
def same(points, a, b):
    """Whether two rows are equal."""
    for j in range(points.shape[1]):  # noqa: SIM110 (Numba does not compile generators well)
        if points[a, j] != points[b, j]:
            return False
    return True


@njit
def _tie_precedes(points, a, b, j):
    """Order of rows that are equal in objective j: by the objectives after it, cyclically, then by index."""
    objectives = points.shape[1]
    for step in range(1, objectives):
        k = (j + step) % objectives
        if points[a, k] != points[b, k]:
            return points[a, k] < points[b, k]
    return a < b


@njit
def _sort(points, j, order):
    """Merge sort of row indices, in place, by objective j."""
    size = order.size
    keys = np.empty(size)
    for i in range(size):
        keys[i] = points[order[i], j]
    for start in range(0, size, RUN):
        for i in range(start + 1, min(start + RUN, size)):
            key, row, k = keys[i], order[i], i
            while k > start and (key < keys[k - 1] or (key == keys[k - 1] and _tie_precedes(points, row, order[k - 1], j))):
                keys[k], order[k] = keys[k - 1], order[k - 1]
                k -= 1
            keys[k], order[k] = key, row
    source, source_keys = order, keys
    target, target_keys = np.empty(size, np.int64), np.empty(size)
    width = RUN
    while width < size:
        for start in range(0, size, 2 * width):
            middle, end = min(start + width, size), min(start + 2 * width, size)
            a, b = start, middle
            for k in range(start, end):
                if a == middle:
                    from_b = True
                elif b == end or source_keys[a] < source_keys[b]:
                    from_b = False
                elif source_keys[b] < source_keys[a]:
                    from_b = True
                else:
                    from_b = _tie_precedes(points, source[b], source[a], j)
                if from_b:
                    target[k], target_keys[k] = source[b], source_keys[b]
                    b += 1
                else:
                    target[k], target_keys[k] = source[a], source_keys[a]
                    a += 1
        source, target = target, source
        source_keys, target_keys = target_keys, source_keys
        width *= 2
    for i in range(size):
        order[i] = source[i]


@njit
def _pack(points, bits, packed):
    """Fills `packed`, uint64 `[M, N]`, with the leading bits of each number, as integers in the same order, above `bits` for its row."""
    sign, rows = np.uint64(1 << 63), np.uint64((1 << bits) - 1)
    values = np.empty(points.shape[0])
    codes = values.view(np.uint64)
    for j in range(points.shape[1]):
        for i in range(points.shape[0]):
            values[i] = points[i, j] + 0.0  # the sum makes -0 a 0
            code = ~codes[i] if codes[i] & sign else codes[i] | sign
            packed[j, i] = (code & ~rows) | np.uint64(i)


@njit
def _unpack(points, bits, packed, order):
    """The rows of sorted keys; what the leading bits leave equal is sorted by merging."""
    rows = np.uint64((1 << bits) - 1)
    for j in range(points.shape[1]):
        start = 0
        for i in range(points.shape[0]):
            order[j, i] = np.int64(packed[j, i] & rows)
            if packed[j, i] >> np.uint64(bits) != packed[j, start] >> np.uint64(bits):
                if i - start > 1:
                    _sort(points, j, order[j, start:i])
                start = i
        if points.shape[0] - start > 1:
            _sort(points, j, order[j, start:])


def sort_objectives(points: np.ndarray) -> np.ndarray:
    """Row indices int64 `[M, N]`: in row j those of `points` `[N, M]`, finite, in ascending order of objective j.

    Ties are broken by the next objectives, cyclically, and copies by index, so that the order depends on the values and
    not on how the rows are arranged, copies stand side by side, and row 0 is the lexicographic order.
    """
    size, objectives = points.shape
    order = np.empty((objectives, size), np.int64)
    bits, packed = size.bit_length(), np.empty((objectives, size), np.uint64)
    _pack(points, bits, packed)
    for keys in packed:
        keys.sort()  # by the processor's vectors, where it has them
    _unpack(points, bits, packed, order)
    return order
