"""CMA-ES: evolution with a normal distribution whose covariance is learnt (Hansen 2016, arXiv:1604.00772), with restarts."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.coordinates import Coordinates
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.normals import normals
from lamarckian.ec.operators.interface import check_positive
from lamarckian.ec.order import best_first, check_single
from lamarckian.ec.population import NOBODY, Population, no_population
from lamarckian.ec.restarts import Kind, Restarts, Run, Watch
from lamarckian.errors import MisuseError
from lamarckian.seeding import derive, generator

CONDITION = 1e14
"""Of the covariance: the ratio of its largest to its smallest eigenvalue is kept below."""
_NEGLIGIBLE = 1e-12  # steps, as a share of the first ones (TolX)
_DIVERGED = 1e4  # steps, as a multiple of the first ones (TolXUp)
_SIGMAS = (1e-150, 1e10)  # as multiples of the first: far from overflow in whatever is made of them
SCALES = (1e-10, 1e10)  # of the covariance; beyond, its scale is moved into sigma


@dataclass(frozen=True)
class Rates:
    """What Hansen 2016 (table 1) derives from the number of genes and the population.

    weights: `[N]`, best first, those of the better half positive with sum 1, the others negative, or 0. mu_eff: how many samples the
    positive ones are worth. c_sigma, d_sigma: of the step size. c_c, c_1, c_mu: of the covariance's path, and of its updates of rank one
    and mu. chi: the mean length of a standard normal vector. gap: generations between two decompositions.
    """

    weights: np.ndarray
    mu_eff: float
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float
    chi: float
    gap: int


def rates(length: int, population: int, active: bool = True, speed: float = 1.0) -> Rates:
    """The rates for so many genes L and a population N. active: whether bad samples count too. speed: multiplies c_1 and c_mu."""
    n = length
    raw = log((population + 1) / 2) - np.log(np.arange(1, population + 1))
    good, bad = np.maximum(raw, 0.0), np.minimum(raw, 0.0)
    mu_eff, mu_bad = (float(half.sum() ** 2 / (half**2).sum()) for half in (good, bad))
    c_1 = min(1.0, speed * 2.0 / ((n + 1.3) ** 2 + mu_eff))
    c_mu = min(1.0 - c_1, speed * 2.0 * (0.25 + mu_eff + 1.0 / mu_eff - 2.0) / ((n + 2.0) ** 2 + mu_eff))
    limits = (1.0 + c_1 / c_mu, 1.0 + 2.0 * mu_bad / (mu_eff + 2.0), (1.0 - c_1 - c_mu) / (n * c_mu)) if active else (0.0,)
    c_sigma = (mu_eff + 2.0) / (n + mu_eff + 3.0)  # 3 as in Hansen's own program, not 5: a little faster
    return Rates(
        weights=good / good.sum() - bad / bad.sum() * min(limits),
        mu_eff=mu_eff,
        c_sigma=c_sigma,
        d_sigma=1.0 + 2.0 * max(0.0, sqrt((mu_eff - 1.0) / (n + 1.0)) - 1.0) + c_sigma,
        c_c=(4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n),
        c_1=c_1,
        c_mu=c_mu,
        chi=sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n**2)),
        gap=ceil(1.0 / (10.0 * n * (c_1 + c_mu))),
    )


class CMAES:
    """Covariance matrix adaptation, for reals and networks and one objective.

    population: N; None: 4 + 3 ln L. sigma: the first step size, as a share of a gene's range; of a network, in its own units.
    start: where the first search begins, a number a gene, as the problem gets it; None: the middle of the box, zeros for a network.
    active: learn from bad samples too, where not to go. restarts: what follows a search that has converged or got stuck (see `Restarts`),
        at a random place; `none`: it goes on sampling at smaller and smaller scale, to no harm and no use.

    Bounds: see `Coordinates`. What failed counts as worst, but never draws the mean to itself. It learns from the genes that it
    proposed, even if the evaluator hands back others. A generation takes O(N L²), and its share of a decomposition.
    """

    overlaps = False
    starters = 1
    population: Population
    _speed = 1.0
    _common_state = (
        "size", "_next", "_sigma", "_first_sigma", "_mean", "_path", "_shape_path", "_age", "_used", "_budget", "_normals",
    )  # fmt: skip
    _state: tuple[str, ...] = (*_common_state, "_steps", "_covariance", "_basis", "_deviations", "_decay", "_fresh")

    def __init__(
        self,
        population: int | None = None,
        sigma: float = 0.3,
        start: list[float] | None = None,
        active: bool = True,
        restarts: Kind = "none",
    ) -> None:
        who = type(self).__name__
        if population is not None and population < 4:
            raise MisuseError(f"{who}: population must be at least 4, not {population}")
        check_positive(f"{who}: sigma", sigma)
        if restarts not in ("none", "ipop", "bipop"):
            raise MisuseError(f"{who}: restarts must be none, ipop or bipop, not {restarts!r}")
        self._population, self._sigma_setting, self._start_setting = population, sigma, start
        self._active, self._kind = active, restarts
        self.size = population or 4

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`; the first of `first` is where the search starts, unless `start` is given."""
        who = type(self).__name__
        check_single(who, objectives)
        self._genome = genome
        self._box = Coordinates(*genome.box(who))
        self._seed = derive(seed, "normals")
        self._generator = generator(seed, "restarts")
        self._next = 0
        self.population = no_population(genome)
        size = self._population or 4 + int(3 * log(genome.length))
        self._restarts = Restarts(self._kind, size)
        self._open(Run(size, 1.0, None), self._first_mean(first))

    def propose(self, count: int) -> Proposals:
        """As `Algorithm.propose`; `count` is at most `size`."""
        if not 1 <= count <= self.size:
            raise MisuseError(f"{type(self).__name__} proposes at most a generation of {self.size}, not {count}")
        ids = np.arange(self._next, self._next + count)
        self._next += count
        self._sample(ids)
        genes = self._box.genes(self._mean, self._scale(), self._steps)
        return Proposals(ids, np.full((count, 2), NOBODY), {"genes": genes})

    def realise(self, proposals: Proposals) -> Genes:
        """As `Algorithm.realise`."""
        return self._genome.split(proposals.arrays["genes"])

    def tell(self, offspring: Population) -> None:
        """As `Algorithm.tell`: moves and reshapes the distribution, and restarts where it is time."""
        if len(offspring) != len(self._normals):
            raise MisuseError(f"{type(self).__name__} learns from whole generations: {len(self._normals)} offspring, not {len(offspring)}")
        self.population = offspring
        self._used += len(offspring)
        order = best_first(offspring) if offspring.evaluated.any() else np.empty(0, np.int64)
        if len(order):
            self._learn(order)
        if self._kind == "none":
            return
        if len(order):
            violation = offspring.violation[order]
            self._watch.note(np.where(violation > 0, -violation, offspring.fitness[order, 0]))
        if (self._budget is not None and self._used >= self._budget) or self._watch.flat() or self._watch.stagnates() or self._exhausted():
            run = self._restarts.next(self._used, self._generator)
            self._open(run, self._box.of(self._genome.join(self._genome.sample(1, self._generator))[0]))

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {
            **deepcopy({name: getattr(self, name) for name in self._state}),
            "population": self.population.rows(),
            "generator": self._generator.bit_generator.state,
            "restarts": self._restarts.save(),
            "watch": self._watch.save(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        for name in self._state:
            setattr(self, name, deepcopy(state[name]))
        self.population = Population(**state["population"])
        self._generator.bit_generator.state = state["generator"]
        self._restarts.load(state["restarts"])
        self._set_size(self.size)
        self._watch.load(state["watch"])

    def _first_mean(self, first: Genes | None) -> np.ndarray:
        low, high = self._box.low, self._box.high
        genes, bounded = np.zeros(len(low)), np.isfinite(low)
        genes[bounded] = low[bounded] + (high[bounded] - low[bounded]) / 2
        if self._start_setting is not None:
            start = self._genome.individual(self._start_setting, f"{type(self).__name__}: start")
            genes = self._genome.join(start)[0]
        elif first is not None and len(self._genome.join(first)):
            genes = self._genome.join(first)[0]
        return self._box.of(genes)

    def _open(self, run: Run, mean: np.ndarray) -> None:
        """Begins a search at `mean`."""
        length = len(mean)
        self._set_size(run.population)
        self._mean = mean
        self._sigma = self._first_sigma = self._sigma_setting * run.sigma
        self._budget = run.evaluations
        self._path, self._shape_path = np.zeros(length), np.zeros(length)
        self._age = self._used = 0
        self._normals = self._steps = np.empty((0, length))
        self._round()

    def _set_size(self, size: int) -> None:
        self.size = size
        self._rates = rates(self._genome.length, size, self._active, self._speed)
        self._watch = Watch(self._genome.length, size)

    def _learn(self, order: np.ndarray) -> None:
        """One generation, told its evaluated rows, best first (Hansen 2016, figure 6)."""
        rate = self._rates
        weights = self._weigh(order)
        good = np.maximum(weights, 0.0)
        mu_eff = 1.0 / float(good @ good)
        mean_normal, mean_step = self._averages(good)
        self._age += 1
        self._mean += self._sigma * mean_step
        self._path *= 1.0 - rate.c_sigma
        self._path += sqrt(rate.c_sigma * (2.0 - rate.c_sigma) * mu_eff) * mean_normal
        length = sqrt(float(self._path @ self._path)) / rate.chi
        steady = length / sqrt(1.0 - (1.0 - rate.c_sigma) ** (2 * self._age)) < 1.4 + 2.0 / (len(self._mean) + 1.0)
        self._shape_path *= 1.0 - rate.c_c
        if steady:
            self._shape_path += sqrt(rate.c_c * (2.0 - rate.c_c) * mu_eff) * mean_step
        lost = 0.0 if steady else rate.c_c * (2.0 - rate.c_c)  # what the halted path lacks in variance
        decay = 1.0 - rate.c_1 * (1.0 - lost) - rate.c_mu * float(weights.sum())
        bad = weights < 0.0
        if bad.any():  # their lengths are made equal, so that the covariance stays positive definite
            away = self._normals[bad]
            weights[bad] *= len(self._mean) / np.einsum("ij,ij->i", away, away)
        self._reshape(decay, rate.c_mu * weights)
        self._sigma *= exp(min(1.0, (length - 1.0) * rate.c_sigma / rate.d_sigma))
        least, most = _SIGMAS
        self._sigma = min(max(self._sigma, least * self._first_sigma), most * self._first_sigma)

    def _weigh(self, order: np.ndarray) -> np.ndarray:
        """The weight of each row; what failed has the last ranks, and no positive weight."""
        ranked = self._rates.weights
        weights = np.empty(len(self._normals))
        weights[order] = ranked[: len(order)]
        failed = np.ones(len(weights), bool)
        failed[order] = False
        weights[failed] = np.minimum(ranked[len(order) : len(weights)], 0.0)
        total = weights[weights > 0.0].sum()
        weights[weights > 0.0] /= total
        return weights

    def _round(self) -> None:
        """Makes the distribution a sphere."""
        length = len(self._mean)
        self._covariance, self._basis, self._deviations = np.eye(length), np.eye(length), np.ones(length)
        self._decay = 1.0
        self._fresh: list[list[np.ndarray]] = []

    def _scale(self) -> np.ndarray:
        return np.full(len(self._mean), self._sigma)

    def _sample(self, ids: np.ndarray) -> None:
        """Draws standard normal vectors, in the basis of the covariance, and the steps that become of them."""
        self._normals = normals(self._seed, ids, len(self._mean))
        self._steps = (self._normals * self._deviations) @ self._basis.T

    def _averages(self, good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean of the good samples, weighted: as if the distribution were standard normal, and as steps."""
        return self._basis @ (good @ self._normals), good @ self._steps

    def _reshape(self, decay: float, weights: np.ndarray) -> None:
        """Notes what the covariance learns; it is worked in when it is decomposed, as nobody reads it before."""
        for entry in self._fresh:
            entry[0] *= decay
        self._decay *= decay
        self._fresh.append([np.append(weights, self._rates.c_1), np.concatenate([self._steps, self._shape_path[None]])])
        if self._age % self._rates.gap == 0:
            self._decompose()

    def _decompose(self) -> None:
        weights, steps = (np.concatenate(arrays) for arrays in zip(*self._fresh, strict=True))
        self._fresh = []
        self._covariance *= self._decay
        self._covariance += (steps.T * weights) @ steps
        self._decay = 1.0
        values, self._basis = np.linalg.eigh(self._covariance)
        lacking = values[-1] / CONDITION - values[0]
        if lacking > 0.0:
            self._covariance[np.diag_indices_from(self._covariance)] += lacking
            values = np.maximum(values + lacking, values[-1] / CONDITION)
        if not SCALES[0] < values[-1] < SCALES[1]:
            self._covariance /= values[-1]
            self._rescale(sqrt(values[-1]))
            values /= values[-1]
        self._deviations = np.sqrt(values)

    def _rescale(self, factor: float) -> None:
        self._sigma *= factor
        self._shape_path /= factor

    def _exhausted(self) -> bool:
        """Whether the distribution is too small, too large or too long to go on (Hansen 2016, appendix B.3)."""
        variances = np.diag(self._covariance)
        deviations = self._sigma * np.sqrt(variances)
        least = _NEGLIGIBLE * self._first_sigma
        if deviations.max() < least and self._sigma * np.abs(self._shape_path).max() < least:
            return True
        if self._sigma * self._deviations[-1] > _DIVERGED * self._first_sigma:
            return True
        if self._deviations[-1] ** 2 >= 0.999 * CONDITION * self._deviations[0] ** 2:
            return True
        axis = self._age % len(self._mean)
        along = 0.1 * self._sigma * self._deviations[axis] * self._basis[:, axis]
        return bool((self._mean + along == self._mean).all() or (self._mean + 0.2 * deviations == self._mean).any())
