"""The mathematics of reinforcement learning: pure functions, each with its source."""

from lamarckian.ops.losses import (
    choice_weight,
    clipped_surrogate,
    clipped_value_loss,
    dual_clipped_surrogate,
    huber,
    kl_divergence,
    normalise,
    policy_gradient,
    ratio,
    squared_error,
)
from lamarckian.ops.returns import advantages, discounted_returns
from lamarckian.ops.vtrace import VTrace, vtrace

__all__ = [
    "VTrace",
    "advantages",
    "choice_weight",
    "clipped_surrogate",
    "clipped_value_loss",
    "discounted_returns",
    "dual_clipped_surrogate",
    "huber",
    "kl_divergence",
    "normalise",
    "policy_gradient",
    "ratio",
    "squared_error",
    "vtrace",
]
