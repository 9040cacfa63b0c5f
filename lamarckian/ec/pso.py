"""PSO: particle swarm optimisation with constriction (Clerc, Kennedy 2002, doi 10.1109/4235.985692)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.operators.interface import check_positive
from lamarckian.ec.population import NOBODY, Population
from lamarckian.ec.stream import STATE_WORDS, open_stream, uniform
from lamarckian.ec.swarm import Swarm
from lamarckian.errors import MisuseError
from lamarckian.seeding import generator

_REBOUND = -0.5  # of the velocity at a bound, as in SPSO 2011 (Clerc 2012, section 3.4)


class PSO(Swarm):
    """Particles fly, drawn to the best place that each has seen and to the best that its neighbours have.

    population: particles. inertia, cognitive, social: weights of the old velocity and of the two attractions. The defaults are the
        constriction 0.72984 and 2.05 times it, with which a swarm comes to rest (Clerc, Kennedy 2002).
    topology: whose best a particle knows: `global`: everybody's; `ring`: its own and that of the particle on either side, which is slower,
        but less easily misled where evaluations are plenty (Bratton, Kennedy 2007).
    max_velocity: a step's greatest length in a gene, as a share of its range; None: any.

    A particle that would leave the box stops at the bound, and half its velocity there is turned back. One whose evaluation failed
    flies on, and that place is forgotten. population: the best place that each particle has seen. A candidate's parents are the best
    places that drew it, its own and a neighbour's.
    """

    def __init__(
        self,
        population: int = 40,
        inertia: float = 0.72984,
        cognitive: float = 1.496172,
        social: float = 1.496172,
        topology: Literal["global", "ring"] = "global",
        max_velocity: float | None = None,
    ) -> None:
        super().__init__(population)
        if not 0 <= inertia < 1:
            raise MisuseError(f"PSO: inertia must be in [0, 1), or velocities never fade, not {inertia}")
        check_positive("PSO: cognitive", cognitive)
        check_positive("PSO: social", social)
        if topology not in ("global", "ring"):
            raise MisuseError(f"PSO: topology must be 'global' or 'ring', not {topology!r}")
        if max_velocity is not None:
            check_positive("PSO: max_velocity", max_velocity)
        self._weights = inertia, cognitive, social
        self._topology = topology
        self._max_velocity = max_velocity

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """As `Algorithm.begin`. A particle's first velocity is half the way to a random place."""
        super().begin(genome, objectives, seed, first)
        own = np.arange(self._count)
        self._ring = np.stack([own, (own - 1) % self._count, (own + 1) % self._count])
        self._limit = np.full(genome.length, np.inf) if self._max_velocity is None else self._max_velocity * (self._high - self._low)
        self._position = genome.join(self._members.genes).copy()
        elsewhere = genome.join(genome.sample(self._count, generator(seed, "velocity")))
        self._velocity = np.clip((elsewhere - self._position) / 2, -self._limit, self._limit)

    def propose(self, count: int) -> Proposals:
        """As `Algorithm.propose`: the particles move; at first they are proposed where they are. `count` is at most the population."""
        ids = self._number(count)
        particles = ids % self._count
        informers = self._informers()[particles]
        moving = ids >= self._count
        _fly(
            ids[moving], particles[moving], informers[moving], self._position, self._velocity, self._genome.join(self._members.genes),
            self._low, self._high, self._limit, *self._weights, self._moves_seed,
        )  # fmt: skip
        parents = np.where(moving[:, None], self._members.ids[np.stack([particles, informers], axis=1)], NOBODY)
        return Proposals(ids, parents, self._genome.split(self._position[particles]))

    def tell(self, offspring: Population) -> None:
        """As `Algorithm.tell`: particles remember the better places."""
        rows = self._judged(offspring)
        if not len(rows):
            return
        particles = offspring.ids[rows] % self._count
        held = self._members
        violation, before = offspring.violation[rows], held.violation[particles]
        better = (violation < before) | ((violation == 0) & (before == 0) & (offspring.fitness[rows, 0] > held.fitness[particles, 0]))
        better |= ~held.evaluated[particles]
        self._replace(particles[better], offspring, rows[better])

    def save(self) -> dict[str, Any]:
        """As `Algorithm.save`."""
        return {**super().save(), "position": self._position.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """As `Algorithm.load`."""
        super().load(state)
        self._position = state["position"].copy()

    def _informers(self) -> np.ndarray:
        """Of each particle, the one whose best place it knows, int64 `[N]`; itself where no neighbour has any."""
        ranks = self._ranks()
        own = self._ring[0]
        if self._topology == "global":
            best = int(np.argmin(ranks))
            return np.full(self._count, best) if ranks[best] < self._count else own
        return self._ring[np.argmin(ranks[self._ring], axis=0), own]


@njit
def _fly(
    ids: np.ndarray, particles: np.ndarray, informers: np.ndarray, position: np.ndarray, velocity: np.ndarray, best: np.ndarray,
    low: np.ndarray, high: np.ndarray, limit: np.ndarray, inertia: float, cognitive: float, social: float, seed: int,
) -> None:  # fmt: skip
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        particle, informer = particles[row], informers[row]
        for gene in range(position.shape[1]):
            x = position[particle, gene]
            v = inertia * velocity[particle, gene]
            v += cognitive * uniform(state) * (best[particle, gene] - x)
            v += social * uniform(state) * (best[informer, gene] - x)
            v = min(max(v, -limit[gene]), limit[gene])
            x += v
            inside = min(max(x, low[gene]), high[gene])
            position[particle, gene] = inside
            velocity[particle, gene] = v if x == inside else _REBOUND * v
