"""Who is better than whom where there is one objective."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.population import Population
from lamarckian.errors import MisuseError


def best_first(population: Population) -> np.ndarray:
    """The rows of the evaluated individuals, best first, int64; what failed is left out.

    Feasible ones come first, by fitness, then the others by their violation; the older id first among equals.
    """
    rows = np.flatnonzero(population.evaluated)
    if not len(rows):
        return rows
    check_single("this algorithm", population.objectives)
    return rows[order(population.fitness[rows, 0], population.violation[rows], population.ids[rows])]


def order(fitness: np.ndarray, violation: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The rows `[N]` of evaluated individuals, best first, by fitness `[N]`, violation `[N]` and id `[N]` as `best_first` says."""
    return np.lexsort((ids, np.where(violation > 0, 0.0, -fitness), violation))


def check_single(who: str, objectives: int | None) -> None:
    """Raises MisuseError unless there is one objective, or nobody knows yet."""
    if objectives not in (None, 1):
        raise MisuseError(f"{who} takes problems of 1 objective, and this one has {objectives}: use NSGA2")
