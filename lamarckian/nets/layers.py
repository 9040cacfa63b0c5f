"""Layers that everything here is built of: initialisation, activation, linear layers, the multi-layer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation: TypeAlias = Literal["tanh", "relu", "elu", "silu"]
Initialization: TypeAlias = Literal["orthogonal", "xavier", "he", "lecun"]

# In place where autograd allows it: what came before an activation is never needed again.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": lambda x: F.elu(x, inplace=True),
    "silu": F.silu,
}

_HIDDEN_GAINS = {"orthogonal": math.sqrt(2), "xavier": 1.0, "he": math.sqrt(2), "lecun": 1.0}


def initialize(layer: nn.Linear | nn.Conv2d, scheme: Initialization, gain: float | None = None) -> None:
    """Draws the weights of `layer` from torch's global generator, and sets its bias to 0.

    | scheme | weights | usual gain of a hidden layer |
    | --- | --- | --- |
    | `orthogonal` | orthogonal rows or columns × gain (Saxe et al. 2014) | √2 |
    | `xavier` | normal, variance 2 gain² / (fan in + fan out) (Glorot & Bengio 2010) | 1 |
    | `he` | normal, variance gain² / fan in (He et al. 2015) | √2 |
    | `lecun` | the same (LeCun et al. 1998) | 1 |

    gain: None for the scheme's usual one.
    """
    gain = _HIDDEN_GAINS[scheme] if gain is None else gain
    if scheme == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain)
    elif scheme == "xavier":
        nn.init.xavier_normal_(layer.weight, gain)
    else:
        nn.init.normal_(layer.weight, std=gain / math.sqrt(layer.weight[0].numel()))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def linear(size: int, out: int, scheme: Initialization, gain: float | None = None, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(size, out, bias)
    initialize(layer, scheme, gain)
    return layer


class Mlp(nn.Module):
    """`[…, size]` → `[…, hidden[-1]]`: linear layers, each followed by `activation`; no layers, no change."""

    def __init__(self, size: int, hidden: Sequence[int], activation: Activation, initialization: Initialization) -> None:
        super().__init__()
        sizes = [size, *hidden]
        self.size = sizes[-1]
        self.layers = nn.ModuleList(linear(a, b, initialization) for a, b in zip(sizes, hidden, strict=False))
        self._activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = self._activation(layer(x) if index else _linear16(layer, x))  # type: ignore[arg-type]
        return x


def _linear16(layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer whose float32 input keeps 16 bits of its precision under bfloat16 autocast.

    bfloat16 alone keeps 8: a ball's place on the court to half a percent, which is too coarse for a policy that was
    run in float32. So the input goes in as two bfloat16 parts that sum to it.
    """
    if x.dtype != torch.float32 or not torch.is_autocast_enabled(x.device.type):
        return layer(x)
    coarse = x.to(torch.get_autocast_dtype(x.device.type))
    rest = (x - coarse).to(coarse.dtype)
    return F.linear(torch.cat([coarse, rest], -1), torch.cat([layer.weight, layer.weight], -1), layer.bias)


class Parts(nn.ModuleDict):
    """Modules by the names that a game gave to its inputs and heads, which may be any: `type`, `values`, `train`."""

    def add_module(self, name: str, module: nn.Module | None) -> None:
        self._modules[name] = module  # type: ignore[assignment]
