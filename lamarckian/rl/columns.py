"""Samples in whole columns, T steps of a controller each, for actor-critics whose targets need sequences: IMPALA and A3C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lamarckian.nets import evaluate
from lamarckian.nets.heads import Evaluation
from lamarckian.rl.actor_critic import ActorCritic, SettingsOf, Step, means, rows_of, under

AXIS = 1
"""The axis of columns in a fragment's arrays."""


class Evaluated(NamedTuple):
    """What a policy says of columns: values `[T+1, B, R]`; of each head's actions `[T·B]`."""

    value_tT: Tensor
    evaluations: dict[str, Evaluation]


def samples(learner: ActorCritic[SettingsOf], batch: Mapping[str, Tensor], mask: Tensor) -> tuple[dict[str, Tensor], Tensor | None]:
    """What a loss needs of a batch, `[T, B, …]`, and its `mask`; the columns where that is not all False, or None for all."""
    names = ("reward", "bootstrap", "terminated", "truncated", "learn")
    kept = {name: x for name, x in batch.items() if name in names or name.startswith(("inputs.", "legal.", "action.", "log_prob."))}
    any_in_column = mask.any(0)
    kept |= {"mask": mask, **learner.remembered(batch, len(mask) + 1)}
    return kept, None if bool(any_in_column.all()) else any_in_column.nonzero().squeeze(1)


def evaluated(learner: ActorCritic[SettingsOf], chunk: Mapping[str, Tensor]) -> Evaluated:
    """One forward pass over columns, the observations that they end with among them."""
    steps, columns = chunk["mask"].shape
    rows = steps * columns
    outputs = learner.unroll(chunk)
    evaluations = evaluate(
        learner.role,
        learner.policy.heads,
        {name: rows_of(parameters, slice(rows)) for name, parameters in outputs.heads.items()},
        {name: x.flatten(0, 1) for name, x in under(chunk, "action.").items()},
        {name: x[:-1].flatten(0, 1) for name, x in under(chunk, "legal.").items()},
    )
    return Evaluated(outputs.value.unflatten(0, (steps + 1, columns)), evaluations)


def loss(
    learner: ActorCritic[SettingsOf],
    found: Evaluated,
    weight: Tensor,
    objectives: Iterable[Tensor],
    target: Tensor,
    entropy_weight: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """−Σ objective − w_H Σ H + w_V Σ error(V, target), and its terms as `Loss` has them; sums weighted by `weight` `[T·B]`.

    objectives: of each head, such as A log π, `[T·B]`. target: of the values, `[T·B, R]`, without gradients.
    """
    value = found.value_tT[:-1].flatten(0, 1)
    value_loss = weight @ learner.value_error()(value, target)
    total = learner.settings.value_weight * value_loss.sum()
    terms: dict[str, Tensor] = {}
    for objective, (name, (_, entropies, active)) in zip(objectives, found.evaluations.items(), strict=True):
        policy_loss, entropy = -(weight @ objective), weight @ entropies
        total = total + policy_loss - entropy_weight * entropy
        terms[f"loss.policy.{name}"], terms[f"entropy.{name}"] = policy_loss.detach(), entropy.detach()
        terms[f"active.{name}"] = weight.sum() if active is None else weight @ active.float()

    with torch.no_grad():
        error = target - value
        moments = {"loss.value": value_loss, "return": weight @ target, "return_square": weight @ target.square()}
        moments |= {"error": weight @ error, "error_square": weight @ error.square()}
        for term, x in moments.items():
            terms |= learner.term_by_reward(term, x)
    return total, terms


def explained(steps: list[Step]) -> tuple[list[float], list[float]]:
    """For each reward: how much of the targets' variance the values explain, and the targets' mean."""
    mean, square, error, error_square = (list(means(steps, f"{x}.").values()) for x in ("return", "return_square", "error", "error_square"))
    variances = [b - a * a for a, b in zip(mean, square, strict=True)]
    rests = [b - a * a for a, b in zip(error, error_square, strict=True)]
    return [1 - rest / variance if variance > 0 else 0.0 for rest, variance in zip(rests, variances, strict=True)], mean
