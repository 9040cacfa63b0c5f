"""The mathematics of reinforcement learning: pure functions, each with its source."""

from lamarckian.ops.losses import (
    clipped_surrogate,
    clipped_value_loss,
    dual_clipped_surrogate,
    huber,
    kl_divergence,
    normalise,
    ratio,
    squared_error,
)
from lamarckian.ops.returns import advantages, discounted_returns
from lamarckian.ops.vtrace import VTrace, vtrace

__all__ = [
    "VTrace",
    "advantages",
    "clipped_surrogate",
    "clipped_value_loss",
    "discounted_returns",
    "dual_clipped_surrogate",
    "huber",
    "kl_divergence",
    "normalise",
    "ratio",
    "squared_error",
    "vtrace",
]
