"""Adam over flat parameters, and how its learning rate goes over a run."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from lamarckian.nets import FlatParameters


class AdamSettings(Protocol):
    """What `adam` wants to know."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def adam_betas(self) -> tuple[float, float]: ...
    @property
    def adam_epsilon(self) -> float: ...


def adam(parameters: FlatParameters, settings: AdamSettings) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
    """The optimiser of `parameters`, and the state that it changes in place once that is attached to it."""
    optimizer = torch.optim.Adam(
        [parameters.parameter], lr=settings.learning_rate, betas=settings.adam_betas, eps=settings.adam_epsilon, fused=True
    )
    gradient = parameters.gradient
    state = {
        "step": torch.zeros((), device=gradient.device),
        "exp_avg": torch.zeros_like(gradient),
        "exp_avg_sq": torch.zeros_like(gradient),
    }
    return optimizer, state


def factor(schedule: str, progress: float) -> float:
    """1 at the run's start; at its end 1 if constant, else 0."""
    if schedule == "constant":
        return 1.0
    return 1 - progress if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
