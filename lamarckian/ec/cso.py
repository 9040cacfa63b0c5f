"""CSO: competitive swarm optimiser (Cheng, Jin 2015, doi 10.1109/TCYB.2014.2322602), for many genes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.operators.interface import check_positive
from lamarckian.ec.population import NOBODY, Population
from lamarckian.ec.stream import STATE_WORDS, below, open_stream, uniform
from lamarckian.ec.swarm import Swarm
from lamarckian.seeding import derive


class CSO(Swarm):
    """Members compete in random pairs; the loser of each learns from the winner (equations 6 and 7), which stays as it is.

    population: members m. After the first generation, which is all of them, half of them are evaluated in each.
    phi: weight of the swarm's mean position, which draws losers, too. The paper's experiments have m = 100 and phi = 0 below 500 genes;
        250 and 0.05 to 0.1 at 500, 500 and 0.1 to 0.15 at 1,000, 1,000 and 0.2 at 2,000.

    Members are clipped to the bounds. A loser whose evaluation fails stays where it was. population: the members.
    A candidate's parents are the loser and the winner.
    """

    def __init__(self, population: int = 100, phi: float = 0.0) -> None:
        super().__init__(population)
        if phi != 0:
            check_positive("CSO: phi", phi)
        self._phi = phi

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`."""
        super().begin(genome, objectives, seed, first)
        self._pairs_seed = derive(seed, "pairs")
        self.size = self._count
        self._losers = np.empty(0, np.int64)
        self._moved = np.empty((0, genome.length))

    def propose(self, count: int) -> Proposals:
        """As `Algorithm.propose`: losers, moved; while nobody has been evaluated, members as they are. `count` is at most `size`."""
        scattered = not len(self.population)
        if scattered and self._next:
            self._members.genes.update(self._scatter())
        ids = self._number(count)
        if scattered:
            self._losers, self._moved = np.arange(count), self._velocity[:count].copy()
            return Proposals(ids, np.full((count, 2), NOBODY), {name: genes[:count].copy() for name, genes in self._members.genes.items()})
        losers, winners = self._compete(ids)
        x = self._genome.join(self._members.genes)
        mean = x.mean(axis=0) if self._phi else self._low
        moved, velocity = x[losers], self._velocity[losers]
        _learn(ids, moved, velocity, x[winners], mean, self._phi, self._low, self._high, self._moves_seed)
        self._losers, self._moved = losers, velocity
        return Proposals(ids, self._members.ids[np.stack([losers, winners], axis=1)], self._genome.split(moved))

    def tell(self, offspring: Population) -> None:
        """As `Algorithm.tell`: losers take their new places."""
        rows = self._judged(offspring)
        if not len(rows):
            return
        members = self._losers[rows]
        self._velocity[members] = self._moved[rows]
        self._replace(members, offspring, rows)
        self.size = self._count // 2

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {**super().save(), "losers": self._losers, "moved": self._moved}

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        super().load(state)
        self._losers, self._moved = state["losers"], state["moved"]
        self.size = self._count // 2 if len(self.population) else self._count

    def _compete(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losers and winners of as many pairs as there are ids."""
        ranks = self._ranks()
        order = _shuffled(self._count, self._pairs_seed, ids[0])
        a, b = order[: len(ids)], order[len(ids) : 2 * len(ids)]
        first_wins = ranks[a] < ranks[b]
        return np.where(first_wins, b, a), np.where(first_wins, a, b)


@njit
def _shuffled(count: int, seed: int, key: int) -> np.ndarray:
    state = np.empty(STATE_WORDS, np.uint64)
    open_stream(state, seed, key)
    order = np.arange(count)
    for last in range(count - 1, 0, -1):
        other = below(state, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


@njit
def _learn(
    ids: np.ndarray, x: np.ndarray, velocity: np.ndarray, winner: np.ndarray, mean: np.ndarray, phi: float,
    low: np.ndarray, high: np.ndarray, seed: int,
) -> None:  # fmt: skip
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        for gene in range(x.shape[1]):
            v = uniform(state) * velocity[row, gene] + uniform(state) * (winner[row, gene] - x[row, gene])
            if phi > 0.0:
                v += phi * uniform(state) * (mean[gene] - x[row, gene])
            velocity[row, gene] = v
            x[row, gene] = min(max(x[row, gene] + v, low[gene]), high[gene])
