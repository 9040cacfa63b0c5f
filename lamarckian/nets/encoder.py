"""From a role's inputs to one vector of features, and to the units one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lamarckian.mdp import Image, Input, Units, Vector
from lamarckian.mdp.spaces import VALID
from lamarckian.nets.convolution import PRESETS, Convolutions, ImageEncoder
from lamarckian.nets.layers import Activation, Initialization, Mlp, Parts
from lamarckian.nets.units import Embedding, EncodedUnits, Pooling, UnitsEncoder, require_units


class Encoded(NamedTuple):
    """`features` `[B, size]`, and the units of each input that has any, one by one."""

    features: Tensor
    units: dict[str, EncodedUnits]


class Encoder(nn.Module):
    """A role's inputs → features `[B, size]`: each input by its kind, joined, then the trunk, an MLP of `hidden` layers.

    The units' encodings, which are on the way to the features, come out beside them.
    """

    def __init__(
        self,
        inputs: Mapping[str, Input],
        *,
        hidden: Sequence[int],
        vectors: Sequence[int],
        convolutions: Convolutions,
        units: Sequence[int],
        pooling: Pooling,
        embeddings: Mapping[str, Embedding],
        activation: Activation,
        initialization: Initialization,
    ) -> None:
        super().__init__()
        require_units(inputs, list(embeddings), "embeddings")
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
                    part = UnitsEncoder(name, space, units, pooling, embeddings.get(name), activation, initialization)
            self.inputs[name] = part
            size += part.size
        self.trunk = Mlp(size, hidden, activation, initialization)
        self.size = self.trunk.size

    def units(self, names: Sequence[str]) -> dict[str, UnitsEncoder]:
        """The encoders of these inputs of units."""
        return {name: part for name in names if isinstance(part := self.inputs[name], UnitsEncoder)}

    def forward(self, inputs: Mapping[str, Tensor]) -> Encoded:
        parts, units = [], {}
        for name, part in self.inputs.items():
            if isinstance(part, UnitsEncoder):
                units[name], pooled = part(inputs[name], inputs[name + VALID])
                parts.append(pooled)
            else:
                parts.append(part(inputs[name]))
        return Encoded(self.trunk(parts[0] if len(parts) == 1 else torch.cat(parts, -1)), units)
