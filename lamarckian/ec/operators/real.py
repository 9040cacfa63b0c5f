"""Crossover and mutation of real numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Real
from lamarckian.ec.operators.interface import check_positive, check_share
from lamarckian.ec.stream import STATE_WORDS, normal, open_stream, uniform, uniforms

_LANES = 8
"""Numbers that a processor's vectors may hold: what is a whole number of vectors has no slow rest."""


@dataclass(frozen=True)
class SBX:
    """Simulated binary crossover (Deb, Agrawal 1995), clipped to the bounds; one child of the two that it would give.

    eta: the larger, the nearer to the parents. probability: of a pair to be crossed at all, else the child is one of them.
    gene_probability: of a gene to be crossed in a pair that is. A crossed gene may come from either of the two children (per-gene swap).
    """

    eta: float = 15.0
    probability: float = 1.0
    gene_probability: float = 0.5
    name: Literal["sbx"] = "sbx"
    parts = (Real,)

    def __post_init__(self) -> None:
        check_positive("sbx: eta", self.eta)
        check_share("sbx: probability", self.probability)
        check_share("sbx: gene_probability", self.gene_probability)

    def cross(self, part: Real, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _sbx(a, b, child, part.low, part.high, self.eta, self.probability, self.gene_probability, seed, ids)
        return child


@dataclass(frozen=True)
class Polynomial:
    """Polynomial mutation within bounds (Deb, Goyal 1996). eta: the larger, the smaller the steps.

    gene_probability: of a gene to be mutated; None: one over the number of genes. The kernel skips from one mutated gene to the next.
    """

    eta: float = 20.0
    gene_probability: float | None = None
    name: Literal["polynomial"] = "polynomial"
    parts = (Real,)

    def __post_init__(self) -> None:
        check_positive("polynomial: eta", self.eta)
        check_share("polynomial: gene_probability", self.gene_probability)

    def mutate(self, part: Real, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _polynomial(genes, part.low, part.high, self.eta, share(self.gene_probability, part.length), seed, ids)


@dataclass(frozen=True)
class Gaussian:
    """Adds normal numbers and clips to the bounds. deviation: as a share of the gene's range.

    gene_probability: of a gene to be mutated; None: one over the number of genes.
    """

    deviation: float = 0.1
    gene_probability: float | None = None
    name: Literal["gaussian"] = "gaussian"
    parts = (Real,)

    def __post_init__(self) -> None:
        check_positive("gaussian: deviation", self.deviation)
        check_share("gaussian: gene_probability", self.gene_probability)

    def mutate(self, part: Real, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _gaussian(genes, part.low, part.high, self.deviation, share(self.gene_probability, part.length), seed, ids)


def share(probability: float | None, genes: int) -> float:
    """A gene's probability to be mutated, where None stands for one gene an individual on average."""
    return 1.0 / genes if probability is None else probability


@njit
def log_of_rest(probability: float) -> float:
    """log(1 − probability), as `skip` needs it."""
    return np.log1p(-probability) if probability < 1.0 else -np.inf


@njit
def skip(state: np.ndarray, rest: float, limit: int) -> int:
    """How many genes to pass over until the next that is mutated; geometric. rest: `log_of_rest` of its probability."""
    if rest == 0.0:
        return limit
    passed = np.log(1.0 - uniform(state)) / rest
    return limit if passed >= limit else int(passed)


@njit
def _squarings(power: float) -> int:
    """How many squarings raise to `power`, where it is a power of two; else −1."""
    count = int(np.log2(power))
    return count if 2.0**count == power else -1


@njit
def _raised(x: float, power: float, squarings: int) -> float:
    """x ** power for x >= 0; quicker, most of all where `power` is a power of two."""
    if squarings < 0:
        return np.exp2(power * np.log2(x))
    for _ in range(squarings):
        x *= x
    return x


@njit
def _root(x: float, power: float, squarings: int) -> float:
    """Undoes `_raised`."""
    if squarings < 0:
        return np.exp2(np.log2(x) / power)
    for _ in range(squarings):
        x = np.sqrt(x)
    return x


@njit
def _roots(values: np.ndarray, power: float, squarings: int) -> None:
    """`_root` of many values, in place; what is below 0 becomes no number, or stays as it is."""
    if squarings < 0:
        for index in range(len(values)):
            if values[index] > 0.0:
                values[index] = np.exp2(np.log2(values[index]) / power)
    for _ in range(squarings):
        for index in range(len(values)):
            values[index] = np.sqrt(values[index])


@njit
def _sbx(
    a: np.ndarray, b: np.ndarray, child: np.ndarray, low: np.ndarray, high: np.ndarray,
    eta: float, probability: float, gene_probability: float, seed: int, ids: np.ndarray,
) -> None:  # fmt: skip
    state = np.empty(STATE_WORDS, np.uint64)
    power = eta + 1.0
    squarings = _squarings(power)
    length = a.shape[1]
    padded = -(-length // _LANES) * _LANES
    draws, spread = np.zeros(padded), np.empty(padded)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        swapped = uniform(state) < 0.5
        chance = gene_probability if uniform(state) < probability else 0.0
        uniforms(state, draws[:length])
        first, second = (b[row], a[row]) if swapped else (a[row], b[row])
        made = child[row]
        for gene in range(padded):  # without branches, so that it is done for many genes at a time
            u = draws[gene] * (2.0 / chance)  # what is left of a draw below the chance is uniform again, in [0, 2)
            u = u - 1.0 if u >= 1.0 else u
            spread[gene] = 2.0 * u if u <= 0.5 else 0.5 / (1.0 - u)
        _roots(spread, power, squarings)
        for gene in range(length):
            x, y = first[gene], second[gene]
            other = 2.0 * draws[gene] >= chance  # of the two children
            half = 0.5 * (x - y) if other else 0.5 * (y - x)
            value = min(max(0.5 * (x + y) + spread[gene] * half, low[gene]), high[gene])
            made[gene] = value if draws[gene] < chance and x != y else x


@njit
def _polynomial(genes: np.ndarray, low: np.ndarray, high: np.ndarray, eta: float, probability: float, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    power = eta + 1.0
    squarings = _squarings(power)
    rest = log_of_rest(probability)
    length = genes.shape[1]
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        gene = skip(state, rest, length)
        while gene < length:
            width = high[gene] - low[gene]
            if width > 0.0:
                x = genes[row, gene]
                u = uniform(state)
                if u < 0.5:
                    beyond = _raised(1.0 - (x - low[gene]) / width, power, squarings)
                    step = _root(2.0 * u + (1.0 - 2.0 * u) * beyond, power, squarings) - 1.0
                else:
                    beyond = _raised(1.0 - (high[gene] - x) / width, power, squarings)
                    step = 1.0 - _root(2.0 * (1.0 - u) + (2.0 * u - 1.0) * beyond, power, squarings)
                genes[row, gene] = min(max(x + step * width, low[gene]), high[gene])
            gene += 1 + skip(state, rest, length)


@njit
def _gaussian(
    genes: np.ndarray, low: np.ndarray, high: np.ndarray, deviation: float, probability: float, seed: int, ids: np.ndarray
) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    rest = log_of_rest(probability)
    length = genes.shape[1]
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        gene = skip(state, rest, length)
        while gene < length:
            value = genes[row, gene] + deviation * (high[gene] - low[gene]) * normal(state)
            genes[row, gene] = min(max(value, low[gene]), high[gene])
            gene += 1 + skip(state, rest, length)
