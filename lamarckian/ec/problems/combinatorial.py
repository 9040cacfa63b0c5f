"""Problems of choice and of order: knapsacks and a round trip, drawn from a seed."""

from __future__ import annotations

from math import pi, sin, sqrt
from typing import Literal

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome, Integer, Permutation
from lamarckian.ec.problems.base import rows, whole
from lamarckian.errors import MisuseError
from lamarckian.seeding import generator


class Knapsack:
    """The 0/1 knapsack problem of several knapsacks (Zitzler & Thiele 1999, https://doi.org/10.1109/4235.797969).

    Each of L items is in all knapsacks or in none. In each knapsack it has a profit and a weight of its own, whole numbers
    of 10 to 100; a knapsack holds half the weight of all items. Objective m, to be maximised, is the profit in knapsack m.
    The true front has no formula.

    profits, weights: float64 `[M, L]`. capacities: float64 `[M]`.
    """

    minimise = False

    def __init__(self, items: int = 100, knapsacks: int = 2, seed: int = 0) -> None:
        whole("Knapsack: items", items, 1)
        self.objectives = whole("Knapsack: knapsacks", knapsacks, 1)
        random = generator(whole("Knapsack: seed", seed, 0), "knapsack")
        self.profits, self.weights = random.integers(10, 100, (2, knapsacks, items), endpoint=True).astype(np.float64)
        self.capacities = self.weights.sum(axis=1) / 2
        self.genome = Genome({"items": Integer(0, 1, length=items)})
        self._worth = np.concatenate([self.profits, self.weights]).T.copy()

    def evaluate(self, x: Genes) -> tuple[np.ndarray, np.ndarray]:
        """Profits `[N, M]` and violation `[N]`, the weight above the capacities, of x["items"] `[N, L]`, 1 for what is packed."""
        sums = rows(self, x["items"], len(self._worth), np.float64) @ self._worth
        profit, weight = sums[:, : self.objectives], sums[:, self.objectives :]
        return np.ascontiguousarray(profit), np.maximum(weight - self.capacities, 0.0).sum(axis=1)


class TSP:
    """The travelling salesman's round trip: the shortest way through all cities and back, in the plane.

    layout: `random` places the cities in the unit square, `circle` evenly on the circle that touches its sides, in random
    order. cities: float64 `[L, 2]`. optimum: the length of the shortest round trip on the circle, a regular polygon;
    None, unknown, for `random`.
    """

    objectives = 1
    minimise = True

    def __init__(self, cities: int = 50, layout: Literal["random", "circle"] = "random", seed: int = 0) -> None:
        whole("TSP: cities", cities, 3)
        random = generator(whole("TSP: seed", seed, 0), "tsp")
        self.optimum: float | None = None
        if layout == "random":
            self.cities = random.random((cities, 2))
        elif layout == "circle":
            angle = 2 * pi / cities * random.permutation(cities)
            self.cities = 0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
            self.optimum = cities * sin(pi / cities)
        else:
            raise MisuseError(f"TSP: layout is 'random' or 'circle', not {layout!r}")
        self.genome = Genome({"tour": Permutation(cities)})

    def evaluate(self, x: Genes) -> np.ndarray:
        """The length, float64 `[N, 1]`, of each round trip of x["tour"], orders of the cities `[N, L]`."""
        tours = rows(self, x["tour"], len(self.cities), np.int64)
        if len(tours) and not 0 <= tours.min() <= tours.max() < len(self.cities):
            raise MisuseError(f"TSP: cities are numbered 0 to {len(self.cities) - 1}; a tour names {tours.min()} to {tours.max()}")
        length = np.empty((len(tours), 1))
        _lengths(self.cities, tours, length)
        return length


@njit
def _lengths(cities, tours, out):
    for n in range(len(tours)):
        total, last = 0.0, tours[n, -1]
        for city in tours[n]:
            total += sqrt((cities[city, 0] - cities[last, 0]) ** 2 + (cities[city, 1] - cities[last, 1]) ** 2)
            last = city
        out[n, 0] = total
