"""A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783): actors compute gradients, the learner steps by them as they come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from lamarckian import ops
from lamarckian.errors import NumericsError
from lamarckian.rl import columns
from lamarckian.rl.actor_critic import ActorCritic, ActorCriticSettings, Loss, Step, behaviour_log_prob, largest, suspects


class A3CSettings(ActorCriticSettings):
    """The settings of A3C, beside those of `ActorCriticSettings`.

    minibatches: a fragment makes one gradient.
    gae_lambda: λ of the advantages; at 1 they are the paper's, the return of up to T steps less the value.
    max_staleness: gradients at an older version than this many updates ago are dropped.
    optimizer: its statistics are the learner's, and so shared by all actors.
    """

    minibatches: Literal[1] = 1
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"


class A3C(ActorCritic[A3CSettings]):
    """Gradients → versions at the learner, fragments → gradients at an actor, each with an object of its own; see `GradientAlgorithm`.

    | metric | of the fragment that the gradient comes from |
    | --- | --- |
    | `loss.policy` | −A log π, summed over heads |
    | `loss.value`, `loss.value.<reward>` | summed over rewards; each, where there are several |
    | `entropy.<head>` | nats, over the samples where the head is active |
    | `kl`, `ratio_max` | k3 estimate of KL(policy that acted ‖ the gradient's), and the largest ratio; of all heads jointly |
    | `gradient_norm` | before clipping |
    | `explained_variance`, `return.mean` | of the values, and of their targets, the λ-returns; each reward's |
    | `samples`, `samples.stale` | used; left out because an older version had acted |
    | `learning_rate` | of this update |
    | `staleness.mean`, `staleness.max` | of the gradient: versions that were made while it was |
    | `time.step_s` | |
    """

    Settings = A3CSettings
    axis = columns.AXIS
    from_gradients = True

    def publication(self) -> np.ndarray:
        """As `GradientAlgorithm.publication`: the parameters, the entropy weight, the reward weights."""
        return np.concatenate([self.parameters.array(), [self._entropy_weight], self._reward_weights.cpu()], dtype=np.float32)

    def adopt(self, publication: np.ndarray) -> None:
        """As `GradientAlgorithm.adopt`."""
        size = len(self.parameters.gradient)
        published = torch.from_numpy(publication)
        with torch.no_grad():
            self.parameters.parameter.copy_(published[:size])
        self._entropy_weight.copy_(published[size])
        self._reward_weights.copy_(published[size + 1 :])

    def gradient(self, batch: Mapping[str, Tensor], version: int) -> dict[str, float]:
        """As `GradientAlgorithm.gradient`."""
        samples, selected, counts = self._samples(batch, version)
        [part] = self._minibatches(batch["learn"].shape[1], selected)
        spent = dict.fromkeys(("forward", "backward", "step"), 0.0)
        try:
            metrics = self._learn(lambda: [self._differentiate(samples, part, self._entropy_weight.item(), spent)], counts["samples"] > 0)
        except NumericsError as error:
            raise NumericsError(f"A3C, gradient at version {version}: {error}; {suspects(batch, self.peers)}") from None
        return metrics | {name: counts[name] for name in ("samples", "samples.stale")}

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        """Steps by the gradient of the batch; see `GradientAlgorithm.update`."""
        started = perf_counter()
        learning_rate, entropy_weight = self._schedule(progress)
        self._entropy_weight.fill_(entropy_weight)
        if batch["samples"].item():
            gradient = self.parameters.gradient
            gradient.copy_(batch["gradient"][0])
            norm = torch.linalg.vector_norm(gradient).item()
            if not math.isfinite(norm):
                raise NumericsError(f"A3C, update of version {version}: the norm of a gradient that came is {norm}")
            self._apply(norm)
        staleness = float(version - batch["version"].item())
        return {
            "learning_rate": learning_rate,
            "staleness.mean": staleness,
            "staleness.max": staleness,
            "time.step_s": perf_counter() - started,
        }

    def _make_optimizer(self) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
        """Beside its state stands the entropy weight of gradients to come: the first publication of a resumed run needs it."""
        optimizer, state = super()._make_optimizer()
        self._entropy_weight = torch.tensor(self.settings.entropy_weight)
        return optimizer, state | {"entropy_weight": self._entropy_weight}

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The fragment itself, `[T, B, …]`, with its mask; columns where there is something to learn."""
        mask, metrics = self._mask(batch, version)
        return *columns.samples(self, batch, mask), metrics

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        weight = chunk["mask"].flatten() / size
        found = columns.evaluated(self, chunk)
        value_tT = found.value_tT.detach()
        advantage = ops.advantages(
            chunk["reward"], value_tT, chunk["bootstrap"], chunk["terminated"], chunk["truncated"], self._gamma, self.settings.gae_lambda
        )
        target = (advantage + value_tT[:-1]).flatten(0, 1)
        scalar = (advantage @ self._reward_weights).flatten()
        objectives = (scalar * evaluation.log_prob for evaluation in found.evaluations.values())
        loss, terms = columns.loss(self, found, weight, objectives, target, entropy_weight)
        with torch.no_grad():
            acted = [behaviour_log_prob(chunk[f"log_prob.{name}"].flatten(), x) for name, x in found.evaluations.items()]
            ratio = ops.ratio(sum(x.log_prob for x in found.evaluations.values()), sum(acted))  # type: ignore[arg-type]
            terms["kl"] = weight @ ops.kl_divergence(ratio)
            return Loss(loss, terms, largest(ratio * (weight > 0)))

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        explained, mean = columns.explained(steps)
        return super()._summary(steps) | self._by_reward("explained_variance", explained) | self._by_reward("return.mean", mean)
