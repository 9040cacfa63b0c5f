"""Crossover and mutation of whole numbers and categories. The crossovers take genes as they are, and so work on reals too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Categorical, Integer, Real
from lamarckian.ec.operators.interface import check_share
from lamarckian.ec.operators.real import log_of_rest, share, skip
from lamarckian.ec.stream import STATE_WORDS, below, open_stream, uniform
from lamarckian.errors import MisuseError


@dataclass(frozen=True)
class UniformCrossover:
    """Every gene from either parent (Syswerda 1989). swap: probability of a gene to come from the second, less fit one."""

    swap: float = 0.5
    name: Literal["uniform"] = "uniform"
    parts = (Real, Integer, Categorical)

    def __post_init__(self) -> None:
        check_share("uniform: swap", self.swap)

    def cross(self, part: Real | Integer, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _uniform(a, b, child, self.swap, seed, ids)
        return child


@dataclass(frozen=True)
class Points:
    """Stretches of genes from either parent in turn (De Jong 1975). points: where it changes over, at most between all genes.

    All sets of points are equally likely; either parent may give the first stretch.
    """

    points: int = 2
    name: Literal["points"] = "points"
    parts = (Real, Integer, Categorical)

    def __post_init__(self) -> None:
        if self.points < 1:
            raise MisuseError(f"points: points must be at least 1, not {self.points}")

    def cross(self, part: Real | Integer, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _points(a, b, child, self.points, seed, ids)
        return child


@dataclass(frozen=True)
class Reset:
    """Another value instead, all equally likely; a flip, where there are two.

    gene_probability: of a gene to be mutated; None: one over the number of genes.
    """

    gene_probability: float | None = None
    name: Literal["reset"] = "reset"
    parts = (Integer, Categorical)

    def __post_init__(self) -> None:
        check_share("reset: gene_probability", self.gene_probability)

    def mutate(self, part: Integer, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        everything = int((part.high - part.low).max())
        _other(genes, part.low, part.high, everything, share(self.gene_probability, part.length), seed, ids)


@dataclass(frozen=True)
class Creep:
    """Another value at most `step` away and within the bounds, all equally likely.

    gene_probability: of a gene to be mutated; None: one over the number of genes.
    """

    step: int = 1
    gene_probability: float | None = None
    name: Literal["creep"] = "creep"
    parts = (Integer,)

    def __post_init__(self) -> None:
        if self.step < 1:
            raise MisuseError(f"creep: step must be at least 1, not {self.step}")
        check_share("creep: gene_probability", self.gene_probability)

    def mutate(self, part: Integer, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _other(genes, part.low, part.high, self.step, share(self.gene_probability, part.length), seed, ids)


@njit
def _uniform(a: np.ndarray, b: np.ndarray, child: np.ndarray, swap: float, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        for gene in range(a.shape[1]):
            child[row, gene] = b[row, gene] if uniform(state) < swap else a[row, gene]


@njit
def _points(a: np.ndarray, b: np.ndarray, child: np.ndarray, points: int, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    length = a.shape[1]
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        second = uniform(state) < 0.5
        left = points
        for gene in range(length):
            if gene > 0 and below(state, length - gene) < left:  # of the gaps that are left, so many are points
                second, left = not second, left - 1
            child[row, gene] = b[row, gene] if second else a[row, gene]


@njit
def _other(genes: np.ndarray, low: np.ndarray, high: np.ndarray, step: int, probability: float, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    rest = log_of_rest(probability)
    length = genes.shape[1]
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        gene = skip(state, rest, length)
        while gene < length:
            old = genes[row, gene]
            bottom, top = max(old - step, low[gene]), min(old + step, high[gene])
            if bottom < top:
                new = bottom + below(state, top - bottom)
                genes[row, gene] = new + 1 if new >= old else new
            gene += 1 + skip(state, rest, length)
