"""Problems for benchmarks."""

from __future__ import annotations

import time

import numpy as np

from lamarckian.ec import NSGA2, evolve
from lamarckian.ec.evaluator import Vectorised
from lamarckian.ec.genome import Genes
from lamarckian.ec.population import Evaluation
from lamarckian.ec.problems import ZDT1
from lamarckian.seeding import generator

SIGMA = 1.0
LATE = 20


class Sleeping(Vectorised):
    """ZDT1 of few variables, whose evaluations sleep: log-normal times (σ = 1), by a candidate's id the same in every mode.

    mean_s: of these times. stragglers: the share of candidates that take 20 times that instead. seed: of the times.
    """

    def __init__(self, variables: int = 8, mean_s: float = 0.05, stragglers: float = 0.0, seed: int = 0) -> None:
        super().__init__(ZDT1(variables))
        self._mean_s, self._stragglers, self._seed = mean_s, stragglers, seed
        evolve(ZDT1(2), NSGA2(4), 12)  # loads all kernels: a worker is ready when it will not have to any more

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """As `Evaluator.evaluate`."""
        time.sleep(sum(map(self._seconds, ids.tolist())))
        return super().evaluate(ids, values)

    def _seconds(self, id: int) -> float:
        draws = generator(self._seed, "seconds", id)
        if draws.random() < self._stragglers:
            return LATE * self._mean_s
        return self._mean_s * float(draws.lognormal(-(SIGMA**2) / 2, SIGMA))
