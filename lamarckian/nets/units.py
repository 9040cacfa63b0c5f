"""Sets of units: their encoder, embeddings of their types, and attention, by which a head chooses among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lamarckian.errors import ContractError, RecipeError
from lamarckian.mdp import Discrete, Input, Role, Units
from lamarckian.nets.layers import Activation, Initialization, Mlp, Parts, linear

Pooling: TypeAlias = Literal["max", "mean", "both"]
Names: TypeAlias = str | Annotated[tuple[str, ...], Field(min_length=1)]

_INVALID = -1e15
"""The logit of an invalid unit: far below all others, and far above what a head gives an illegal action."""

FAR = 1e14
"""Actions so far below the best are none: units that are not valid."""


class Embedding(BaseModel):
    """Column `column` of a unit holds its type, a whole number in [0, types): `size` learnt numbers stand in its place."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: int = Field(ge=0)
    types: int = Field(gt=0)
    size: int = Field(default=8, gt=0)


class EncodedUnits(NamedTuple):
    """`encodings` `[B, U, E]`, in autocast's type where that is on, and which are `valid`, bool `[B, U]`."""

    encodings: Tensor
    valid: Tensor


NO_UNITS: Mapping[str, EncodedUnits] = {}


class TypeEmbedding(nn.Module):
    """Units `[B, U, size]` with types in a column → `[B, U, size − 1 + embedding]`: the other columns, then the embedding."""

    def __init__(self, name: str, space: Units, embedding: Embedding) -> None:
        super().__init__()
        if embedding.column >= space.size:
            raise RecipeError(
                f"`embeddings`: input '{name}' has {space.size} columns, 0 to {space.size - 1}; there is no column {embedding.column}"
            )
        self.table = nn.Embedding(embedding.types, embedding.size)
        self.size = space.size - 1 + embedding.size
        self._name, self._column = name, embedding.column
        around = slice(0, embedding.column), slice(embedding.column + 1, space.size)
        self._others = [part for part in around if part.start < part.stop]

    def forward(self, units: Tensor, valid: Tensor) -> Tensor:
        """Raises ContractError where a valid unit's type is out of range; an exported graph takes the nearest type instead."""
        column = units[..., self._column]
        types = column.clamp(0, self.table.num_embeddings - 1)
        if not torch.jit.is_tracing():
            wrong = column[valid & (types != column)]
            if len(wrong):
                raise ContractError(
                    f"input '{self._name}', column {self._column}, holds the type {wrong[0].item():g}; the network knows 0 to "
                    f"{self.table.num_embeddings - 1}; set `embeddings.{self._name}.types` to how many there are"
                )
        return torch.cat([*(units[..., others] for others in self._others), self.table(types.long())], -1)


class UnitsEncoder(nn.Module):
    """Units `[B, U, size]` and which are valid `[B, U]` → each unit's encoding `[B, U, E]`, and all of them pooled `[B, size]`.

    One encoder for all, then a pool over the valid: "max" or "mean" of each feature, or "both", one behind the other. The
    order of the units does not matter to the pool, and what an invalid one holds neither, as long as it is finite. Without
    any valid unit it gives 0.
    """

    def __init__(
        self,
        name: str,
        space: Units,
        hidden: Sequence[int],
        pooling: Pooling,
        embedding: Embedding | None,
        activation: Activation,
        initialization: Initialization,
    ) -> None:
        super().__init__()
        self.embedding = None if embedding is None else TypeEmbedding(name, space, embedding)
        self.encoder = Mlp(space.size if self.embedding is None else self.embedding.size, hidden, activation, initialization)
        self.count, self.encoding_size = space.count, self.encoder.size
        self.size = self.encoding_size * (2 if pooling == "both" else 1)
        self._pooling = pooling

    def forward(self, units: Tensor, valid: Tensor) -> tuple[EncodedUnits, Tensor]:
        encodings = self.encoder(units if self.embedding is None else self.embedding(units, valid))
        mask = valid.unsqueeze(-1)
        pooled = []
        if self._pooling != "mean":
            highest = torch.where(mask, encodings, -1e30).amax(1)
            pooled.append(torch.where(mask.any(1), highest, 0.0))
        if self._pooling != "max":
            count = mask.sum(1).clamp(min=1)
            pooled.append(torch.where(mask, encodings, 0.0).sum(1) / count)
        return EncodedUnits(encodings, valid), pooled[0] if len(pooled) == 1 else torch.cat(pooled, -1)


