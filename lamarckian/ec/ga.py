"""GA: a genetic algorithm for one objective, elitist or steady state (Ishibuchi, Nojima, Doi 2006; Whitley 1989)."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.genetic import Genetic
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.order import best_first, check_single
from lamarckian.ec.population import Population


class GA(Genetic):
    """The best N of parents and offspring together survive: (N + offspring)-selection. `offspring=1` makes it steady state.

    Settings: as `Genetic`.
    """

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`."""
        check_single("GA", objectives)
        super().begin(genome, objectives, seed, first)

    def _survivors(self, merged: Population, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        check_single("GA", merged.objectives)
        return best_first(merged)[:size], np.arange(size), np.zeros(size)
