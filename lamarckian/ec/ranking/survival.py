"""Ranking and pruning of a whole population: the kernels put together, so that only those are compiled that are needed."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.ranking.crowding import crowd
from lamarckian.ec.ranking.fronts import rank
from lamarckian.ec.ranking.pruning import prune
from lamarckian.ec.ranking.sorting import sort_objectives

UNRANKED = 2**31 - 1
"""The rank of a row that has a number which is not finite."""


def finite_rows(fitness: np.ndarray, violation: np.ndarray) -> np.ndarray | None:
    """Indices of the rows whose objectives and violation are finite; None where all are."""
    if all_finite(fitness, violation):
        return None
    finite = np.isfinite(fitness).all(axis=1)
    return np.flatnonzero(finite & np.isfinite(violation) if len(violation) else finite)


def rank_population(fitness: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """Ranks int64 `[N]`."""
    rows = finite_rows(fitness, violation)
    if rows is None:
        return rank(fitness, violation, sort_objectives(fitness))[0]
    points = fitness[rows]
    ranks = np.full(len(fitness), UNRANKED)
    ranks[rows] = rank(points, violation[rows] if len(violation) else violation, sort_objectives(points))[0]
    return ranks


def crowd_population(fitness: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Crowding distances `[N]`."""
    rows = np.flatnonzero(ranks != UNRANKED)
    points = fitness[rows]
    distance = np.zeros(len(fitness))
    distance[rows] = crowd(points, sort_objectives(points), ranks[rows], len(fitness))
    return distance


def truncate_population(fitness: np.ndarray, ranks: np.ndarray, size: int, method: int) -> np.ndarray:
    """Indices int64 `[size]` of the rows kept, ascending."""
    rows = np.flatnonzero(ranks != UNRANKED)
    points, ranked = fitness[rows], ranks[rows]
    fronts = int(ranked.max(initial=-1)) + 1
    kept = _cut(points, sort_objectives(points), ranked, fronts, size, method)
    return _fill(rows[kept >= 0], rows, size, len(fitness))


def survive_population(fitness: np.ndarray, violation: np.ndarray, size: int, method: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices int64 `[size]` of the rows kept, their ranks, and their crowding distances among themselves."""
    rows = finite_rows(fitness, violation)
    if rows is not None:
        return _survive_some(fitness, violation, rows, size, method)
    order = sort_objectives(fitness)
    ranks, fronts = rank(fitness, violation, order)
    kept = _cut(fitness, order, ranks, fronts, size, method)
    return pick(kept, ranks, crowd(fitness, order, kept, fronts), size)


def _survive_some(
    fitness: np.ndarray, violation: np.ndarray, rows: np.ndarray, size: int, method: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `survive_population`, where some rows are not finite: what lacks is filled up with these."""
    least = min(size, len(rows))
    chosen, ranks, distances = survive_population(fitness[rows], violation[rows] if len(violation) else violation, least, method)
    chosen = _fill(rows[chosen], rows, size, len(fitness))
    all_ranks, all_distances = np.full(len(fitness), UNRANKED), np.zeros(len(fitness))
    ranked = np.isin(chosen, rows)
    all_ranks[chosen[ranked]], all_distances[chosen[ranked]] = ranks, distances
    return chosen, all_ranks[chosen], all_distances[chosen]


def _cut(points: np.ndarray, order: np.ndarray, ranks: np.ndarray, fronts: int, size: int, method: int) -> np.ndarray:
    """Ranks `[N]` of the rows kept, -1 for the others. Keeps all if `size` allows it."""
    kept, front, last, excess = split(ranks, fronts, size)
    if excess:
        prune(points, order, front, excess, method)
        restore(kept, front, last)
    return kept


def _fill(chosen: np.ndarray, rows: np.ndarray, size: int, population: int) -> np.ndarray:
    """Indices `[size]`, ascending: the rows chosen, and those that are not in `rows`, earliest first, if they are too few."""
    others = np.setdiff1d(np.arange(population), rows)
    return np.sort(np.concatenate([chosen, others[: size - len(chosen)]]))


@njit
def all_finite(fitness, violation):
    """Whether there is no number that is not finite."""
    for row in range(fitness.shape[0]):
        for j in range(fitness.shape[1]):
            if not np.isfinite(fitness[row, j]):
                return False
    for row in range(violation.size):  # noqa: SIM110 (Numba does not compile generators well)
        if not np.isfinite(violation[row]):
            return False
    return True


@njit
def split(ranks, fronts, size):
    """What is kept of whole fronts, int64 `[N]`: their ranks, -1 for others; and the front that does not fit.

    Of that one: 0 for its rows, -1 for others; its rank; and how many of its rows are too many, 0 where none of it is kept.
    """
    counts = np.zeros(fronts, np.int64)
    for row in range(ranks.size):
        counts[ranks[row]] += 1
    total, last = 0, 0
    while last < fronts and total + counts[last] <= size:
        total += counts[last]
        last += 1
    kept, front = np.empty(ranks.size, np.int64), np.empty(ranks.size, np.int64)
    for row in range(ranks.size):
        kept[row] = ranks[row] if ranks[row] < last else -1
        front[row] = 0 if ranks[row] == last else -1
    excess = total + counts[last] - size if last < fronts and total < size else 0
    return kept, front, last, excess


@njit
def restore(kept, front, last):
    """Keeps what is left of a front of rank `last`."""
    for row in range(kept.size):
        if front[row] == 0:
            kept[row] = last


@njit
def pick(kept, ranks, distances, size):
    """Indices int64 `[size]` of the rows kept, ascending, their ranks and their distances."""
    chosen, its_ranks, its_distances = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    count = 0
    for row in range(kept.size):
        if kept[row] >= 0:
            chosen[count], its_ranks[count], its_distances[count] = row, ranks[row], distances[row]
            count += 1
    return chosen, its_ranks, its_distances
