"""OpenAI-ES: a gradient estimated from mirrored perturbations of one solution (Salimans et al. 2017, arXiv:1703.03864)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lamarckian.ec import noise
from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.ascent import SGD, Adam
from lamarckian.ec.genome import Genes, Genome, Network
from lamarckian.ec.operators.interface import check_positive
from lamarckian.ec.order import check_single
from lamarckian.ec.population import NOBODY, Population, no_population
from lamarckian.errors import MisuseError
from lamarckian.seeding import generator


class OpenAIES:
    """One solution climbs along the gradient that pairs of perturbations ± deviation · noise show, by centred ranks of their fitness.

    Genes are reals and networks. A bounded real is moved in units of its range, measured from the middle; a network's parameter as it is.
    Perturbed reals and the solution are clipped to the bounds.

    population: candidates of a generation, an even number. deviation, learning_rate: as a share of a real's range; absolute in networks.
    momentum: of SGD. weight_decay: decoupled (Loshchilov, Hutter 2019): each step draws the solution by learning_rate · weight_decay of
        itself to zero, and reals to the middle of their range.
    start: the solution to start from, as the problem sees it, all parts one behind the other. None: the first of `first`; without one,
        the middle of reals, a random network.
    table_size: numbers in the table of noise (4 bytes each), which each process holds; None: see `noise.table_size`.

    Candidates travel as a place in the table and a sign. A pair of which a candidate failed is left out of the step. Where no pair is left,
    or all are equally fit, nothing has been learnt: no step is made.

    centre: the solution, a row of genes. population: the last offspring. Its genes are not saved but made anew by `load`; what an evaluator
    changed in them is lost then.
    """

    starters = 1
    overlaps = False

    def __init__(
        self,
        population: int = 256,
        deviation: float = 0.02,
        learning_rate: float = 0.01,
        optimiser: Literal["adam", "sgd"] = "adam",
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        start: list[float] | None = None,
        table_size: int | None = None,
    ) -> None:
        if population < 2 or population % 2:
            raise MisuseError(f"OpenAIES: population must be even, as candidates come in pairs, and at least 2, not {population}")
        check_positive("OpenAIES: deviation", deviation)
        check_positive("OpenAIES: learning_rate", learning_rate)
        if optimiser not in ("adam", "sgd"):
            raise MisuseError(f"OpenAIES: optimiser must be 'adam' or 'sgd', not {optimiser!r}")
        if not 0 <= momentum < 1:
            raise MisuseError(f"OpenAIES: momentum must be in [0, 1), not {momentum}")
        if not 0 <= weight_decay * learning_rate < 1:
            raise MisuseError(f"OpenAIES: weight_decay must be at least 0 and below 1 / learning_rate, not {weight_decay}")
        if table_size is not None and table_size < 1:
            raise MisuseError(f"OpenAIES: table_size must be at least 1, not {table_size}")
        self.size = population
        self._deviation = deviation
        self._learning_rate = learning_rate
        self._optimiser_name = optimiser
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._start = start
        self._table_size = table_size

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`; of `first`, the first individual is the solution to start from, unless the settings name one."""
        check_single("OpenAIES", objectives)
        low, high = genome.box("OpenAIES")
        if self._table_size is not None and self._table_size < 2 * genome.length:
            least = 2 * genome.length
            raise MisuseError(f"OpenAIES: table_size must be at least {least}, two numbers a gene, or left out, not {self._table_size}")
        bounded = np.isfinite(low)
        self._genome, self._seed = genome, seed
        self._low, self._high = low, high
        self._width, self._middle, self._reach = np.ones(len(low)), np.zeros(len(low)), np.full(len(low), np.inf)
        self._width[bounded] = high[bounded] - low[bounded]
        self._middle[bounded] = (low[bounded] + high[bounded]) / 2
        self._reach[bounded] = 0.5
        self._spreads = genome.split((self._deviation * self._width)[None])
        self._lows, self._highs = genome.split(low[None]), genome.split(high[None])
        self._noise = noise.table(self._table_size or noise.table_size(genome.length))
        self._memory = noise.Memory()
        self._optimiser = self._make_optimiser(genome.length)
        self._gradient = np.empty(genome.length, np.float32)
        x = genome.join(self._first(first))[0]
        self._position = (x - self._middle) / np.where(self._width > 0, self._width, 1.0)
        self._settle()
        self._previous = self.centre
        self._next = self._generation = self._told = self._version = 0
        self.population = no_population(genome)

    def propose(self, count: int) -> Proposals:
        """As `Algorithm.propose`; + and − of a pair are neighbours."""
        self._generation += 1
        ids = np.arange(self._next, self._next + count)
        self._next += count
        return self._candidates(ids, self._generation, self.centre, self._version)

    def realise(self, proposals: Proposals) -> Genes:
        """As `Algorithm.realise`."""
        places, signs = proposals.arrays["place"], proposals.arrays["sign"]
        genes, start = {}, 0
        for name, part in self._genome.parts.items():
            genes[name] = self._memory.take((len(proposals), part.length), part.dtype)
            spread, low, high = (rows[name][0] for rows in (self._spreads, self._lows, self._highs))
            centre = proposals.shared[name]
            noise.perturb(self._noise, places + start, signs.astype(part.dtype), centre, spread, low, high, genes[name])
            start += part.length
        return genes

    def tell(self, offspring: Population) -> None:
        """As `Algorithm.tell`: a step of the optimiser."""
        check_single("OpenAIES", offspring.objectives or None)
        self.population, self._previous, self._told = offspring, self.centre, self._generation
        pairs = np.flatnonzero(offspring.evaluated[:-1:2] & offspring.evaluated[1::2])
        if not len(pairs):
            return
        rows = np.concatenate([2 * pairs, 2 * pairs + 1])
        ranks = centred_ranks(offspring.fitness[rows, 0], offspring.violation[rows])
        weights = ranks[: len(pairs)] - ranks[len(pairs) :]
        if not weights.any():
            return
        places = self._places(self._generation, len(offspring))[pairs]
        noise.weighted_sum(self._noise, places, weights / (len(rows) * self._deviation), self._gradient)
        if self._weight_decay:
            self._position *= 1 - self._learning_rate * self._weight_decay
        self._position += self._optimiser.step(self._gradient)
        self._settle()
        self._version += 1

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {
            "next": self._next,
            "generation": self._generation,
            "told": self._told,
            "version": self._version,
            "position": self._position.copy(),
            "optimiser": self._optimiser.save(),
            "previous": self._previous,
            "population": {name: column for name, column in self.population.rows().items() if name != "genes"},
        }

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        self._next, self._generation, self._told, self._version = (state[key] for key in ("next", "generation", "told", "version"))
        self._position = state["position"].copy()
        self._settle()
        self._optimiser.load(state["optimiser"])
        self._previous = state["previous"]
        columns = state["population"]
        self.population = Population(self.realise(self._candidates(columns["ids"], self._told, self._previous, 0)), **columns)

    def _make_optimiser(self, length: int) -> Adam | SGD:
        if self._optimiser_name == "adam":
            return Adam(self._learning_rate, length)
        return SGD(self._learning_rate, self._momentum, length)

    def _first(self, first: Genes | None) -> Genes:
        genome = self._genome
        if self._start is not None:
            return genome.individual(self._start, "OpenAIES: start")
        if first is not None and len(next(iter(first.values()))):
            return {name: rows[:1] for name, rows in first.items()}
        middle = genome.split(self._middle[None])
        sampled = genome.sample(1, generator(self._seed, "first"))
        return {name: sampled[name] if isinstance(part, Network) else middle[name] for name, part in genome.parts.items()}

    def _settle(self) -> None:
        """Keeps the position within the bounds and makes the centre of it."""
        np.clip(self._position, -self._reach, self._reach, out=self._position)
        x = self._middle + self._width * self._position
        self.centre = self._genome.split(np.clip(x, self._low, self._high, out=x)[None])

    def _places(self, generation: int, count: int) -> np.ndarray:
        """Where the noise of each pair begins, of `count` candidates."""
        last = len(self._noise) - self._genome.length
        return generator(self._seed, "places", generation).integers(0, last, (count + 1) // 2, endpoint=True)

    def _candidates(self, ids: np.ndarray, generation: int, centre: Genes, version: int) -> Proposals:
        count = len(ids)
        arrays = {
            "place": np.repeat(self._places(generation, count), 2)[:count],
            "sign": np.resize(np.array([1, -1], np.int8), count),
        }
        shared = {name: rows[0] for name, rows in centre.items()}
        return Proposals(ids, np.full((count, 2), NOBODY), arrays, shared, version)


def centred_ranks(fitness: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """Ranks `[N]` from −0.5 (worst) to 0.5 (best); equals share the mean of theirs. fitness, violation `[N]`, N ≥ 2.

    Feasible ones come first, by fitness, then the others by their violation.
    """
    fitness = np.where(violation > 0, 0.0, fitness)
    worst_first = np.lexsort((fitness, -violation))
    fitness, violation = fitness[worst_first], violation[worst_first]
    group = np.concatenate([[0], np.cumsum((fitness[1:] != fitness[:-1]) | (violation[1:] != violation[:-1]))])
    sizes = np.bincount(group)
    ranks = np.empty(len(fitness))
    ranks[worst_first] = (np.cumsum(sizes) - (sizes + 1) / 2)[group]
    return ranks / (len(fitness) - 1) - 0.5
