"""What the rewards of a training come to, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from lamarckian.data.pool import MatchResult
from lamarckian.learner.batches import Batch


class Paid:
    """For each of several rewards: its mean a step, and its share of Σ |weight · reward|; nothing where there is only one.

    Of all samples of a batch; and of the matches that ended in it, by the outcome for the role, and by role where several learn.
    weights: of all rewards, now.
    """

    def __init__(self, roles: Sequence[str], weights: Callable[[], Mapping[str, float]]) -> None:
        self._roles = roles
        self._weights = weights

    def __call__(self, batch: Batch) -> dict[str, float]:
        weights = self._weights()
        if len(weights) == 1:
            return {}
        rewards = batch.rewards.astype(np.float64)
        found = _figures("", weights, rewards.mean(axis=0), np.abs(rewards).mean(axis=0))
        groups = {f"outcome.{outcome}.": _where(batch.results, outcome=outcome) for outcome in ("win", "draw", "loss")}
        if len(self._roles) > 1:
            groups |= {f"role.{role}.": _where(batch.results, role=role) for role in self._roles}
        for group, results in groups.items():
            if results:
                returns = np.array([result.returns for result in results])
                steps = sum(result.length for result in results)
                found |= _figures(group, weights, returns.sum(axis=0) / steps, np.abs(returns).sum(axis=0) / steps)
        return found


def _where(results: Iterable[MatchResult], **wanted: str) -> list[MatchResult]:
    return [result for result in results if all(getattr(result, name) == value for name, value in wanted.items())]


def _figures(group: str, weights: Mapping[str, float], means: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    shares = sizes * np.abs(list(weights.values()))
    shares = shares / (shares.sum() or 1.0)
    return {
        f"{metric}.{group}{name}": float(value)
        for name, mean, share in zip(weights, means, shares, strict=True)
        for metric, value in (("reward", mean), ("reward_share", share))
    }
