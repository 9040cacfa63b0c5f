"""What every algorithm of evolution is: proposals out, evaluated offspring in.

`evolve` drives it: `begin` once, then `propose` → `realise` → (evaluation) → `tell`, over and over. `propose` and `tell` belong to the
process that drives; `realise` only reads what `begin` made, so that any worker can turn proposals into genes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.population import Population
from lamarckian.seeding import derive


def algorithm_seed(seed: int) -> int:
    """What the algorithm draws from in a run of this seed; the same in every process."""
    return derive(seed, "algorithm")


@dataclass
class Proposals:
    """N candidates to be made.

    ids: int64 `[N]`. parents: int64 `[N, 2]`, ids or `NOBODY`.
    arrays: what `realise` makes them of, name → `[N, …]`: their genes, the genes of their parents, or a place in a table of noise.
    shared: what it needs besides and is the same for all, name → array; it changes only when `version` does.
    """

    ids: np.ndarray
    parents: np.ndarray
    arrays: dict[str, np.ndarray]
    shared: dict[str, np.ndarray] = field(default_factory=dict)
    version: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Any) -> Proposals:
        """A copy of these rows."""
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return Proposals(self.ids[rows], self.parents[rows], arrays, self.shared, self.version)


class Algorithm(Protocol):
    """An algorithm of evolution. Its constructor takes its settings only, so that a recipe can name it.

    starters: how many individuals it can start from; known before `begin`.
    size: how many offspring make a generation; may change from one to the next.
    overlaps: whether offspring of earlier populations may be told too, as asynchronous evolution does. Where not, `tell` gets the whole of
        what `propose` gave, in its order.
    population: the individuals that are left, none at first; of an algorithm that keeps none, the last offspring.
    """

    starters: int
    size: int
    overlaps: bool
    population: Population

    def begin(self, genome: Genome, objectives: int | None, seed: int, first: Genes | None = None) -> None:
        """Starts anew; whatever went before is forgotten.

        objectives: M, or None where only the first evaluation tells. first: individuals to start from, at most `starters`.
        Raises MisuseError where the algorithm cannot work on this.
        """
        ...

    def propose(self, count: int) -> Proposals:
        """The next candidates; `count` is `size` in a generation, and 1 where workers ask one by one."""
        ...

    def realise(self, proposals: Proposals) -> Genes:
        """The candidates' genes. The same proposals give the same genes, in whatever portions, in whatever process."""
        ...

    def tell(self, offspring: Population) -> None:
        """Takes evaluated or failed offspring and selects. Failed ones never survive; all may have failed."""
        ...

    def save(self) -> dict[str, Any]:
        """All that it knows: a tree of dicts, lists, numbers, texts and arrays."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what `save` gave, after `begin` with the same arguments."""
        ...
