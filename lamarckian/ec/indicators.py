"""How good a set of points is, next to a known front. Objectives are minimised, as in the literature; negate what is maximised."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lamarckian.ec.compiled import njit
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.errors import MisuseError

__all__ = ["hypervolume", "igd", "igd_plus", "spread"]


def igd(points: ArrayLike, front: ArrayLike) -> float:
    """Inverted generational distance (Coello & Reyes Sierra 2004): the mean distance from a point of `front` `[K, M]`, the
    known front, to the nearest of `points` `[N, M]`.

    Points that are not finite are left out; infinite when none is left. Raises MisuseError when the shapes do not fit.
    """
    points, front = _sets(points, front)
    return float(np.mean(_nearest(front, points, False, False)))


def igd_plus(points: ArrayLike, front: ArrayLike) -> float:
    """IGD⁺ (Ishibuchi et al. 2015, eq. 18, https://doi.org/10.1007/978-3-319-15892-1_8): `igd`, where only the objectives in
    which a point is worse than that of the front count towards the distance."""
    points, front = _sets(points, front)
    return float(np.mean(_nearest(front, points, True, False)))


def spread(points: ArrayLike, front: ArrayLike) -> float:
    """How unevenly `points` `[N, M]` lie along the known `front` `[K, M]`; 0 when they are equidistant and reach its ends.

    Two objectives: Δ of Deb et al. 2002 (eq. 1), from the distances dᵢ between consecutive points, their mean d̄, and the
    distances of the outermost points to the ends of the front: (d_f + d_l + Σ|dᵢ − d̄|) / (d_f + d_l + (N − 1) d̄).
    Otherwise the generalised spread of Zhou et al. 2006 (https://doi.org/10.1109/CEC.2006.1688406), from the distances dᵢ
    of each point to the nearest other, and from each end eⱼ of the front, where objective j is greatest, to the nearest
    point: (Σ d(eⱼ) + Σ|dᵢ − d̄|) / (Σ d(eⱼ) + N d̄).

    Points that are not finite are left out. Raises MisuseError when none is left, or the shapes do not fit.
    """
    points, front = _sets(points, front)
    if len(points) == 0:
        raise MisuseError("the spread of no points is not defined: at least one point must be finite")
    if points.shape[1] == 2:
        points, front = points[np.lexsort(points.T[::-1])], front[np.lexsort(front.T[::-1])]
        gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
        ends = np.linalg.norm(points[[0, -1]] - front[[0, -1]], axis=1)
    else:
        gaps = _nearest(points, points, False, True) if len(points) > 1 else np.empty(0)
        ends = _nearest(front[np.argmax(front, axis=0)], points, False, False)
    total = ends.sum() + gaps.sum()
    if total == 0:
        return 0.0
    return float((ends.sum() + np.abs(gaps - gaps.sum() / max(len(gaps), 1)).sum()) / total)


@njit
def _nearest(rows, others, only_worse, apart):
    """Distance from each of `rows` `[K, M]` to the nearest of `others` `[N, M]`, infinite if there is none.

    only_worse: only the objectives in which the other is greater count. apart: not to the other of the same index.
    """
    distance = np.full(rows.shape[0], np.inf)
    for i in range(rows.shape[0]):
        for k in range(others.shape[0]):
            if apart and i == k:
                continue
            total = 0.0
            for j in range(rows.shape[1]):
                gap = others[k, j] - rows[i, j]
                if gap > 0 or not only_worse:
                    total += gap * gap
            distance[i] = min(distance[i], total)
    return np.sqrt(distance)


def _sets(points: ArrayLike, front: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    points, front = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(front, np.float64)
    if points.ndim != 2 or front.ndim != 2 or points.shape[1] != front.shape[1] or front.size == 0:
        raise MisuseError(
            f"points and front must be [rows, objectives] of as many objectives, and the front not empty, "
            f"but they have the shapes {points.shape} and {front.shape}"
        )
    if not np.isfinite(front).all():
        raise MisuseError("the front must be finite, but has other numbers")
    return points[np.isfinite(points).all(1)], front
