"""Exact hypervolume of a set of points whose objectives are minimised; negate what is maximised."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lamarckian.ec.compiled import njit
from lamarckian.errors import MisuseError


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """The volume that `points` `[N, M]`, minimised, dominate up to the point `reference` `[M]` (Zitzler & Thiele 1998).

    Points that are not finite, or not better than the reference in every objective, count nothing; nor do dominated ones.
    Own kernels serve up to four objectives; the time grows as N log N, and with four as N² log N. More need `moocore`.
    Raises MisuseError when the shapes do not fit, the reference is not finite, or moocore is missing.
    """
    rows, limit = np.asarray(points, np.float64), np.asarray(reference, np.float64)
    if rows.ndim != 2 or rows.shape[1] == 0 or limit.shape != rows.shape[1:]:
        raise MisuseError(
            f"points must have the shape [rows, objectives] and reference [objectives], but they have {rows.shape} and {limit.shape}"
        )
    if not np.isfinite(limit).all():
        raise MisuseError(f"the reference point must be finite, but is {limit.tolist()}")
    rows = rows[np.isfinite(rows).all(1) & (rows < limit).all(1)]
    if len(rows) == 0:
        return 0.0
    if rows.shape[1] == 1:
        return float(limit[0] - rows.min())
    if rows.shape[1] > 4:
        return _by_moocore(rows, limit)
    rows = rows[np.lexsort(rows.T)]  # ascending by the last objective, ties by the one before it
    return float({2: area, 3: volume, 4: volume_of_four}[rows.shape[1]](rows, limit))


def _by_moocore(points: np.ndarray, reference: np.ndarray) -> float:
    try:
        import moocore
    except ImportError:
        raise MisuseError(
            f"the hypervolume of {len(reference)} objectives needs moocore; install it: pip install 'lamarckian[ec]'"
        ) from None
    return float(moocore.hypervolume(points, ref=reference))


@njit
def area(points, reference):
    """Two objectives, `points` in ascending order of the second: a sweep over strips."""
    total, best = 0.0, reference[0]
    for i in range(points.shape[0]):
        if points[i, 0] < best:
            total += (best - points[i, 0]) * (reference[1] - points[i, 1])
            best = points[i, 0]
    return total


@njit
def volume(points, reference):
    """Three objectives, `points` in ascending order of the third: a sweep over slices (Beume et al. 2009).

    `x`, ascending, and `y`, descending, are the corners of the staircase that the points so far dominate.
    """
    x, y = np.empty(points.shape[0]), np.empty(points.shape[0])
    count, total, slice_area, below = 0, 0.0, 0.0, 0.0
    for i in range(points.shape[0]):
        point = points[i]
        total += slice_area * (point[2] - below)
        below = point[2]
        at = np.searchsorted(x[:count], point[0])
        if (at > 0 and y[at - 1] <= point[1]) or (at < count and x[at] == point[0] and y[at] <= point[1]):
            continue
        after, left, top = at, point[0], y[at - 1] if at > 0 else reference[1]
        while after < count and y[after] >= point[1]:
            slice_area += (x[after] - left) * (top - point[1])
            left, top = x[after], y[after]
            after += 1
        slice_area += ((x[after] if after < count else reference[0]) - left) * (top - point[1])
        if after == at:
            for k in range(count, at, -1):
                x[k], y[k] = x[k - 1], y[k - 1]
        else:
            for k in range(after, count):
                x[k - after + at + 1], y[k - after + at + 1] = x[k], y[k]
        x[at], y[at] = point[0], point[1]
        count += 1 - (after - at)
    return total + slice_area * (reference[2] - below)


@njit
def volume_of_four(points, reference):
    """Four objectives, `points` in ascending order of the fourth: a sweep over slices of three.

    A point adds to the slice its own box less what the others dominate of it, which is the volume of the others limited
    to that box (While et al. 2012). `slice_points` stays in the order of its third objective, and so do the limited ones.
    """
    slice_points, limited = np.empty((points.shape[0], 3)), np.empty((points.shape[0], 3))
    count, total, slice_volume, below = 0, 0.0, 0.0, 0.0
    for i in range(points.shape[0]):
        point = points[i]
        total += slice_volume * (point[3] - below)
        below = point[3]
        box = 1.0
        for j in range(3):
            box *= reference[j] - point[j]
            for k in range(count):
                limited[k, j] = max(slice_points[k, j], point[j])
        slice_volume += box - volume(limited[:count], reference)
        kept = 0
        for k in range(count):  # those the point dominates in the slice can go
            if slice_points[k, 0] < point[0] or slice_points[k, 1] < point[1] or slice_points[k, 2] < point[2]:
                slice_points[kept] = slice_points[k]
                kept += 1
        at = kept
        while at > 0 and slice_points[at - 1, 2] > point[2]:
            slice_points[at] = slice_points[at - 1]
            at -= 1
        slice_points[at] = point[:3]
        count = kept + 1
    return total + slice_volume * (reference[3] - below)
