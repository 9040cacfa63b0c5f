"""Losses, entry by entry: who calls sums them up. `_i` counts samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Beyond e^±20 a ratio says no more than that; unlimited, it would overflow, and its gradient with it."""


def ratio(log_prob_i: Tensor, behaviour_log_prob_i: Tensor) -> Tensor:
    """π(a|s) / μ(a|s), where μ is the policy that acted."""
    return torch.exp((log_prob_i - behaviour_log_prob_i).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


def clipped_surrogate(ratio_i: Tensor, advantage_i: Tensor, clip: float) -> Tensor:
    """L_i = min(r_i A_i, clip(r_i, 1 − ε, 1 + ε) A_i), to be maximised (Schulman et al. 2017, eq. 7, https://arxiv.org/abs/1707.06347)."""
    return torch.minimum(ratio_i * advantage_i, ratio_i.clamp(1 - clip, 1 + clip) * advantage_i)


def dual_clipped_surrogate(ratio_i: Tensor, advantage_i: Tensor, clip: float, dual_clip: float) -> Tensor:
    """max(L_i, c A_i) where A_i < 0, L_i elsewhere, to be maximised (Ye et al. 2020, https://arxiv.org/abs/1912.09729, §4.2).

    L_i is `clipped_surrogate`; c > 1 bounds what a huge ratio does when the advantage is negative.
    """
    surrogate_i = clipped_surrogate(ratio_i, advantage_i, clip)
    return torch.where(advantage_i < 0, torch.maximum(surrogate_i, dual_clip * advantage_i), surrogate_i)


def policy_gradient(ratio_i: Tensor, return_i: Tensor, log_prob_i: Tensor) -> Tensor:
    """min(r_i, 1) R_i log π_i, to be maximised: the policy gradient from samples of another policy, with its weight cut at 1.

    The weight is a constant, else this would not be the gradient: E_μ[r R ∇ log π] is ∇ E_π[R] where R is what followed.
    """
    return ratio_i.detach().clamp(max=1) * return_i * log_prob_i


def choice_weight(valid_i: Tensor, eta: float) -> Tensor:
    """1 / (η + ln(n_i − 1)), where n_i counts the valid actions; 0 where there is but one, and so no choice.

    Keeps entropies of choices among few and among very many actions in proportion.
    """
    return torch.where(valid_i > 1, 1 / (eta + torch.log((valid_i - 1).clamp(min=1).float())), 0.0)


def squared_error(value_i: Tensor, target_i: Tensor) -> Tensor:
    """½ (V_i − G_i)²."""
    return 0.5 * (value_i - target_i).square()


def huber(value_i: Tensor, target_i: Tensor) -> Tensor:
    """½ e² where |e| ≤ 1, |e| − ½ elsewhere, e = V_i − G_i (Huber 1964)."""
    return torch.nn.functional.huber_loss(value_i, target_i, reduction="none")


def clipped_value_loss(
    loss: Callable[[Tensor, Tensor], Tensor], value_i: Tensor, old_value_i: Tensor, target_i: Tensor, clip: float
) -> Tensor:
    """max(loss(V_i), loss(V_i^old + clip(V_i − V_i^old, ±ε))): the value may move no further than ε from what it was.

    From the reference implementation of Schulman et al. 2017 (openai/baselines, ppo2).
    """
    moved_i = old_value_i + (value_i - old_value_i).clamp(-clip, clip)
    return torch.maximum(loss(value_i, target_i), loss(moved_i, target_i))


def kl_divergence(ratio_i: Tensor) -> Tensor:
    """k3_i = (r_i − 1) − log r_i: its mean over actions of μ is KL(μ ‖ π), each entry is ≥ 0 (http://joschu.net/blog/kl-approx.html)."""
    return (ratio_i - 1) - torch.log(ratio_i)


def normalise(advantage_i: Tensor, mask_i: Tensor, epsilon: float = 1e-8, add: Callable[[Tensor], None] = lambda sums: None) -> Tensor:
    """(A − mean) / (standard deviation + ε), both over the entries where `mask_i`; 0 elsewhere.

    add: replaces sums over these entries by sums over more of them, which lie elsewhere.
    """
    kept_i = torch.where(mask_i, advantage_i, 0.0)
    sums = torch.stack([kept_i.sum(), mask_i.sum().to(kept_i.dtype)])
    add(sums)
    count = sums[1].clamp(min=1)
    centred_i = torch.where(mask_i, advantage_i - sums[0] / count, 0.0)
    squares = centred_i.square().sum()
    add(squares)
    return centred_i / ((squares / count).sqrt() + epsilon)
