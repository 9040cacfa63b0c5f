"""Returns and advantages. Time-major: `_t` is `[T, B, R]`, `_tT` has one row more; every episode end inside is minded.

An episode that was terminated is worth nothing after its end; one that was truncated is worth `bootstrap_t`, the value
of its final observation. Row t + 1 of the values belongs to the next episode then, and is not used.
"""

from __future__ import annotations

import torch
from torch import Tensor


def advantages(
    reward_t: Tensor,
    value_tT: Tensor,
    bootstrap_t: Tensor,
    terminated_t: Tensor,
    truncated_t: Tensor,
    gamma: Tensor,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimates `[T, B, R]` (Schulman et al. 2016, eq. 16, https://arxiv.org/abs/1506.02438):

        δ_t = r_t + γ V(s_{t+1}) − V(s_t),    A_t = δ_t + γλ A_{t+1}

    reward_t `[T, B, R]`; value_tT `[T+1, B, R]`; bootstrap_t `[T, B, R]`, read where truncated and not terminated;
    terminated_t, truncated_t bool `[T, B]`; gamma `[R]`, a discount for each reward. Without gradients.
    The value targets are `advantages + value_tT[:-1]`, the λ-returns.
    """
    with torch.no_grad():
        terminated_t, truncated_t = terminated_t.unsqueeze(-1), truncated_t.unsqueeze(-1)
        next_value_t = torch.where(truncated_t, bootstrap_t, value_tT[1:]).masked_fill_(terminated_t, 0.0)
        delta_t = torch.addcmul(reward_t, gamma, next_value_t).sub_(value_tT[:-1])
        decay_t = (~(terminated_t | truncated_t)) * (gamma * gae_lambda)
        return _accumulate(delta_t, decay_t)


def discounted_returns(
    reward_t: Tensor,
    final_value: Tensor,
    bootstrap_t: Tensor,
    terminated_t: Tensor,
    truncated_t: Tensor,
    gamma: Tensor,
) -> Tensor:
    """G_t = r_t + γ G_{t+1} `[T, B, R]`, where G_T is `final_value` `[B, R]`. The other arguments as in `advantages`."""
    with torch.no_grad():
        terminated_t, truncated_t = terminated_t.unsqueeze(-1), truncated_t.unsqueeze(-1)
        ended_t = terminated_t | truncated_t
        delta_t = torch.where(truncated_t & ~terminated_t, reward_t + gamma * bootstrap_t, reward_t)
        delta_t[-1] += torch.where(ended_t[-1], 0.0, gamma * final_value)
        return _accumulate(delta_t, ~ended_t * gamma)


def _accumulate(delta_t: Tensor, decay_t: Tensor) -> Tensor:
    """x_t = δ_t + d_t x_{t+1}, in place of `delta_t`; x_T = 0."""
    deltas, decays = delta_t.unbind(), decay_t.unbind()
    for t in range(len(deltas) - 2, -1, -1):
        deltas[t].addcmul_(decays[t], deltas[t + 1])
    return delta_t
