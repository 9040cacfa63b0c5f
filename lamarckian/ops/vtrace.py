"""V-trace: values and advantages of a policy from what an older one did."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lamarckian.ops.returns import _accumulate


class VTrace(NamedTuple):
    """Both `[T, B, R]`. target_t: v_t, what the values are to become. advantage_t: A_t, already times the clipped ratio."""

    target_t: Tensor
    advantage_t: Tensor


def vtrace(
    ratio_t: Tensor,
    reward_t: Tensor,
    value_tT: Tensor,
    bootstrap_t: Tensor,
    terminated_t: Tensor,
    truncated_t: Tensor,
    gamma: Tensor,
    *,
    rho_clip: float,
    c_clip: float,
    advantage_rho_clip: float | None,
    trace_lambda: float,
) -> VTrace:
    """V-trace (Espeholt et al. 2018, eq. 1 and §4.2, https://arxiv.org/abs/1802.01561), with ρ_t = π(a_t|s_t) / μ(a_t|s_t):

        δ_t = min(ρ̄, ρ_t) (r_t + γ V(s_{t+1}) − V(s_t)),    v_t − V(s_t) = δ_t + γλ min(c̄, ρ_t) (v_{t+1} − V(s_{t+1}))
        A_t = min(ρ̄', ρ_t) (r_t + γ v_{t+1} − V(s_t))

    ratio_t: ρ_t `[T, B]`; rho_clip, c_clip, advantage_rho_clip: ρ̄, c̄ and ρ̄'; trace_lambda: λ of the paper's remark 2. Without ρ̄', A_t is
    without its first factor.
    The other arguments as in `advantages`: where an episode ends, v_{t+1} is 0, or `bootstrap_t` where it was truncated; after the last
    row it is `value_tT[-1]`. Without gradients. With all ratios, clips and λ at 1, v_t is the discounted return.
    """
    with torch.no_grad():
        ratio_t, terminated_t, truncated_t = ratio_t.unsqueeze(-1), terminated_t.unsqueeze(-1), truncated_t.unsqueeze(-1)
        value_t, going_on_t = value_tT[:-1], ~(terminated_t | truncated_t)
        next_value_t = torch.where(truncated_t, bootstrap_t, value_tT[1:]).masked_fill_(terminated_t, 0.0)
        error_t = torch.addcmul(reward_t, gamma, next_value_t).sub_(value_t)
        decay_t = going_on_t * (gamma * trace_lambda) * ratio_t.clamp(max=c_clip)
        correction_t = _accumulate(ratio_t.clamp(max=rho_clip) * error_t, decay_t)
        error_t[:-1] += going_on_t[:-1] * gamma * correction_t[1:]
        weight_t = 1.0 if advantage_rho_clip is None else ratio_t.clamp(max=advantage_rho_clip)
        return VTrace(value_t + correction_t, weight_t * error_t)
