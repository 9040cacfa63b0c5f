"""Genomes in plain form, as recipes and other languages write them: part → `{kind: real, low: 0, high: 1, length: 30}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, RootModel, Tag, model_validator

from lamarckian.ec.genome import Categorical, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.errors import MisuseError, RecipeError
from lamarckian.plugins import nearest, validate

Category: TypeAlias = str | int | float | bool


class PartDescription(BaseModel):
    """A part of a genome. Its keys are `kind` and the arguments of the class of `lamarckian.ec.genome` that it `makes`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    makes: ClassVar[type]

    def part(self) -> Any:
        """The part. Raises MisuseError where values do not go together."""
        return self.makes(**self.model_dump(exclude={"kind"}))

    @model_validator(mode="after")
    def _knows_its_keys(self) -> PartDescription:
        for name in self.__pydantic_extra__ or {}:
            known = list(type(self).model_fields)
            near = nearest(name, known)
            raise ValueError(f"the keys {', '.join(known)}; unknown: {name}" + (f" (nearest: {near})" if near else ""))
        return self


class RealPart(PartDescription):
    makes = Real
    kind: Literal["real"] = "real"
    low: float | list[float]
    high: float | list[float]
    length: int | None = None
    scale: Literal["linear", "log"] = "linear"


class IntegerPart(PartDescription):
    makes = Integer
    kind: Literal["integer"]
    low: int | list[int]
    high: int | list[int]
    length: int | None = None


class CategoricalPart(PartDescription):
    makes = Categorical
    kind: Literal["categorical"]
    categories: list[Category] | list[list[Category]]
    length: int | None = None


class PermutationPart(PartDescription):
    makes = Permutation
    kind: Literal["permutation"]
    items: int


class SubsetPart(PartDescription):
    makes = Subset
    kind: Literal["subset"]
    items: int
    size: int


class NetworkPart(PartDescription):
    makes = Network
    kind: Literal["network"]
    layers: list[tuple[str, list[int]]]
    deviation: float = 0.1


def _kind(part: Any) -> Any:
    if isinstance(part, Mapping):
        return part.get("kind", "real" if "low" in part or "high" in part else None)
    return getattr(part, "kind", "real")


AnyPart: TypeAlias = Annotated[
    Annotated[RealPart, Tag("real")]
    | Annotated[IntegerPart, Tag("integer")]
    | Annotated[CategoricalPart, Tag("categorical")]
    | Annotated[PermutationPart, Tag("permutation")]
    | Annotated[SubsetPart, Tag("subset")]
    | Annotated[NetworkPart, Tag("network")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="a part whose `kind` is real, integer, categorical, permutation, subset or network",
    ),
]
"""Any part; `kind` may be left out of a real one."""
Description: TypeAlias = dict[str, AnyPart]
"""A genome in plain form: the annotation of a setting that is one."""


class _Parts(RootModel[Description]):
    pass


def genome_from(description: Description | Mapping[str, Any], key: str = "genome") -> Genome:
    """The genome that a description in plain form stands for. key: where it was found, for messages.

    kinds and their keys: real (low, high, length, scale; `kind` may be left out), integer (low, high, length), categorical (categories,
    length), permutation (items), subset (items, size), network (layers: a list of [name, shape]; deviation). They mean what they mean in
    `lamarckian.ec.genome`. Raises RecipeError, which names part and key, where something is unknown, missing or wrong.
    """
    plain: Any = description
    if isinstance(description, Mapping):
        plain = {name: part.model_dump() if isinstance(part, PartDescription) else part for name, part in description.items()}
    parts = {}
    for name, described in validate(_Parts, plain, key).root.items():
        try:
            parts[name] = described.part()
        except (MisuseError, OverflowError) as error:
            raise RecipeError(f"{key}.{name}: {error}") from None
    if not parts:
        raise RecipeError(f"{key}: given {{}}; allowed: at least one part, such as {{x: {{low: 0, high: 1, length: 30}}}}")
    return Genome(parts)
