"""NSGA-II (Deb, Pratap, Agarwal, Meyarivan 2002), with better ways to thin out the last front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from lamarckian.ec.genetic import Candidates, Genetic
from lamarckian.ec.mating import Mating
from lamarckian.ec.operators.variation import Variation
from lamarckian.ec.population import Population
from lamarckian.ec.ranking import METHODS, default_method
from lamarckian.ec.ranking.survival import survive_population
from lamarckian.errors import MisuseError

Truncation: TypeAlias = Literal["default", "crowding", "pcd", "mnn"]


class NSGA2(Genetic):
    """Non-dominated sorting of parents and offspring; whole fronts survive while there is room, and the last one is thinned out.

    Feasible individuals dominate infeasible ones, and among these the smaller violation does (constraint domination).

    truncation: `crowding` as published: once by crowding distance; `pcd`: crowding recomputed after each removal; `mnn`: pruning by the M
        nearest neighbours (Kukkonen, Deb 2006); `default`: pcd for two objectives, mnn for more, where a population is not so large that
        it would cost too much (see `ranking.default_method`).
    Other settings: as `Genetic`.
    """

    def __init__(
        self,
        population: int = 100,
        offspring: int | None = None,
        mating: Mating = "tournament",
        tournament: int = 2,
        operators: Mapping[str, Variation] | None = None,
        truncation: Truncation = "default",
    ) -> None:
        super().__init__(population, offspring, mating, tournament, operators)
        if truncation not in ("default", "crowding", "pcd", "mnn"):
            raise MisuseError(f"NSGA2: truncation must be default, crowding, pcd or mnn, not {truncation!r}")
        self._truncation = truncation

    def _survivors(self, of: Candidates | Population, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        method = default_method(of.fitness.shape[1], size) if self._truncation == "default" else self._truncation
        return survive_population(of.fitness, of.violation, size, METHODS[method])
