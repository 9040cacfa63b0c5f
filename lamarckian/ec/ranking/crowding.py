"""Crowding distances (Deb et al. 2002) from each row's neighbours in each objective, compiled."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.ranking.sorting import same


@njit
def link(points, order, front, fronts):
    """Neighbours within the fronts. `front`: int64 `[N]`, from 0 to `fronts` - 1, or -1 for a row that is left out.

    Gives below, above, int64 `[N, M]`: the row next to this one in objective j, -1 at an end; span, float64
    `[fronts, M]`: the range of the objective; copies, bool `[N]`: rows equal to an earlier one of their front, which are
    nobody's neighbours.
    """
    size, objectives = points.shape
    below, above = np.full((size, objectives), -1), np.full((size, objectives), -1)
    span = np.zeros((fronts, objectives))
    copies = np.zeros(size, np.bool_)
    first, last = np.empty(fronts, np.int64), np.empty(fronts, np.int64)
    for j in range(objectives):
        for f in range(fronts):
            last[f] = -1
        for place in range(order.shape[1]):
            row = order[j, place]
            f = front[row]
            if f < 0 or copies[row]:
                continue
            previous = last[f]
            if previous < 0:
                first[f] = row
            elif j == 0 and same(points, row, previous):
                copies[row] = True
                continue
            else:
                above[previous, j], below[row, j] = row, previous
                span[f, j] = points[row, j] - points[first[f], j]
            last[f] = row
    return below, above, span, copies


@njit
def spacing(points, below, above, span, row):
    """The crowding distance of a row; `span`: `[M]`, that of its front."""
    if below[row, 0] < 0 and above[row, 0] < 0:
        return np.inf
    total = 0.0
    for j in range(points.shape[1]):
        if span[j] > 0:
            if below[row, j] < 0 or above[row, j] < 0:
                return np.inf
            total += (points[above[row, j], j] - points[below[row, j], j]) / span[j]
    return total


@njit
def crowd(points, order, front, fronts):
    """Crowding distances `[N]` within the fronts, as for `link`; 0 for a copy and for a row that is left out."""
    below, above, span, copies = link(points, order, front, fronts)
    distance = np.zeros(points.shape[0])
    for row in range(points.shape[0]):
        if front[row] >= 0 and not copies[row]:
            distance[row] = spacing(points, below, above, span[front[row]], row)
    return distance
