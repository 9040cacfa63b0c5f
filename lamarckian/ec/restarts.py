"""When a search is over, and how the next one begins: IPOP (Auger & Hansen 2005) and BIPOP (Hansen 2009)."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

Kind: TypeAlias = Literal["none", "ipop", "bipop"]

DOUBLINGS = 10
"""More than that the population is never doubled, so that a plateau, which ends every search early, cannot fill the memory."""
_TOLERANCE = 1e-12
_HISTORY = 20_000
_REST = 20  # generations between two looks at the whole history


class Run(NamedTuple):
    """A search to be started. population: N. sigma: as a multiple of the first one's. evaluations: after which it ends anyway, if any."""

    population: int
    sigma: float
    evaluations: int | None


class Restarts:
    """Which search follows.

    IPOP doubles the population each time. BIPOP has two regimes and goes on with the one that has used fewer evaluations: the large one
    doubles the population; the small one draws a population between the first one and half the large one, and a smaller step size, and
    ends after half the evaluations of the last large search. The first search belongs to neither.
    """

    def __init__(self, kind: Kind, population: int) -> None:
        self.kind = kind
        self.first = population
        self.doublings = 0
        self.regime = "first"
        self.used = {"first": 0, "large": 0, "small": 0}
        self.last_large = 0

    def next(self, evaluations: int, generator: np.random.Generator) -> Run:
        """The next search, where the last one has used so many evaluations."""
        self.used[self.regime] += evaluations
        if self.regime == "large":
            self.last_large = evaluations
        if self.kind == "bipop" and self.used["small"] < self.used["large"]:
            self.regime = "small"
            share, shrink = generator.random(2)
            population = int(self.first * (0.5 * 2**self.doublings) ** share**2)
            return Run(population, 10 ** (-2 * shrink), self.last_large // 2)
        self.regime = "large"
        self.doublings = min(self.doublings + 1, DOUBLINGS)
        return Run(self.first * 2**self.doublings, 1.0, None)

    def save(self) -> dict[str, Any]:
        """All that changes."""
        return {"doublings": self.doublings, "regime": self.regime, "used": dict(self.used), "last_large": self.last_large}

    def load(self, state: dict[str, Any]) -> None:
        """Undoes `save`."""
        self.doublings, self.regime, self.last_large = state["doublings"], state["regime"], state["last_large"]
        self.used = dict(state["used"])


class Watch:
    """Looks at the fitness of a search's generations (Hansen 2016, appendix B.3).

    length: genes. population: N. Fitness is maximised; it may be infinite, then it says nothing.
    """

    def __init__(self, length: int, population: int) -> None:
        self._recent = 10 + ceil(30 * length / population)
        self._least = ceil(120 + 30 * length / population)
        self.generations = 0
        self.best: list[float] = []
        self.median: list[float] = []
        self._worst = -np.inf

    def note(self, fitness: np.ndarray) -> None:
        """Takes a generation's fitness `[N]`, N > 0, best first."""
        self.generations += 1
        self.best.append(float(fitness[0]))
        self.median.append(float(fitness[len(fitness) // 2]))
        self._worst = float(fitness[-1])
        if len(self.best) > _HISTORY:
            del self.best[0], self.median[0]

    def flat(self) -> bool:
        """Whether the last generation, and the best of the last ones, are all but the same (TolFun)."""
        recent = self.best[-self._recent :]
        if len(recent) < self._recent:
            return False
        top = max(recent)
        tolerance = max(_TOLERANCE, 4 * float(np.spacing(abs(top)))) if np.isfinite(top) else _TOLERANCE
        return top - min(*recent, self._worst) <= tolerance

    def stagnates(self) -> bool:
        """Whether neither best nor median got better within the last fifth of the generations (Stagnation)."""
        if self.generations < self._least or self.generations % _REST:
            return False
        window = min(max(self._least, self.generations // 5), len(self.best))
        part = max(1, window * 3 // 10)
        histories = (self.best[-window:], self.median[-window:])
        return all(bool(np.median(history[-part:]) <= np.median(history[:part])) for history in histories)

    def save(self) -> dict[str, Any]:
        """All that changes."""
        return {"generations": self.generations, "best": list(self.best), "median": list(self.median), "worst": self._worst}

    def load(self, state: dict[str, Any]) -> None:
        """Undoes `save`."""
        self.generations, self._worst = state["generations"], state["worst"]
        self.best, self.median = list(state["best"]), list(state["median"])
