"""From a role's inputs to one vector of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from lamarckian.mdp import Image, Input, Units, Vector
from lamarckian.mdp.spaces import VALID
from lamarckian.nets.convolution import PRESETS, Convolutions, ImageEncoder
from lamarckian.nets.layers import Activation, Initialization, Mlp, Parts

Pooling: TypeAlias = Literal["max", "mean"]


class UnitsEncoder(nn.Module):
    """Units `[B, U, size]` and which are valid `[B, U]` → `[B, size]`: one encoder for all, then a pool over the valid.

    The order of the units does not matter, and what an invalid one holds neither, as long as it is finite. Without any
    valid unit it gives 0.
    """

    def __init__(
        self, space: Units, hidden: Sequence[int], pooling: Pooling, activation: Activation, initialization: Initialization
    ) -> None:
        super().__init__()
        self.encoder = Mlp(space.size, hidden, activation, initialization)
        self.size = self.encoder.size
        self._pooling = pooling

    def forward(self, units: Tensor, valid: Tensor) -> Tensor:
        valid = valid.unsqueeze(-1)
        encoded = self.encoder(units)
        if self._pooling == "mean":
            count = valid.sum(1).clamp(min=1)
            return torch.where(valid, encoded, 0.0).sum(1) / count
        highest = torch.where(valid, encoded, -1e30).amax(1)
        return torch.where(valid.any(1), highest, 0.0)


class Encoder(nn.Module):
    """A role's inputs → features `[B, size]`: each input by its kind, joined, then the trunk, an MLP of `hidden` layers."""

    def __init__(
        self,
        inputs: Mapping[str, Input],
        *,
        hidden: Sequence[int],
        vectors: Sequence[int],
        convolutions: Convolutions,
        units: Sequence[int],
        pooling: Pooling,
        activation: Activation,
        initialization: Initialization,
    ) -> None:
        super().__init__()
        stack = PRESETS[convolutions] if isinstance(convolutions, str) else convolutions
        self.inputs, size = Parts(), 0
        part: Mlp | ImageEncoder | UnitsEncoder
        for name, space in inputs.items():
            match space:
                case Vector():
                    part = Mlp(space.size, vectors, activation, initialization)
                case Image():
                    part = ImageEncoder(name, space, stack, initialization)
                case Units():
                    part = UnitsEncoder(space, units, pooling, activation, initialization)
            self.inputs[name] = part
            size += part.size
        self.trunk = Mlp(size, hidden, activation, initialization)
        self.size = self.trunk.size

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        parts = []
        for name, part in self.inputs.items():
            parts.append(part(inputs[name], inputs[name + VALID]) if isinstance(part, UnitsEncoder) else part(inputs[name]))
        return self.trunk(parts[0] if len(parts) == 1 else torch.cat(parts, -1))
