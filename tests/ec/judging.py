"""What a driver does with an algorithm, in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.genome import Genes
from lamarckian.ec.population import EVALUATED, FAILED, Population


def judged(proposals: Proposals, genes: Genes, fitness: Any, failed: Sequence[int] = (), violation: Any = None) -> Population:
    """Offspring of that fitness `[N]`, maximised; that of the rows in `failed` is no number."""
    count = len(proposals)
    state = np.full(count, EVALUATED, np.uint8)
    column = np.array(fitness, np.float64).reshape(count, 1)
    state[list(failed)], column[list(failed)] = FAILED, np.nan
    broken = np.zeros(count) if violation is None else np.array(violation, np.float64)
    return Population(genes, proposals.ids, proposals.parents, np.zeros(count, np.int64), state, column, -column, broken)


def minimise(algorithm: Any, function: Callable[[np.ndarray], np.ndarray], evaluations: int, failed: Sequence[int] = ()) -> float:
    """The least value of `function` of the part x that so many evaluations find. failed: rows that fail in each generation."""
    best, spent = np.inf, 0
    while spent < evaluations:
        proposals = algorithm.propose(algorithm.size)
        genes = algorithm.realise(proposals)
        values = function(genes["x"])
        best, spent = min(best, float(values.min())), spent + len(values)
        algorithm.tell(judged(proposals, genes, -values, failed))
    return best


def sphere(x: np.ndarray) -> np.ndarray:
    """Σ x², 0 at the origin."""
    return (x**2).sum(axis=1)


def rastrigin(x: np.ndarray) -> np.ndarray:
    """Σ 10 + x² − 10 cos 2πx, 0 at the origin, with a local optimum at about every grid point."""
    return (10 + x**2 - 10 * np.cos(2 * np.pi * x)).sum(axis=1)


def same(a: Any, b: Any) -> bool:
    """Whether two trees of dicts, lists, numbers, texts and arrays agree bit for bit."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.array_equal(a, b, equal_nan=isinstance(a, np.ndarray) and a.dtype.kind == "f"))
