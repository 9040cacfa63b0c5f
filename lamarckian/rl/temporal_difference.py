"""How far Q(s, a) is from its targets: of single steps, and of whole columns for a network that remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lamarckian import ops
from lamarckian.data.replay import Sequences, Windows
from lamarckian.mdp import Role
from lamarckian.nets import Precision, QNetwork, activity, mode
from lamarckian.nets.heads import Parameters, mean_over_heads
from lamarckian.rl.actor_critic import rows_of

if TYPE_CHECKING:
    from lamarckian.rl.dqn import DQNSettings


class Judged(NamedTuple):
    """A portion's part of a minibatch's loss; |TD error| of its entries `[K]`; Q, target and |TD error|, summed over its samples `[3]`."""

    loss: Tensor
    errors: Tensor
    sums: Tensor


class TemporalDifference:
    """Compares what `policy` says of the actions taken with targets, for which `target` judges what they led to.

    reward_weights: `[R]`, of the rewards in a target; may be set anew at any time.
    """

    def __init__(
        self, role: Role, settings: DQNSettings, policy: QNetwork, target: QNetwork, precision: Precision, reward_weights: Tensor
    ) -> None:
        self.reward_weights = reward_weights
        self._role, self._settings, self._policy, self._target, self._precision = role, settings, policy, target, precision

    @torch.no_grad()
    def targets(self, windows: Windows[Tensor]) -> Tensor:
        """Σ_i γ^i r_i + γ^k Q⁻(s', argmax_a Q(s', a)) over the actions that are legal there, `[K]`; Q⁻ in the argmax where not double."""
        judged = self._qualities(self._target, windows.next_inputs)
        chosen = self._qualities(self._policy, windows.next_inputs) if self._settings.double else judged
        best = mode(self._role, self._policy.heads, chosen, windows.next_legal)
        value = mean_over_heads(self._values(judged, best), activity(self._role, best))
        return windows.returns @ self.reward_weights + windows.discount * value

    def of_steps(self, windows: Windows[Tensor], weight: Tensor, size: int, target: Tensor | None = None) -> Judged:
        """Steps of a minibatch of `size`. target: as `targets` gives it, where it is known already."""
        target = self.targets(windows) if target is None else target
        taken = self._values(self._qualities(self._policy, windows.inputs), windows.actions)
        losses, errors, q = self._judged(taken, target, windows.actions)
        return Judged((weight * losses).sum() / size, errors, torch.stack([q, target, errors]).sum(1))

    def of_columns(self, drawn: Sequences[Tensor], weight: Tensor, size: int) -> Judged:
        """As `of_steps`, of whole columns, time-major inside; a column's error is 0.9 of its largest and 0.1 of its mean."""
        begin, (columns, steps) = self._settings.burn_in, drawn.learn.shape
        rows = (steps - begin) * columns
        actions = {name: _time_major(x[:, begin:]) for name, x in drawn.actions.items()}
        legal = {name: _time_major(x[:, begin:]) for name, x in drawn.legal.items()}
        chosen = self._unrolled(self._policy, drawn)
        with torch.no_grad():
            judged = self._unrolled(self._target, drawn)
            best = mode(self._role, self._policy.heads, chosen if self._settings.double else judged, legal)
            value = mean_over_heads(self._values(judged, best), activity(self._role, best)).unflatten(0, (-1, columns))
            value = value.gather(0, drawn.ends[:, begin:].T - begin).flatten()
            target = _time_major(drawn.returns[:, begin:]) @ self.reward_weights + _time_major(drawn.discount[:, begin:]) * value
        taken = self._values({name: rows_of(q, slice(rows)) for name, q in chosen.items()}, actions)
        learn = _time_major(drawn.learn[:, begin:])
        losses, errors, q = (x * learn for x in self._judged(taken, target, actions))
        loss = (weight * losses.unflatten(0, (-1, columns)).sum(0)).sum() / size
        sums = torch.stack([q, target * learn, errors]).sum(1)
        errors = errors.unflatten(0, (-1, columns))
        mean = errors.sum(0) / drawn.learn[:, begin:].sum(1).clamp(min=1)
        return Judged(loss, 0.9 * errors.amax(0) + 0.1 * mean, sums)

    def _judged(self, taken: Mapping[str, Tensor], target: Tensor, actions: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, |TD error| and Q of each sample, means over the heads that mattered; the last two without gradients."""
        active = activity(self._role, actions)
        error = ops.huber if self._settings.loss == "huber" else ops.squared_error
        losses = mean_over_heads({name: error(q, target) for name, q in taken.items()}, active)
        with torch.no_grad():
            errors = mean_over_heads({name: (target - q).abs() for name, q in taken.items()}, active)
            return losses, errors, mean_over_heads(taken, active).detach()

    def _unrolled(self, network: QNetwork, drawn: Sequences[Tensor]) -> dict[str, Parameters]:
        """What a network says in all rows of some columns but those of the burn-in, time-major `[(T+1−burn_in)·K, n]` by head."""
        begin = self._settings.burn_in
        state = {name: x if self._settings.stored_state else torch.zeros_like(x) for name, x in drawn.state.items()}
        inputs, first = drawn.inputs, drawn.first.T
        with self._precision.autocast(self.reward_weights.device):
            if begin:
                with torch.no_grad():
                    early = self._precision.arrange({name: _time_major(x[:, :begin]) for name, x in inputs.items()})
                    state = network(early, state, first[:begin]).state
            late = self._precision.arrange({name: _time_major(x[:, begin:]) for name, x in inputs.items()})
            return network(late, state, first[begin:]).heads  # type: ignore[no-any-return]

    def _qualities(self, network: QNetwork, inputs: Mapping[str, Tensor]) -> dict[str, Parameters]:
        with self._precision.autocast(self.reward_weights.device):
            return network(self._precision.arrange(inputs)).heads  # type: ignore[no-any-return]

    def _values(self, qualities: Mapping[str, Any], actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Q of the actions, `[K]` by head."""
        return {name: quality.q.gather(-1, actions[name].long().unsqueeze(-1)).squeeze(-1) for name, quality in qualities.items()}


def _time_major(x: Tensor) -> Tensor:
    """`[K, T, …]` → `[T·K, …]`."""
    return x.transpose(0, 1).flatten(0, 1)
