"""A policy's parameters as one flat vector: what is published, evolved and stepped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn


class Entry(NamedTuple):
    """Where one parameter lies in the flat vector: `offset` counts float32 entries, not bytes."""

    name: str
    shape: tuple[int, ...]
    offset: int


def manifest(policy: nn.Module) -> tuple[Entry, ...]:
    """The parameters in the order of `named_parameters()`, one behind the other, each in C order."""
    entries, offset = [], 0
    for name, parameter in policy.named_parameters():
        entries.append(Entry(name, tuple(parameter.shape), offset))
        offset += parameter.numel()
    return tuple(entries)


def flatten(policy: nn.Module) -> np.ndarray:
    """A copy of the parameters, float32, as `manifest` lays them out."""
    with torch.no_grad():
        return torch.cat([parameter.reshape(-1).cpu() for parameter in policy.parameters()]).numpy()


def assign(policy: nn.Module, flat: np.ndarray) -> None:
    """Gives the parameters the values of `flat`, float32, laid out as `manifest` says. Raises ValueError where there are more or fewer."""
    expected = sum(parameter.numel() for parameter in policy.parameters())
    if flat.shape != (expected,):
        raise ValueError(f"{expected} parameters are expected, an array of shape {flat.shape} came")
    with torch.no_grad():
        for entry, parameter in zip(manifest(policy), policy.parameters(), strict=True):
            part = flat[entry.offset : entry.offset + parameter.numel()]
            parameter.copy_(torch.from_numpy(part.reshape(entry.shape).copy()))


class FlatParameters:
    """Rebinds the parameters of `policy`, and their gradients, as views of two flat float32 tensors.

    So publishing is one memcpy of `array()`, and norms and optimiser steps are one kernel each: give the optimiser
    `self.parameter`, whose gradient is the flat gradient. Zero the gradients by `self.zero_gradient()`, never by setting
    them to None. Each view is contiguous in C order: filters of convolutions too, whatever the images' memory format is;
    they are few, and are brought into the images' order on the way.
    """

    def __init__(self, policy: nn.Module) -> None:
        self.manifest = manifest(policy)
        with torch.no_grad():
            self.parameter = nn.Parameter(torch.cat([parameter.reshape(-1).float() for parameter in policy.parameters()]))
            self.gradient = torch.zeros_like(self.parameter)
        self.parameter.grad = self.gradient
        for entry, parameter in zip(self.manifest, policy.parameters(), strict=True):
            part = slice(entry.offset, entry.offset + parameter.numel())
            parameter.data = self.parameter.data[part].view(entry.shape)
            parameter.grad = self.gradient[part].view(entry.shape)

    def zero_gradient(self) -> None:
        self.gradient.zero_()

    def array(self) -> np.ndarray:
        """The parameters, float32; on the CPU a view, which changes with them."""
        return self.parameter.detach().cpu().numpy()
