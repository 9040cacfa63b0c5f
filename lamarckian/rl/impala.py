"""IMPALA (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561): actor and critic that V-trace corrects for old samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from lamarckian import ops
from lamarckian.nets.heads import Evaluation
from lamarckian.rl import columns
from lamarckian.rl.actor_critic import ActorCritic, ActorCriticSettings, Loss, Step, behaviour_log_prob, largest


class IMPALASettings(ActorCriticSettings):
    """The settings of IMPALA, beside those of `ActorCriticSettings`.

    epochs: how often each sample is used; V-trace corrects what was learned meanwhile.
    minibatches: each has whole columns of the batch, for V-trace needs sequences.
    heads: "joint": one ratio, the product of all active heads'; "decoupled": V-trace for each head with its own ratio; the heads'
        policy losses add up, and the value loss is their mean.
    rho_clip, c_clip, advantage_rho_clip, trace_lambda: see `ops.vtrace`.
    clip: ε of PPO's surrogate, which then takes the place of the policy gradient: A is not weighted by min(ρ̄', ρ), but by each head's
        own ratio, within 1 ± ε. So V-trace goes with several epochs (APPO; Luo et al. 2019, https://arxiv.org/abs/1912.00167).
    """

    epochs: int = Field(default=1, ge=1)
    heads: Literal["joint", "decoupled"] = "joint"
    rho_clip: float = Field(default=1.0, gt=0)
    c_clip: float = Field(default=1.0, gt=0)
    advantage_rho_clip: float = Field(default=1.0, gt=0)
    trace_lambda: float = Field(default=1.0, ge=0, le=1)
    clip: float | None = Field(default=None, gt=0)
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"

    @model_validator(mode="after")
    def _one_clip(self) -> IMPALASettings:
        if self.clip is not None and self.advantage_rho_clip != 1:
            raise ValueError("clip: given, and advantage_rho_clip, too, by which a surrogate's advantages are not weighted: leave one out")
        return self


class IMPALA(ActorCritic[IMPALASettings]):
    """Fragments → versions, see `Algorithm`. The same seed and the same batches give the same versions, bit for bit.

    The values are those of the version that learns, but for the final observations of truncated
    matches, which are not kept: there they are those of the version that acted.

    | metric | mean over the update's steps, unless said otherwise |
    | --- | --- |
    | `loss.policy` | −A log π, or −surrogate, summed over heads |
    | `loss.value`, `loss.value.<reward>` | summed over rewards; each, where there are several |
    | `entropy.<head>` | nats, over the samples where the head is active |
    | `kl` | k3 estimate of KL(policy that acted ‖ policy now), summed over heads |
    | `rho.mean`, `rho.clipped`, `c.clipped` | mean ratio; share of ratios above ρ̄, above c̄ |
    | `ratio_max` | the largest ratio of all |
    | `gradient_norm`, `learning_rate` | before clipping; of this update |
    | `explained_variance`, `return.mean` | of the values, and of their targets v; each reward's |
    | `staleness.mean`, `staleness.max` | versions, over all samples; once |
    | `samples`, `samples.stale` | used; left out as stale |
    | `time.forward_s`, `time.backward_s`, `time.step_s` | sums |
    """

    Settings = IMPALASettings
    axis = columns.AXIS

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The batch itself, `[T, B, …]`, with its mask; columns where there is something to learn."""
        mask, metrics = self._mask(batch, version)
        return *columns.samples(self, batch, mask), metrics

    def _learn(self, one_pass: Callable[[], list[Step]], any_samples: bool) -> dict[str, float]:
        steps = [step for _ in range(self.settings.epochs if any_samples else 0) for step in one_pass()]
        return self._summary(steps) if steps else {}

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        mask = chunk["mask"]
        weight = mask.flatten() / size
        found = columns.evaluated(self, chunk)
        with torch.no_grad():
            ratios, used = self._ratios(found.evaluations, chunk)
            # A script's step leads on whatever the policy thinks of it; what is recorded there is the policy's own action, never played.
            played = torch.where(chunk["learn"].flatten(), ratios, 1.0)
            traces = [self._vtrace(ratio.view_as(mask), found.value_tT, chunk) for ratio in played]
            advantages = [(trace.advantage_t @ self._reward_weights).flatten() for trace in traces]
            target = torch.stack([trace.target_t for trace in traces]).mean(0).flatten(0, 1)
            ratio_terms = self._ratio_terms(ratios, weight, used)
        objectives = (
            self._objective(evaluation, chunk[f"log_prob.{name}"].flatten(), advantages[index % len(advantages)])
            for index, (name, evaluation) in enumerate(found.evaluations.items())
        )
        loss, terms = columns.loss(self, found, weight, objectives, target, entropy_weight)
        return Loss(loss, terms | ratio_terms, largest(ratios * (weight > 0)))

    def _objective(self, evaluation: Evaluation, recorded: Tensor, advantage: Tensor) -> Tensor:
        """What a head's policy is to make large, `[T·B]`."""
        if self.settings.clip is None:
            return advantage * evaluation.log_prob
        ratio = ops.ratio(evaluation.log_prob, behaviour_log_prob(recorded, evaluation))
        surrogate = ops.clipped_surrogate(ratio, advantage, self.settings.clip)
        return surrogate if evaluation.active is None else torch.where(evaluation.active, surrogate, 0.0)

    def _ratios(self, evaluations: Mapping[str, Evaluation], chunk: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Ratios `[1, T·B]`, or `[heads, T·B]` where decoupled; and where they count, bool, the same."""
        log_prob = torch.stack([evaluation.log_prob for evaluation in evaluations.values()])
        behaviour = torch.stack([behaviour_log_prob(chunk[f"log_prob.{name}"].flatten(), x) for name, x in evaluations.items()])
        if self.settings.heads == "joint":
            ratios = ops.ratio(log_prob.sum(0, keepdim=True), behaviour.sum(0, keepdim=True))
            return ratios, torch.ones_like(ratios, dtype=torch.bool)
        everywhere = torch.ones_like(log_prob[0], dtype=torch.bool)
        return ops.ratio(log_prob, behaviour), torch.stack([everywhere if x.active is None else x.active for x in evaluations.values()])

    def _vtrace(self, ratio_t: Tensor, value_tT: Tensor, chunk: Mapping[str, Tensor]) -> ops.VTrace:
        settings = self.settings
        return ops.vtrace(
            ratio_t, chunk["reward"], value_tT, chunk["bootstrap"], chunk["terminated"], chunk["truncated"], self._gamma,
            rho_clip=settings.rho_clip, c_clip=settings.c_clip,
            advantage_rho_clip=settings.advantage_rho_clip if settings.clip is None else None, trace_lambda=settings.trace_lambda,
        )  # fmt: skip

    def _ratio_terms(self, ratios: Tensor, weight: Tensor, used: Tensor) -> dict[str, Tensor]:
        weights = used * weight
        return {
            "kl": (weights * ops.kl_divergence(ratios)).sum(),
            "ratio": (weights * ratios).sum(),
            "rho_clipped": (weights * (ratios > self.settings.rho_clip)).sum(),
            "c_clipped": (weights * (ratios > self.settings.c_clip)).sum(),
            "ratios": weights.sum(),
        }

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        of = {name: sum(step[name] for step in steps) for name in ("ratio", "rho_clipped", "c_clipped", "ratios")}
        explained, mean = columns.explained(steps)
        return {
            **super()._summary(steps),
            "rho.mean": of["ratio"] / of["ratios"],
            "rho.clipped": of["rho_clipped"] / of["ratios"],
            "c.clipped": of["c_clipped"] / of["ratios"],
            **self._by_reward("explained_variance", explained),
            **self._by_reward("return.mean", mean),
        }
