"""Which operators vary which part, and the making of whole children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from lamarckian.ec.genome import Categorical, Genes, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.ec.operators.discrete import Creep, Points, Reset, UniformCrossover
from lamarckian.ec.operators.network import Best, ChannelCrossover, LayerCrossover, NetworkGaussian
from lamarckian.ec.operators.permutation import Insertion, OrderCrossover, Replace, SubsetCrossover, Swap
from lamarckian.ec.operators.real import SBX, Gaussian, Polynomial
from lamarckian.errors import MisuseError
from lamarckian.plugins import unknown
from lamarckian.seeding import derive

AnyCrossover: TypeAlias = Annotated[
    SBX | UniformCrossover | Points | OrderCrossover | SubsetCrossover | LayerCrossover | ChannelCrossover | Best,
    Field(discriminator="name"),
]
AnyMutation: TypeAlias = Annotated[
    Polynomial | Gaussian | Reset | Creep | Swap | Insertion | Replace | NetworkGaussian, Field(discriminator="name")
]
Default: TypeAlias = Literal["default"]


@dataclass(frozen=True)
class Variation:
    """How a part is varied. crossover, mutation: None for none; `default`: what its kind of part usually has."""

    crossover: AnyCrossover | Default | None = "default"
    mutation: AnyMutation | Default | None = "default"


DEFAULTS: dict[type, Variation] = {
    Real: Variation(SBX(), Polynomial()),
    Integer: Variation(UniformCrossover(), Reset()),
    Categorical: Variation(UniformCrossover(), Reset()),
    Permutation: Variation(OrderCrossover(), Swap()),
    Subset: Variation(SubsetCrossover(), Replace()),
    Network: Variation(Best(), NetworkGaussian()),
}


class Breeder:
    """Makes children of pairs of parents.

    operators: part → its variation, where it is not the default of its kind.
    Raises MisuseError where a part is not there, or an operator does not work on it.
    """

    def __init__(self, genome: Genome, operators: Mapping[str, Variation], seed: int) -> None:
        for name in operators:
            if name not in genome.parts:
                raise MisuseError(f"operators.{name}: {unknown(name, genome.parts, 'parts')}")
        self._steps: list[tuple[str, Any, Any, Any, int, int]] = []
        for name, part in genome.parts.items():
            if type(part) not in DEFAULTS:
                raise MisuseError(f"part '{name}' is of a kind without operators, {type(part).__name__}")
            chosen, usual = operators.get(name, Variation()), DEFAULTS[type(part)]
            if not isinstance(chosen, Variation):
                raise MisuseError(f"operators.{name} must be Variation(crossover=…, mutation=…), not {chosen!r}")
            crossover = usual.crossover if chosen.crossover == "default" else chosen.crossover
            mutation = usual.mutation if chosen.mutation == "default" else chosen.mutation
            _check(f"operators.{name}.crossover", crossover, "cross", part)
            _check(f"operators.{name}.mutation", mutation, "mutate", part)
            self._steps.append((name, part, crossover, mutation, derive(seed, name, "crossover"), derive(seed, name, "mutation")))

    def children(self, mothers: Genes, fathers: Genes, ids: np.ndarray) -> Genes:
        """A child `[N, L]` of every pair; of each pair, the first is the fitter one."""
        children = {}
        for name, part, crossover, mutation, crossing, mutating in self._steps:
            a = mothers[name]
            child = crossover.cross(part, a, fathers[name], crossing, ids) if crossover is not None else a.copy()
            if mutation is not None:
                mutation.mutate(part, child, mutating, ids)
            children[name] = child
        return children


def _check(where: str, operator: Any, method: str, part: Any) -> None:
    """Raises MisuseError unless an operator has that method and works on the part."""
    if operator is None:
        return
    if isinstance(operator, type) or not callable(getattr(operator, method, None)):
        raise MisuseError(f"{where} must be an object with `{method}`, or None, not {operator!r}")
    if type(part) not in operator.parts:
        works = ", ".join(kind.__name__ for kind in operator.parts)
        raise MisuseError(f"{where}: {operator.name!r} works on {works}; the part is {type(part).__name__}")