class Attention(nn.Module):
    """Features `[B, size]` and encoded units → logits `[B, U]`: q·k_u / √key_size, the units of several inputs in one row.

    q is a linear layer of the features, k_u a linear layer without bias of unit u's encoding, each input with one of its
    own (Ye et al. 2020, "Mastering Complex Control in MOBA Games with Deep Reinforcement Learning", §4; scaled as in
    Vaswani et al. 2017, eq. 1). An invalid unit has probability and gradient exactly 0, as long as a valid one is legal.

    encoders: of the inputs, in their order. gain: of the query's weights; that of the keys' is 1, so that logits start as
    small as `gain`, while gradients reach both.
    """

    def __init__(self, size: int, encoders: Mapping[str, UnitsEncoder], key_size: int, initialization: Initialization, gain: float) -> None:
        super().__init__()
        self.query = linear(size, key_size, initialization, gain)
        self.keys = Parts()
        for name, encoder in encoders.items():
            self.keys[name] = linear(encoder.encoding_size, key_size, initialization, 1.0, bias=False)
        self.count = sum(encoder.count for encoder in encoders.values())
        self._scale = 1 / math.sqrt(key_size)

    def forward(self, features: Tensor, units: Mapping[str, EncodedUnits]) -> Tensor:
        query = self.query(features) * self._scale
        logits = []
        for name, key in self.keys.items():
            encodings, valid = units[name]
            # q·(W e) = (Wᵀ q)·e: one product a sample instead of one a unit. Multiply and sum is faster than a batched matmul.
            asked = query @ key.weight
            logits.append(torch.where(valid, (encodings.float() * asked.unsqueeze(1)).sum(-1), _INVALID))
        return logits[0] if len(logits) == 1 else torch.cat(logits, -1)


def attending(role: Role, attention: Mapping[str, Names]) -> dict[str, tuple[str, ...]]:
    """For each head that attends, the inputs whose units it chooses among. Raises RecipeError where they do not fit `role`."""
    inputs = {head: (names,) if isinstance(names, str) else tuple(names) for head, names in attention.items()}
    for name, among in inputs.items():
        head = role.heads.get(name)
        if not isinstance(head, Discrete):
            discrete = ", ".join(key for key, space in role.heads.items() if isinstance(space, Discrete))
            raise RecipeError(f"`attention`: '{name}' is no discrete head of this game; those are: {discrete or 'none'}")
        require_units(role.inputs, among, f"attention.{name}")
        if len(set(among)) < len(among):
            raise RecipeError(f"`attention.{name}`: given {', '.join(among)}; each input may come once")
        count = sum(space.count for key in among if isinstance(space := role.inputs[key], Units))
        if head.n < count:
            raise RecipeError(
                f"`attention.{name}`: {' and '.join(among)} {'has' if len(among) == 1 else 'have'} {count} units, but head '{name}' only "
                f"{head.n} actions; it needs one for each unit, then those that choose none"
            )
    return inputs


def require_units(inputs: Mapping[str, Input], names: Sequence[str], setting: str) -> None:
    """Raises RecipeError where one of `names` is not an input of units."""
    known = [key for key, space in inputs.items() if isinstance(space, Units)]
    for name in names:
        if name not in known:
            raise RecipeError(f"`{setting}`: '{name}' is no input of units; those of this game are: {', '.join(known) or 'none'}")
