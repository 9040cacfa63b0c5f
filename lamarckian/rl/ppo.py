"""Proximal policy optimisation (Schulman et al. 2017), with the dual clip and the decoupled heads of Ye et al. 2020."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import Field
from torch import Tensor

from lamarckian import ops
from lamarckian.nets import evaluate
from lamarckian.nets.heads import Parameters
from lamarckian.rl.actor_critic import (
    ActorCritic,
    ActorCriticSettings,
    Loss,
    Step,
    behaviour_log_prob,
    largest,
    means,
    rows_of,
    under,
)


class PPOSettings(ActorCriticSettings):
    """The settings of PPO, beside those of `ActorCriticSettings`.

    epochs: how often each sample is used. minibatches: a recurrent policy's have whole columns of the batch.
    clip: ε of the ratio; dual_clip: c of Ye et al., None for no second clip; value_clip: ε of the values, None for none.
    target_kl: no further epoch once an epoch's mean KL divergence is above it.
    """

    epochs: int = Field(default=4, ge=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    normalise_advantage: bool = True
    clip: float = Field(default=0.2, gt=0)
    dual_clip: float | None = Field(default=None, gt=1)
    value_clip: float | None = Field(default=None, gt=0)
    target_kl: float | None = Field(default=None, gt=0)


class PPO(ActorCritic[PPOSettings]):
    """Fragments → versions, see `Algorithm`. The same seed and the same batches give the same versions, bit for bit.

    | metric | mean over the update's steps, unless said otherwise |
    | --- | --- |
    | `loss.policy` | −surrogate, summed over heads |
    | `loss.value`, `loss.value.<reward>` | summed over rewards; each, where there are several |
    | `entropy.<head>` | nats, over the samples where the head is active |
    | `kl` | k3 estimate of KL(policy that acted ‖ policy now), summed over heads |
    | `clip_fraction`, `ratio_max` | share of ratios further than ε from 1; the largest ratio of all |
    | `gradient_norm`, `learning_rate` | before clipping; of this update |
    | `explained_variance`, `return.mean` | of the acting policy's values, and of their targets, the λ-returns; each reward's; once |
    | `staleness.mean`, `staleness.max` | versions, over all samples; once |
    | `samples`, `samples.stale`, `epochs_done` | used; left out as stale; epochs that `target_kl` let through |
    | `time.forward_s`, `time.backward_s`, `time.step_s` | sums |
    """

    Settings = PPOSettings
    axis = 0

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The samples `[T·B, …]`, for a recurrent policy `[T, B, …]`; with advantages."""
        settings, value = self.settings, batch["value"][:-1]
        advantage = ops.advantages(
            batch["reward"], batch["value"], batch["bootstrap"], batch["terminated"], batch["truncated"], self._gamma, settings.gae_lambda
        )
        target = advantage + value
        mask, metrics = self._mask(batch, version)
        scalar = advantage @ self._reward_weights
        if settings.normalise_advantage:
            scalar = ops.normalise(scalar, mask, add=self.peers.add)
        rows = {name: x for name, x in batch.items() if name.startswith(("inputs.", "legal.", "action.", "log_prob."))}
        rows |= {"advantage": scalar, "target": target, "value": value}
        samples = {name: x[: len(value)] for name, x in rows.items()}
        if self.recurrent:
            samples |= self.remembered(batch, len(value)) | {"mask": mask}
        else:
            samples = {name: x.flatten(0, 1) for name, x in samples.items()}

        learned = mask.any(0) if self.recurrent else mask.flatten()
        selected = None if bool(learned.all()) else learned.nonzero().squeeze(1)
        kept_target, kept_value = target[mask], value[mask]
        if len(kept_target):
            variance, rest = kept_target.var(0, unbiased=False), (kept_target - kept_value).var(0, unbiased=False)
            explained = torch.where(variance > 0, 1 - rest / variance, 0.0)
            metrics |= self._by_reward("explained_variance", explained.tolist())
            metrics |= self._by_reward("return.mean", kept_target.mean(0).tolist())
        return samples, selected, metrics

    def _learn(self, one_pass: Callable[[], list[Step]], any_samples: bool) -> dict[str, float]:
        settings = self.settings
        steps: list[Step] = []
        epochs = 0
        while any_samples and epochs < settings.epochs:
            newest = one_pass()
            steps += newest
            epochs += 1
            if settings.target_kl is not None and sum(means(newest, "kl.").values()) > settings.target_kl:
                break
        return (self._summary(steps) if steps else {}) | {"epochs_done": epochs}

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        """Heads add up: each sample's objective is the sum of its active heads'. So each is averaged over all samples, not
        over those where it is active.
        """
        settings = self.settings
        heads, values, chunk = self._answers(chunk)
        evaluations = evaluate(self.role, self.policy.heads, heads, under(chunk, "action."), under(chunk, "legal."))
        advantage = chunk["advantage"]
        loss = advantage.new_zeros(())
        terms: dict[str, Tensor] = {}
        ratios = []
        for name, evaluation in evaluations.items():
            active = evaluation.active
            ratio = ops.ratio(evaluation.log_prob, behaviour_log_prob(chunk[f"log_prob.{name}"], evaluation))
            if settings.dual_clip is None:
                surrogate = ops.clipped_surrogate(ratio, advantage, settings.clip)
            else:
                surrogate = ops.dual_clipped_surrogate(ratio, advantage, settings.clip, settings.dual_clip)
            if active is not None:
                surrogate = torch.where(active, surrogate, 0.0)
            policy_loss, entropy = -surrogate.sum() / size, evaluation.entropy.sum() / size
            loss = loss + policy_loss - entropy_weight * entropy
            with torch.no_grad():
                terms[f"loss.policy.{name}"] = policy_loss.detach()
                terms[f"entropy.{name}"] = entropy.detach()
                terms[f"kl.{name}"] = ops.kl_divergence(ratio).sum() / size
                terms[f"clipped.{name}"] = ((ratio - 1).abs() > settings.clip).sum() / size
                terms[f"active.{name}"] = (ratio.new_tensor(len(ratio)) if active is None else active.sum()) / size
                ratios.append(largest(ratio))

        error = self.value_error()
        if settings.value_clip is None:
            value_losses = error(values, chunk["target"])
        else:
            value_losses = ops.clipped_value_loss(error, values, chunk["value"], chunk["target"], settings.value_clip)
        value_loss = value_losses.sum(0) / size
        terms |= self.term_by_reward("loss.value", value_loss)
        return Loss(loss + settings.value_weight * value_loss.sum(), terms, torch.stack(ratios).max())

    def _answers(self, chunk: Mapping[str, Tensor]) -> tuple[Mapping[str, Parameters], Tensor, Mapping[str, Tensor]]:
        """Heads and values of the samples to learn from, and the chunk with those samples only, `[N, …]`."""
        if not self.recurrent:
            with self.precision.autocast(self.device):
                outputs = self.policy(self.precision.arrange(under(chunk, "inputs.")))
            return outputs.heads, outputs.value, chunk
        outputs, rows = self.unroll(chunk), chunk["mask"].flatten().nonzero().squeeze(1)
        heads = {name: rows_of(parameters, rows) for name, parameters in outputs.heads.items()}
        kept = {name: x.flatten(0, 1)[rows] for name, x in chunk.items() if not name.startswith(("inputs.", "state."))}
        return heads, outputs.value[rows], kept

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        clipped, active = sum(means(steps, "clipped.").values()), sum(means(steps, "active.").values())
        return super()._summary(steps) | {"clip_fraction": clipped / max(active, 1e-9)}
