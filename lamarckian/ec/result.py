"""What came of a run of evolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lamarckian.ec.evolution import Evolution
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.ec.population import Fault, Population, no_population
from lamarckian.ec.ranking import non_dominated_ranks
from lamarckian.errors import MisuseError


@dataclass(frozen=True)
class Result:
    """How a run ended.

    population: at the end, in genes. front_population: of these (with one objective: of all that ever were) the best feasible ones.
    evaluations: candidates judged, of which `failed` failed; faults: the newest of these, (id, fault).
    generations: selections. seconds: of the whole run.
    """

    population: Population
    front_population: Population
    minimise: bool
    evaluations: int
    failed: int
    faults: list[tuple[int, Fault]]
    generations: int
    seconds: float
    _express: Any

    @property
    def front(self) -> np.ndarray:
        """Objectives of the non-dominated feasible individuals, as the problem states them, float64 `[n, M]`; `[0, M]` where nobody is
        feasible. With one objective: of the best one."""
        return self.front_population.raw

    @cached_property
    def genomes(self) -> Any:
        """What stands behind `front`: `[n, L]` for a problem with bounds, else part → `[n, L]`."""
        return self._express(self.front_population.genes)

    @property
    def best(self) -> tuple[Any, float]:
        """Genome and objective of the best individual. Raises MisuseError where there are several objectives, or nobody is feasible."""
        if self.front.shape[1] > 1 or not len(self.front):
            raise MisuseError(
                f"there is no best one among {len(self.front)} feasible individuals of {self.front.shape[1]} objectives: see `front`"
            )
        genomes = self.genomes
        genome = {name: rows[0] for name, rows in genomes.items()} if isinstance(genomes, dict) else genomes[0]
        return genome, float(self.front[0, 0])

    def hypervolume(self, reference: Sequence[float]) -> float:
        """The hypervolume of `front` with respect to a point that is worse than it, as the problem states objectives."""
        return dominated(self.front, reference, self.minimise)


def front_of(evolution: Evolution) -> Population:
    """The non-dominated feasible individuals, in the order of their first objective; the best one where there is one objective."""
    single = evolution.objectives == 1
    population = evolution.best if single else evolution.population
    if evolution.objectives is None or not len(population):
        return no_population(evolution.genome, evolution.objectives)
    if single:
        return population.take(np.flatnonzero(population.violation == 0))
    ranks = non_dominated_ranks(population.fitness, population.violation)
    rows = np.flatnonzero((ranks == 0) & (population.violation == 0) & population.evaluated)
    if not len(rows):
        return population.take(rows)
    return population.take(rows[np.lexsort(population.raw[rows].T[::-1])])


def result_of(evolution: Evolution, flat: bool, seconds: float) -> Result:
    """The result of a run as it stands. flat: whether genomes are one array."""

    def express(genes: dict[str, np.ndarray]) -> Any:
        values = evolution.genome.express(genes)
        return next(iter(values.values())) if flat else values

    return Result(
        population=evolution.population,
        front_population=front_of(evolution),
        minimise=evolution.evaluator.minimise,
        evaluations=evolution.evaluations,
        failed=evolution.failed,
        faults=list(evolution.faults),
        generations=evolution.generation,
        seconds=seconds,
        _express=express,
    )


def best_value(evolution: Evolution) -> float | None:
    """The best objective so far, as the problem states it; None with several objectives, or nobody feasible yet."""
    best = evolution.best
    feasible = evolution.objectives == 1 and len(best) and best.violation[0] == 0
    return float(best.raw[0, 0]) if feasible else None


def dominated(front: np.ndarray, reference: Sequence[float] | np.ndarray, minimise: bool) -> float:
    """The hypervolume of objectives `[n, M]` as a problem states them, with respect to a point `[M]`; 0 where there are none."""
    sign = 1.0 if minimise else -1.0
    return hypervolume(sign * front, sign * np.asarray(reference, np.float64)) if len(front) else 0.0
