"""What the rewards of a training come to, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from lamarckian import ops
from lamarckian.actor.process import LANE_BITS
from lamarckian.data.fragment import OUTCOMES
from lamarckian.data.pool import MatchResult
from lamarckian.learner.batches import Batch


class Paid:
    """For each of several rewards: its mean a step, and its share of Σ |weight · reward|; nothing where there is only one.

    Of all samples of a batch; and of the matches that ended in it, by the outcome for the role, and by role where several learn. Where
    fragments have a critic's values, the value loss, too: of all steps to learn from, by role, and by the outcome of matches that ended in
    the same column.

    weights: of all rewards, now. discounts: γ of those that values are learned of. matches: that an actor plays at once.
    """

    def __init__(
        self, roles: Sequence[str], weights: Callable[[], Mapping[str, float]], discounts: Mapping[str, float] = {}, matches: int = 1
    ) -> None:
        self._roles = roles
        self._weights = weights
        self._gamma = torch.tensor(list(discounts.values()))
        self._matches = matches

    def __call__(self, batch: Batch) -> dict[str, float]:
        weights = self._weights()
        if len(weights) == 1:
            return {}
        rewards = batch.rewards.astype(np.float64)
        found = _figures("", weights, rewards.mean(axis=0), np.abs(rewards).mean(axis=0))
        groups = {f"outcome.{outcome}.": _where(batch.results, outcome=outcome) for outcome in OUTCOMES[1:]}
        if len(self._roles) > 1:
            groups |= {f"role.{role}.": _where(batch.results, role=role) for role in self._roles}
        for group, results in groups.items():
            if results:
                returns = np.array([result.returns for result in results])
                steps = sum(result.length for result in results)
                found |= _figures(group, weights, returns.sum(axis=0) / steps, np.abs(returns).sum(axis=0) / steps)
        if len(self._gamma) and "value" in batch.tensors:
            found |= self._value_losses(batch.tensors, list(weights))
        return found

    def _value_losses(self, batch: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, float]:
        """½ (G − V)² of the version that acted; G: rewards to the end of the match or of the column, and V of what is behind that."""
        value, learn = batch["value"], batch["learn"]
        ends = batch["bootstrap"], batch["terminated"], batch["truncated"]
        loss = ops.squared_error(value[:-1], ops.discounted_returns(batch["reward"], value[-1], *ends, self._gamma))
        outcome = _outcomes(batch["outcome"], batch["terminated"] | batch["truncated"])
        groups = {"": learn} | {f"outcome.{OUTCOMES[code]}.": learn & (outcome == code) for code in range(1, len(OUTCOMES))}
        if len(self._roles) > 1:
            role = (batch["lane"] & LANE_BITS) // self._matches
            groups |= {f"role.{name}.": learn & (role == k) for k, name in enumerate(self._roles)}
        return {
            f"value_loss.{group}{name}": mean
            for group, mask in groups.items()
            if bool(mask.any())
            for name, mean in zip(names, loss[mask].double().mean(0).tolist(), strict=True)
        }


def _outcomes(outcome: Tensor, ended: Tensor) -> Tensor:
    """For each step `[T, B]`, of the match that it belongs to; 0 where that goes on behind the column."""
    found = torch.empty_like(outcome)
    running = torch.zeros_like(outcome[0])
    for t in range(len(outcome) - 1, -1, -1):
        running = found[t] = torch.where(ended[t], outcome[t], running)
    return found


def _where(results: Iterable[MatchResult], **wanted: str | None) -> list[MatchResult]:
    return [result for result in results if all(getattr(result, name) == value for name, value in wanted.items())]


def _figures(group: str, weights: Mapping[str, float], means: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    shares = sizes * np.abs(list(weights.values()))
    shares = shares / (shares.sum() or 1.0)
    return {
        f"{metric}.{group}{name}": float(value)
        for name, mean, share in zip(weights, means, shares, strict=True)
        for metric, value in (("reward", mean), ("reward_share", share))
    }
