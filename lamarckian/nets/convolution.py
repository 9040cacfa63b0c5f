"""Convolutions over images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lamarckian.errors import RecipeError
from lamarckian.mdp import Image
from lamarckian.nets.layers import Initialization, initialize


class Convolution(BaseModel):
    """One layer: `channels` filters of `kernel`×`kernel` pixels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: int = Field(gt=0)
    kernel: int = Field(gt=0)
    stride: int = Field(default=1, gt=0)
    padding: int = Field(default=0, ge=0)


Convolutions: TypeAlias = Literal["nature", "halving"] | tuple[Convolution, ...]


def _stack(*layers: tuple[int, int, int]) -> tuple[Convolution, ...]:
    return tuple(Convolution(channels=channels, kernel=kernel, stride=stride) for channels, kernel, stride in layers)


PRESETS: dict[str, tuple[Convolution, ...]] = {
    # Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    "nature": _stack((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    # Each layer halves the image.
    "halving": _stack((32, 4, 2), (32, 4, 2), (64, 4, 2), (64, 4, 2)),
}


class ImageEncoder(nn.Module):
    """uint8 image `[B, channels, height, width]` → `[B, size]`: convolutions, each followed by ReLU, then flattened.

    The image may lie in memory channels-first or channels-last; the computation follows. The division by 255 is done
    to the first filters instead: they are few, the pixels many, and bfloat16 holds 0…255 exactly, but not their 255ths.
    """

    def __init__(self, name: str, space: Image, convolutions: Sequence[Convolution], initialization: Initialization) -> None:
        super().__init__()
        channels, height, width = space.channels, space.height, space.width
        self.layers = nn.ModuleList()
        for index, spec in enumerate(convolutions):
            height, width = ((side + 2 * spec.padding - spec.kernel) // spec.stride + 1 for side in (height, width))
            if min(height, width) < 1:
                raise RecipeError(
                    f"input '{name}' is {space.height}×{space.width} pixels: too small for convolution {index + 1} of {len(convolutions)} "
                    f"(kernel {spec.kernel}, stride {spec.stride}); give fewer or smaller `convolutions`"
                )
            layer = nn.Conv2d(channels, spec.channels, spec.kernel, spec.stride, spec.padding)
            initialize(layer, initialization)
            self.layers.append(layer)
            channels = spec.channels
        self.size = channels * height * width

    def forward(self, image: Tensor) -> Tensor:
        device = image.device.type
        x = image.to(torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32)
        if not self.layers:
            return x.flatten(1) / 255
        layer: Any  # a Conv2d; a ModuleList says Module
        for index, layer in enumerate(self.layers):
            weight = layer.weight if index else layer.weight * (1 / 255)
            x = torch.relu_(F.conv2d(x, weight, layer.bias, layer.stride, layer.padding))
        return x.flatten(1)
