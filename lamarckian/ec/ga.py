"""GA: a genetic algorithm for one objective, elitist or steady state (Ishibuchi, Nojima, Doi 2006; Whitley 1989)."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.genetic import Candidates, Genetic
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.order import check_single, order
from lamarckian.ec.population import Population


class GA(Genetic):
    """The best N of parents and offspring together survive: (N + offspring)-selection. `offspring=1` makes it steady state.

    Settings: as `Genetic`.
    """

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`."""
        check_single("GA", objectives)
        super().begin(genome, objectives, seed, first)

    def _survivors(self, of: Candidates | Population, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        check_single("GA", of.fitness.shape[1])
        return order(of.fitness[:, 0], of.violation, of.ids)[:size], np.arange(size), np.zeros(size)
