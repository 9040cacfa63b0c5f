"""Populations and evaluations: sets of arrays, a row an individual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome

PENDING, EVALUATED, FAILED = range(3)
"""States of an individual."""
NOBODY = -1
"""In place of the id of a parent that an individual does not have."""


class Fault(NamedTuple):
    """Why a candidate could not be judged.

    kind: `numbers`: its objectives are not finite; `raised`: an exception, or an exit code that says failure; `timeout`: it took too long;
        `died`: so did the process that judged it.
    """

    kind: Literal["numbers", "raised", "timeout", "died"]
    message: str


@dataclass
class Evaluation:
    """What an evaluator says of N candidates.

    raw: float64 `[N, M]`, objectives as the problem states them. violation: float64 `[N]`, of the constraints; 0 is feasible.
    faults: of those that failed, by row; whatever stands in the other arrays for them means nothing.
    genes: where the evaluator changed them, as training does, the genes as they are now, to be inherited.
    """

    raw: np.ndarray
    violation: np.ndarray
    faults: dict[int, Fault] = field(default_factory=dict)
    genes: Genes | None = None

    def take(self, rows: Sequence[int]) -> Evaluation:
        """A copy of these rows, without changed genes."""
        faults = {place: self.faults[row] for place, row in enumerate(rows) if row in self.faults}
        return Evaluation(self.raw[rows], self.violation[rows], faults)


@dataclass
class Population:
    """Individuals, a row each.

    genes: part → `[N, L]`. ids: int64 `[N]`, unique in a run, rising in the order of their making.
    parents: int64 `[N, 2]`, ids, or `NOBODY`. age: int64 `[N]`, selections that it survived. state: uint8 `[N]`.
    fitness: float64 `[N, M]`, maximised. raw: float64 `[N, M]`, objectives as the problem states them.
    violation: float64 `[N]`, of the constraints; 0 is feasible.
    """

    genes: Genes
    ids: np.ndarray
    parents: np.ndarray
    age: np.ndarray
    state: np.ndarray
    fitness: np.ndarray
    raw: np.ndarray
    violation: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def objectives(self) -> int:
        """M; 0 as long as nothing was evaluated."""
        return self.fitness.shape[1]

    @property
    def evaluated(self) -> np.ndarray:
        """Which individuals may be ranked, bool `[N]`."""
        return self.state == EVALUATED

    def take(self, rows: np.ndarray) -> Population:
        """A copy of these rows: numbers `[n]`, or a mask `[N]`."""
        if rows.dtype == bool:  # which arrays take for 0 and 1
            rows = np.flatnonzero(rows)
        genes = {name: array.take(rows, axis=0) for name, array in self.genes.items()}
        return Population(genes, *[column.take(rows, axis=0) for column in _columns(self)])

    def punish(self, row: int, fitness: np.ndarray, violation: float) -> None:
        """Lets an individual that failed count as evaluated, with a fitness and a violation that are not its own."""
        self.state[row], self.fitness[row], self.violation[row] = EVALUATED, fitness, violation

    def rows(self) -> dict[str, Any]:
        """The arrays by name, as checkpoints hold them."""
        return {"genes": self.genes, **{name: getattr(self, name) for name in _COLUMNS}}


_COLUMNS = tuple(column.name for column in fields(Population))[1:]


def no_population(genome: Genome, objectives: int | None = None) -> Population:
    """Nobody, of that genome, with so many objectives."""
    none = np.empty(0, np.int64)
    return Population(
        genes={name: np.empty((0, part.length), part.dtype) for name, part in genome.parts.items()},
        ids=none,
        parents=np.empty((0, 2), np.int64),
        age=none.copy(),
        state=np.empty(0, np.uint8),
        fitness=np.empty((0, objectives or 0)),
        raw=np.empty((0, objectives or 0)),
        violation=np.empty(0),
    )


def join(populations: Sequence[Population]) -> Population:
    """All individuals of some populations, in their order. Empty ones may lack objectives."""
    filled = [population for population in populations if len(population)] or list(populations[:1])
    if len(filled) == 1:
        return filled[0]
    genes = {name: np.concatenate([population.genes[name] for population in filled]) for name in filled[0].genes}
    return Population(genes, *[np.concatenate([getattr(population, name) for population in filled]) for name in _COLUMNS])


def choose(a: Population, b: Population, rows: np.ndarray) -> Population:
    """What `join([a, b]).take(rows)` gives, in one go. Neither is empty."""
    genes = {}
    for name, first in a.genes.items():
        genes[name] = np.empty((len(rows), first.shape[1]), first.dtype)
        _choose_rows(first, b.genes[name], rows, genes[name])
    size, objectives = len(rows), a.objectives
    chosen = Population(
        genes, np.empty(size, np.int64), np.empty((size, 2), np.int64), np.empty(size, np.int64), np.empty(size, np.uint8),
        np.empty((size, objectives)), np.empty((size, objectives)), np.empty(size),
    )  # fmt: skip
    _choose_columns(*_columns(a), *_columns(b), rows, *_columns(chosen))  # type: ignore[call-arg]
    return chosen


def _columns(population: Population) -> list[np.ndarray]:
    return [getattr(population, name) for name in _COLUMNS]


@njit
def _choose_rows(first: np.ndarray, second: np.ndarray, rows: np.ndarray, chosen: np.ndarray) -> None:
    size = len(first)
    for place in range(len(rows)):
        row = rows[place]
        source, index = (first, row) if row < size else (second, row - size)
        for column in range(chosen.shape[1]):
            chosen[place, column] = source[index, column]


@njit
def _choose_columns(
    ids_a, parents_a, age_a, state_a, fitness_a, raw_a, violation_a,
    ids_b, parents_b, age_b, state_b, fitness_b, raw_b, violation_b,
    rows, ids, parents, age, state, fitness, raw, violation,
):  # fmt: skip
    size = len(ids_a)
    for place in range(len(rows)):
        row = rows[place]
        if row < size:
            ids[place], age[place], state[place], violation[place] = ids_a[row], age_a[row], state_a[row], violation_a[row]
        else:
            row -= size
            ids[place], age[place], state[place], violation[place] = ids_b[row], age_b[row], state_b[row], violation_b[row]
    _choose_rows(parents_a, parents_b, rows, parents)
    _choose_rows(fitness_a, fitness_b, rows, fitness)
    _choose_rows(raw_a, raw_b, rows, raw)
