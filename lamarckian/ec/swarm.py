"""What swarms have in common: members in a box, with velocities, each with a solution of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.genome import Genes, Genome, Network
from lamarckian.ec.order import best_first, check_single
from lamarckian.ec.population import NOBODY, PENDING, Population
from lamarckian.errors import MisuseError
from lamarckian.seeding import derive, generator


class Swarm:
    """A swarm but for its motion, for one objective and bounded reals. Its proposals are genes.

    population: of the members those that have a solution; none at first.
    """

    overlaps = False

    def __init__(self, population: int) -> None:
        if population < 2:
            raise MisuseError(f"{type(self).__name__}: population must be at least 2, for nobody can learn from himself, not {population}")
        self._count = self.starters = self.size = population

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`; of `first`, what is beyond the population is left out, and what lacks is sampled."""
        who = type(self).__name__
        check_single(who, objectives)
        self._low, self._high = genome.box(who)
        for name, part in genome.parts.items():
            if isinstance(part, Network):
                raise MisuseError(f"{who} moves between bounds, and part '{name}', a Network, has none: use OpenAIES or SepCMAES")
        self._genome, self._seed = genome, seed
        self._moves_seed = derive(seed, "moves")
        self._next = 0
        genes = self._scatter()
        for name, rows in (first or {}).items():
            genes[name][: len(rows)] = rows[: self._count]
        self._members = _unjudged(genes)
        self._velocity = np.zeros((self._count, genome.length))
        self._settle()

    def realise(self, proposals: Proposals) -> Genes:
        """As `Algorithm.realise`: they are genes."""
        return dict(proposals.arrays)

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {"next": self._next, "velocity": self._velocity.copy(), "members": self._members.take(np.arange(self._count)).rows()}

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        self._next = state["next"]
        self._velocity = state["velocity"].copy()
        self._members = Population(**state["members"]).take(np.arange(self._count))
        self._settle()

    def _scatter(self) -> Genes:
        """Random genes of the whole swarm."""
        return self._genome.sample(self._count, generator(self._seed, "first", self._next))

    def _number(self, count: int) -> np.ndarray:
        """The ids of the next candidates."""
        ids = np.arange(self._next, self._next + count)
        self._next += count
        return ids

    def _ranks(self) -> np.ndarray:
        """Of each member, how many are better, int64 `[N]`; N where it has no solution."""
        ranks = np.full(self._count, self._count)
        order = best_first(self._members)
        ranks[order] = np.arange(len(order))
        return ranks

    def _judged(self, offspring: Population) -> np.ndarray:
        """The rows of the offspring that were evaluated."""
        check_single(type(self).__name__, offspring.objectives or None)
        return np.flatnonzero(offspring.evaluated)

    def _replace(self, members: np.ndarray, offspring: Population, rows: np.ndarray) -> None:
        """Gives `members` what the same number of `rows` of the offspring have; the others have survived."""
        held, new = self._members.rows(), offspring.rows()
        self._members.age += 1
        for name, genes in held.pop("genes").items():
            genes[members] = new["genes"][name][rows]
        for name, column in held.items():
            column[members] = new[name][rows]
        self._settle()

    def _settle(self) -> None:
        """Makes the population of the members; a copy, for members change in place."""
        self.population = self._members.take(np.flatnonzero(self._members.evaluated))


def _unjudged(genes: Genes) -> Population:
    count = len(next(iter(genes.values())))
    return Population(
        genes=genes,
        ids=np.full(count, NOBODY),
        parents=np.full((count, 2), NOBODY),
        age=np.zeros(count, np.int64),
        state=np.full(count, PENDING, np.uint8),
        fitness=np.full((count, 1), np.nan),
        raw=np.full((count, 1), np.nan),
        violation=np.zeros(count),
    )
