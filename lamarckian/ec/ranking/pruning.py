"""Pruning a front one row at a time, compiled. The least key goes first, and of equal keys the row of the higher index.

A removal can only raise the keys of the others, so an old key is a lower bound: it is enough to compute a key afresh
when its row is about to go. Copies go before all else.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.ranking.crowding import link, spacing

CROWDING, PCD, MNN = 0, 1, 2

SPARE = 4
"""Neighbours that are remembered beyond the M nearest, so that a search is seldom needed after a removal."""


@njit
def _sift_down(heap, size, keys, at):
    """Restores the heap of rows, least key first, below a place whose key has grown."""
    row = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _goes_before(keys, heap[child + 1], heap[child]):
            child += 1
        if not _goes_before(keys, heap[child], row):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = row


@njit
def _goes_before(keys, a, b):
    return keys[a] < keys[b] or (keys[a] == keys[b] and a > b)


@njit
def _unlink(below, above, row):
    for j in range(below.shape[1]):
        if below[row, j] >= 0:
            above[below[row, j], j] = above[row, j]
        if above[row, j] >= 0:
            below[above[row, j], j] = below[row, j]


@njit
def _search(unit, below, above, axis, row, near, gaps):
    """Fills `near` and `gaps` with the nearest rows, and their squared distances, ascending; gives how many there are.

    Walks both ways along one objective until this alone is further than the furthest in the list.
    """
    found, wanted = 0, near.size
    left, right = below[row, axis], above[row, axis]
    while left >= 0 or right >= 0:
        if right < 0 or (left >= 0 and unit[row, axis] - unit[left, axis] <= unit[right, axis] - unit[row, axis]):
            other, left = left, below[left, axis]
        else:
            other, right = right, above[right, axis]
        if found == wanted and (unit[other, axis] - unit[row, axis]) ** 2 >= gaps[found - 1]:
            break
        gap = 0.0
        for j in range(unit.shape[1]):
            gap += (unit[other, j] - unit[row, j]) ** 2
        if found < wanted:
            found += 1
        elif gap >= gaps[found - 1]:
            continue
        k = found - 1
        while k > 0 and gaps[k - 1] > gap:
            near[k], gaps[k] = near[k - 1], gaps[k - 1]
            k -= 1
        near[k], gaps[k] = other, gap
    return found


@njit
def _forget_removed(front, near, gaps, found):
    """Takes the rows that are out of the front off the list; gives how many are left."""
    left = 0
    for k in range(found):
        if front[near[k]] >= 0:
            near[left], gaps[left] = near[k], gaps[k]
            left += 1
    return left


@njit
def _scale(points, front, span):
    """Objectives as fractions of their range, and the one in which the rows are spread most."""
    unit = np.zeros(points.shape)
    axis, most = 0, -1.0
    for j in range(points.shape[1]):
        count, total, squares = 0, 0.0, 0.0
        for row in range(points.shape[0]):
            if span[j] > 0:
                unit[row, j] = points[row, j] / span[j]
            if front[row] >= 0:
                count += 1
                total += unit[row, j]
                squares += unit[row, j] ** 2
        variance = squares / count - (total / count) ** 2
        if variance > most:
            axis, most = j, variance
    return unit, axis


@njit
def prune(points, order, front, excess, method):
    """Takes `excess` rows out of a front: `front`, int64 `[N]`, is 0 for its rows, -1 for others, and -1 for those taken.

    CROWDING: by the crowding distance, computed once. PCD: by the crowding distance among the rows left, in terms of the
    range of the whole front. MNN: by the product of the distances to the M nearest rows left, each objective as a
    fraction of its range; without as many it is infinite, and so it is for those at the ends of an objective.
    """
    below, above, span, copies = link(points, order, front, 1)
    heap, size = np.empty(points.shape[0], np.int64), 0
    keys = np.empty(points.shape[0])
    for row in range(points.shape[0]):
        if front[row] == 0:
            heap[size] = row
            size += 1
    for place in range(size):
        row = heap[place]
        keys[row] = -1.0 if copies[row] else spacing(points, below, above, span[0], row)

    objectives = points.shape[1]
    unit, axis = points, 0
    near, gaps = np.empty((0, 0), np.int64), np.empty((0, 0))
    found = np.zeros(points.shape[0], np.int64)
    if method == MNN:
        unit, axis = _scale(points, front, span[0])
        near, gaps = np.empty((points.shape[0], objectives + SPARE), np.int64), np.empty((points.shape[0], objectives + SPARE))
        for place in range(size):
            row = heap[place]
            if 0 <= keys[row] < np.inf:
                keys[row] = 0.0

    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, keys, at)
    while excess > 0:
        row = heap[0]
        key = keys[row]
        if method == PCD and key >= 0:
            key = spacing(points, below, above, span[0], row)
        elif method == MNN and 0 <= key < np.inf:
            left = _forget_removed(front, near[row], gaps[row], found[row])
            if left < objectives:
                left = _search(unit, below, above, axis, row, near[row], gaps[row])
            found[row] = left
            key = np.inf
            if left >= objectives:
                key = 1.0
                for j in range(objectives):
                    key *= gaps[row, j]
        if key > keys[row]:
            keys[row] = key
        else:
            front[row] = -1
            if not copies[row]:
                _unlink(below, above, row)
            size -= 1
            excess -= 1
            heap[0] = heap[size]
        _sift_down(heap, size, keys, 0)
