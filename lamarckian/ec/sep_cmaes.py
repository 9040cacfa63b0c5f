"""sep-CMA-ES: CMA-ES with a diagonal covariance, for many genes (Ros & Hansen 2008, https://doi.org/10.1007/978-3-540-87700-4_30)."""

from __future__ import annotations

from math import sqrt

import numpy as np

from lamarckian.ec.cmaes import CMAES, CONDITION, SCALES
from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.normals import normals


class SepCMAES(CMAES):
    """CMA-ES that scales genes but never rotates: all is linear in their number, and scales are learnt (L + 2) / 3 times as fast.

    population, sigma, start, active: as `CMAES`.
    """

    _state = (*CMAES._common_state, "_variances")

    def __init__(self, population: int | None = None, sigma: float = 0.3, start: list[float] | None = None, active: bool = True) -> None:
        super().__init__(population, sigma, start, active)

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `CMAES.begin`."""
        self._speed = (genome.length + 2) / 3
        super().begin(genome, objectives, seed, first)

    def _round(self) -> None:
        self._variances = np.ones(len(self._mean))

    def _scale(self) -> np.ndarray:
        return self._sigma * np.sqrt(self._variances)

    def _sample(self, ids: np.ndarray) -> None:
        self._normals = self._steps = normals(self._seed, ids, len(self._mean))

    def _averages(self, good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean_normal = good @ self._normals
        return mean_normal, mean_normal * np.sqrt(self._variances)

    def _reshape(self, decay: float, weights: np.ndarray) -> None:
        _rescale_each(self._variances, decay, weights, self._normals, self._rates.c_1, self._shape_path)
        top = self._variances.max()
        np.maximum(self._variances, top / CONDITION, out=self._variances)
        if not SCALES[0] < top < SCALES[1]:
            self._variances /= top
            self._rescale(sqrt(top))


@njit
def _rescale_each(variances: np.ndarray, decay: float, weights: np.ndarray, normals: np.ndarray, c_1: float, path: np.ndarray) -> None:
    gain = np.full(len(variances), decay)
    for row in range(len(weights)):
        for gene in range(len(variances)):
            gain[gene] += weights[row] * normals[row, gene] * normals[row, gene]
    for gene in range(len(variances)):
        variances[gene] = variances[gene] * gain[gene] + c_1 * path[gene] * path[gene]
