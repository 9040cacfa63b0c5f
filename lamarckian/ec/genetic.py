"""What GA and NSGA-II have in common: mating, variation, and survival of some of parents and offspring together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.genome import Genes, Genome, Network, Real
from lamarckian.ec.mating import Mating, check_mating, mate
from lamarckian.ec.operators.variation import Breeder, Variation
from lamarckian.ec.population import NOBODY, Population, choose, no_population
from lamarckian.errors import MisuseError
from lamarckian.seeding import derive, generator

_FRESH, _A, _B = "fresh.", "a.", "b."


class Candidates(NamedTuple):
    """What selection looks at, a row an individual; see `Population`. All are evaluated."""

    fitness: np.ndarray
    violation: np.ndarray
    ids: np.ndarray


class Genetic(ABC):
    """A genetic algorithm but for its selection. Subclasses say who survives.

    population: individuals N. offspring: of a generation; None: N; 1 makes it steady state.
    mating: see `lamarckian.ec.mating`. tournament: entrants; 2 is customary.
    operators: part of the genome → its crossover and mutation, where they are not the default of that kind of part.
    """

    overlaps = True

    def __init__(
        self,
        population: int = 100,
        offspring: int | None = None,
        mating: Mating = "tournament",
        tournament: int = 2,
        operators: Mapping[str, Variation] | None = None,
    ) -> None:
        who = type(self).__name__
        for name, value in (("population", population), ("tournament", tournament), ("offspring", offspring)):
            if not isinstance(value, int | None):
                raise MisuseError(f"{who}: {name} must be a whole number, not {value!r}")
        if population < 2:
            raise MisuseError(f"{who}: population must be at least 2, a pair to mate, not {population}")
        if offspring is not None and offspring < 1:
            raise MisuseError(f"{who}: offspring must be at least 1, not {offspring}")
        check_mating(mating, tournament)
        self._capacity = population
        self._offspring = offspring or population
        self._mating: Mating = mating
        self._tournament = tournament
        self._operators = dict(operators or {})

    @property
    def size(self) -> int:
        """Offspring of the next generation; the first one is the whole population."""
        return self._offspring if len(self.population) else self._capacity

    @property
    def starters(self) -> int:
        """As `Algorithm.starters`: the population."""
        return self._capacity

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`; of `first`, what is beyond the population is left out, and what lacks is sampled."""
        self._genome = genome
        self._seed = seed
        self._mating_seed = derive(seed, "mating")
        self._breeder = Breeder(genome, self._operators, derive(seed, "variation"))
        self._next = 0
        self._first: Genes = first or {}
        self._fresh: Genes | None = None
        self._countable = not any(isinstance(part, Real | Network) for part in genome.parts.values())
        self.population = no_population(genome, objectives)
        self._rank, self._crowding = np.empty(0, np.int64), np.empty(0)

    def propose(self, count: int) -> Proposals:
        """As `Algorithm.propose`: pairs of parents; fresh individuals first, a population of them, and as long as there are no parents."""
        ids = np.arange(self._next, self._next + count)
        self._next += count
        population = self.population
        if ids[0] < self._capacity or not len(population):
            fresh = self._take_fresh(ids)
            return Proposals(ids, np.full((count, 2), NOBODY), {_FRESH + name: rows for name, rows in fresh.items()})
        pairs = mate(self._mating, self._tournament, self._mating_seed, ids, self._rank, self._crowding, population.age, population.fitness)
        a, b = pairs[:, 0], pairs[:, 1]
        arrays = {_A + name: rows.take(a, axis=0) for name, rows in population.genes.items()}
        arrays |= {_B + name: rows.take(b, axis=0) for name, rows in population.genes.items()}
        return Proposals(ids, population.ids.take(pairs), arrays)

    def realise(self, proposals: Proposals) -> Genes:
        """As `Algorithm.realise`: crosses and mutates."""
        arrays = proposals.arrays
        parts = self._genome.parts
        if _FRESH + next(iter(parts)) in arrays:
            return {name: arrays[_FRESH + name] for name in parts}
        mothers, fathers = {name: arrays[_A + name] for name in parts}, {name: arrays[_B + name] for name in parts}
        return self._breeder.children(mothers, fathers, proposals.ids)

    def tell(self, offspring: Population) -> None:
        """As `Algorithm.tell`: the best of parents and offspring stay.

        Of genomes without real numbers, where copies are common, one that is there already is not taken in again.
        """
        if not offspring.evaluated.all():
            offspring = offspring.take(np.flatnonzero(offspring.evaluated))
        if self._countable:
            offspring = self._without_copies(offspring)
        if not len(offspring):
            return
        parents = self.population
        if not len(parents):
            rows, self._rank, self._crowding = self._survivors(offspring, min(self._capacity, len(offspring)))
            self.population = offspring.take(rows)
            return
        both = Candidates(*(np.concatenate([getattr(parents, name), getattr(offspring, name)]) for name in Candidates._fields))
        rows, self._rank, self._crowding = self._survivors(both, min(self._capacity, len(both.ids)))
        self.population = choose(parents, offspring, rows)
        self.population.age += rows < len(parents)

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {"next": self._next, "population": self.population.rows(), "rank": self._rank, "crowding": self._crowding}

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        self._next = state["next"]
        self.population = Population(**state["population"])
        self._rank, self._crowding = state["rank"], state["crowding"]

    @abstractmethod
    def _survivors(self, of: Candidates | Population, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that stay, at most `size`, and of each of those its rank (0 is best) and how much room it has."""

    def _take_fresh(self, ids: np.ndarray) -> Genes:
        """The first generation; when it was not enough, or all of it failed, new random individuals, by their ids."""
        fresh = self._fresh
        if fresh is None:  # not in `begin`, which every worker calls
            fresh = self._fresh = self._genome.sample(self._capacity, generator(self._seed, "first"))
            for name, rows in self._first.items():
                fresh[name][: len(rows)] = rows[: self._capacity]
        prepared = ids[ids < self._capacity]
        if len(prepared) == len(ids):
            return {name: rows[ids] for name, rows in fresh.items()}
        more = [self._genome.sample(1, generator(self._seed, "fresh", int(id))) for id in ids[len(prepared) :]]
        return {name: np.concatenate([rows[prepared], *(one[name] for one in more)]) for name, rows in fresh.items()}

    def _without_copies(self, offspring: Population) -> Population:
        """Those whose genes nobody has yet, neither in the population nor among the offspring before them."""
        known, new = set(_keys(self.population.genes)), []
        for row, key in enumerate(_keys(offspring.genes)):
            if key not in known:
                known.add(key)
                new.append(row)
        return offspring if len(new) == len(offspring) else offspring.take(np.array(new, np.int64))


def _keys(genes: Genes) -> list[bytes]:
    """The genes of each individual, comparable."""
    rows = np.concatenate(list(genes.values()), axis=1)
    return [row.tobytes() for row in rows]
