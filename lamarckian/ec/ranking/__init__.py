"""Non-dominated ranking, crowding and truncation. Fitness is maximised, float64 `[N, M]`; violation `[N]` is 0 where feasible.

A row is ranked if its objectives and its violation are finite. Rows with an equal fitness share a front; in crowding and
pruning all but the first of them are copies, of distance 0, and the first to go. Ties go against the later row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lamarckian.ec.ranking.pruning import CROWDING, MNN, PCD
from lamarckian.ec.ranking.survival import UNRANKED, crowd_population, rank_population, survive_population, truncate_population
from lamarckian.errors import MisuseError

__all__ = ["METHODS", "UNRANKED", "crowding_distance", "default_method", "non_dominated_ranks", "survive", "truncate"]

METHODS = {"crowding": CROWDING, "pcd": PCD, "mnn": MNN}
"""The ways to prune the front that does not fit, see `truncate`."""

MNN_LARGEST = 500
"""Rows kept of three and more objectives up to which `default_method` is "mnn"."""

_ALL_FEASIBLE = np.empty(0)


def non_dominated_ranks(fitness: ArrayLike, violation: ArrayLike | None = None) -> NDArray[np.int64]:
    """Ranks int64 `[N]`: 0 for the first front, and so on; `UNRANKED` for a row that is not finite, which influences nobody.

    Constraint domination (Deb et al. 2002, section VI, https://doi.org/10.1109/4235.996017): the feasible come before the
    infeasible, and of these the smaller violation comes first; equal violations share a front.
    Raises MisuseError when the shapes do not fit.
    """
    fitness = _fitness(fitness)
    return rank_population(fitness, _violation(violation, len(fitness)))


def crowding_distance(fitness: ArrayLike, ranks: ArrayLike) -> NDArray[np.float64]:
    """Crowding distances float64 `[N]` within the fronts of `non_dominated_ranks` (Deb et al. 2002, section III.B).

    The sum over the objectives of the gap between a row's two neighbours, as a fraction of the front's range; infinite at
    the ends of an objective. A constant objective adds nothing, and has no ends. 0 for copies and for unranked rows.
    Raises MisuseError when the shapes do not fit, or the ranks are not such as `non_dominated_ranks` gives.
    """
    fitness = _fitness(fitness)
    return crowd_population(fitness, _ranks(ranks, fitness))


def truncate(fitness: ArrayLike, ranks: ArrayLike, size: int, method: str) -> NDArray[np.int64]:
    """Indices int64 `[size]`, ascending, of the rows that are kept: whole fronts while they fit, and a part of the next.

    From that one the rows go that are most crowded, by `method`:
    "crowding": by the crowding distance, computed once (Deb et al. 2002);
    "pcd": by the crowding distance, computed again after each removal (Kukkonen & Deb 2006, CEC,
    https://doi.org/10.1109/CEC.2006.1688443), in fractions of the whole front's range;
    "mnn": by the product of the distances to the M nearest rows, computed again after each removal (Kukkonen & Deb 2006,
    PPSN, https://doi.org/10.1007/11844297_56), where rows at the ends of an objective are kept if there is room.

    Unranked rows are taken, earliest first, only when there is nothing else.
    Raises MisuseError when the shapes do not fit, `size` is not within 0 .. N, or the method is unknown.
    """
    fitness = _fitness(fitness)
    return truncate_population(fitness, _ranks(ranks, fitness), _size(size, len(fitness)), _method(method))


def survive(
    fitness: ArrayLike, violation: ArrayLike | None, size: int, method: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """One generation's survival in one call: `(kept, ranks, crowding)`, each `[size]`.

    kept: as `truncate` gives for the ranks of `non_dominated_ranks`. ranks: those of the kept. crowding: the crowding
    distances of the kept, among the kept. Raises MisuseError as `truncate` does.
    """
    fitness = _fitness(fitness)
    return survive_population(fitness, _violation(violation, len(fitness)), _size(size, len(fitness)), _method(method))


def default_method(objectives: int, size: int) -> str:
    """The `method` of `truncate` for so many objectives, and `size` rows to be kept.

    "pcd" for two objectives, where it is as good as any and costs hardly more than "crowding" at any size; "mnn" for more, as
    crowding distances mislead there, up to MNN_LARGEST: its search for neighbours grows nearly with the square of the size,
    and at 1,000 rows of three objectives it already costs several times all the rest of a generation. Beyond that "pcd".
    """
    return "mnn" if objectives > 2 and size <= MNN_LARGEST else "pcd"


def _fitness(fitness: ArrayLike) -> NDArray[np.float64]:
    array = np.ascontiguousarray(fitness, np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise MisuseError(f"fitness must have the shape [rows, objectives], with one objective at least, but has {np.shape(fitness)}")
    return array


def _violation(violation: ArrayLike | None, rows: int) -> NDArray[np.float64]:
    if violation is None:
        return _ALL_FEASIBLE
    array = np.ascontiguousarray(violation, np.float64)
    if array.shape != (rows,):
        raise MisuseError(f"violation must have a number for each row of fitness, shape ({rows},), but has {np.shape(violation)}")
    return array


def _ranks(ranks: ArrayLike, fitness: NDArray[np.float64]) -> NDArray[np.int64]:
    array = np.ascontiguousarray(ranks, np.int64)
    if array.shape != fitness.shape[:1]:
        raise MisuseError(f"ranks must have a number for each row of fitness, shape ({len(fitness)},), but have {np.shape(ranks)}")
    ranked = array[array != UNRANKED]
    if ranked.size and not 0 <= ranked.min() <= ranked.max() < len(fitness):
        raise MisuseError(f"ranks must be from 0 to {len(fitness) - 1}, or UNRANKED, but go from {ranked.min()} to {ranked.max()}")
    return array


def _size(size: int, rows: int) -> int:
    if not 0 <= size <= rows:
        raise MisuseError(f"{size} rows are to be kept, but there are {rows}")
    return int(size)


def _method(method: str) -> int:
    if method not in METHODS:
        raise MisuseError(f"method must be one of {', '.join(METHODS)}, but is {method!r}")
    return METHODS[method]
