"""In which number format, memory layout and portions a policy is trained fastest on the machine at hand.

What decides is what the processor can do, never a stopwatch: the same machine always chooses the same, so that runs can
be repeated bit for bit. The constants were measured on two cores of an AMD EPYC (Zen 5, AVX-512 with bfloat16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor, nn

from lamarckian.mdp import Role
from lamarckian.nets.policy import Policy, example

if TYPE_CHECKING:
    from lamarckian.nets.quality import QNetwork

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16"]
MemoryFormat: TypeAlias = Literal["auto", "contiguous", "channels_last"]

CACHE_BYTES = 16 << 20
"""What the activations of one pass may take: more leaves the caches. For convolutions this halves the time."""

ROWS = 4096
"""Larger passes of a small network gain nothing."""

WIDE = 64
"""From this width of the widest layer on, bfloat16 gains more in the multiplications than its conversions cost."""


@dataclass(frozen=True)
class Precision:
    """dtype: of the encoders; parameters, outputs and losses are float32. rows: samples of one forward and backward pass."""

    dtype: torch.dtype
    channels_last: bool
    rows: int

    def autocast(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    def arrange(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs `[B, …]`, with images in the chosen memory format."""
        return {name: channels_last(x) if self.channels_last and x.ndim == 4 else x for name, x in inputs.items()}


UNLIMITED_ROWS = 1 << 30
"""A GPU works best on all samples at once."""


def choose(
    policy: Policy | QNetwork, role: Role, device: torch.device, dtype: Dtype = "auto", memory_format: MemoryFormat = "auto"
) -> Precision:
    """The fastest for `policy`; what is not "auto" is kept."""
    convolves = any(isinstance(module, nn.Conv2d) for module in policy.modules())
    if dtype == "auto":
        wide = any(isinstance(module, nn.Linear) and module.out_features >= WIDE for module in policy.modules())
        dtype = "bfloat16" if (convolves or wide) and bfloat16_is_native(device) else "float32"
    if memory_format == "auto":
        memory_format = "channels_last" if convolves else "contiguous"
    chosen = getattr(torch, dtype)
    if device.type == "cuda":
        return Precision(chosen, memory_format == "channels_last", UNLIMITED_ROWS)
    rows = min(max(CACHE_BYTES // (_activations(policy, role, device) * chosen.itemsize), 1), ROWS)
    return Precision(chosen, memory_format == "channels_last", 1 << (rows.bit_length() - 1))


def bfloat16_is_native(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; one that only emulates it is slower than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16"))


def channels_last(image: Tensor) -> Tensor:
    """`[B, C, H, W]` with the channels of a pixel side by side in memory.

    An image of one channel lies so already, but torch takes it for channels-first unless its strides say otherwise.
    """
    batch, channels, height, width = image.shape
    if channels == 1:
        return image.reshape(batch, height, width, 1).permute(0, 3, 1, 2)
    return image.contiguous(memory_format=torch.channels_last)


def _activations(policy: Policy | QNetwork, role: Role, device: torch.device) -> int:
    """How many numbers a sample leaves behind for the backward pass: what two samples leave less what one does."""

    def kept(size: int) -> int:
        sizes: dict[int, int] = {}

        def pack(x: Tensor) -> Tensor:
            sizes[x.untyped_storage().data_ptr()] = x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            inputs = {name: x.to(device) for name, x in example(role, size).items()}
            outputs = policy(inputs, {name: torch.zeros(size, *spec.shape, device=device) for name, spec in policy.state.items()})
        del outputs
        return sum(sizes.values())

    return max(kept(2) - kept(1), 1)
