"""Imitation: a policy learns to do what was recorded, by maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from lamarckian.errors import NumericsError, RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import Policy, evaluate
from lamarckian.nets.heads import ranks
from lamarckian.rl.actor_critic import ActorCritic, ActorCriticSettings, Decay, Loss, Step, means, require_state, take, under
from lamarckian.rl.settings import require_default

PLATEAU = "plateau"


class ImitationSettings(ActorCriticSettings):
    """The settings of imitation, beside those of `ActorCriticSettings`.

    data: folder of the matches that `lamarckian record` wrote. validation_share: of the matches, which nothing is learned from.
    optimizer: "sgd" has momentum, v ← β v + (1 − β) ∇, θ ← θ − α v; β is `momentum`.
    patience: epochs in a row that may pass without a lower validation loss, before the learning rate is cut: multiplied by
        `learning_rate_cut`.
    value_weight: of the critic's loss: it learns what the recorded player's returns were, for those who go on from here.
    top_k: also counts how often the action is not among so many that the policy finds likeliest.
    """

    data: str
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    optimizer: Literal["sgd", "adam"] = "adam"  # type: ignore[assignment]
    momentum: Decay = 0.9
    patience: int = Field(default=1, ge=1)
    learning_rate_cut: float = Field(default=0.5, gt=0, lt=1)
    top_k: int = Field(default=5, ge=2)
    entropy_weight: float = Field(default=0.0, ge=0)
    max_staleness: None = None

    @field_validator("data")
    @classmethod
    def _absolute(cls, data: str) -> str:
        return str(Path(data).resolve())


class Imitation(ActorCritic[ImitationSettings]):
    """Recorded steps → versions, see `Algorithm` and `Student`. One pass over each batch.

    Batches have the arrays of fragments as far as players alone decide them, `inputs`, `legal`, `action`, `learn`, and `return`
    `[T, B, R]`. The same seed and the same batches give the same versions, bit for bit.

    | metric | mean over the update's steps; with `validation.` before it, over all validation matches |
    | --- | --- |
    | `loss.policy` | −log π, summed over heads: of what was recorded |
    | `loss.value`, `loss.value.<reward>` | summed over rewards; each, where there are several |
    | `entropy.<head>` | nats, over the samples where the head is active |
    | `top1_error.<head>`, `top<k>_error.<head>` | share of active samples whose action is not the likeliest, not among the k likeliest |
    | `gradient_norm`, `learning_rate` | before clipping; of this update |
    | `samples` | used |
    | `validation.since_best` | epochs since the validation loss was lowest |
    | `time.forward_s`, `time.backward_s`, `time.step_s` | sums |
    """

    Settings = ImitationSettings
    axis = 0

    def __init__(self, policy: Policy, role: Role, settings: ImitationSettings, **options: Any) -> None:
        if policy.state:
            raise RecipeError("imitation learns from single steps, so it cannot train a recurrent network; leave out its recurrent part")
        require_default(settings, ("rmsprop_decay", "rmsprop_epsilon"), "imitation has the optimizers adam and sgd")
        super().__init__(policy, role, settings, **options)
        self._cut, self._best, self._since_best = 1.0, math.inf, 0

    @property
    def gamma(self) -> np.ndarray:
        """The discounts of the returns, `[R]`."""
        return self._gamma.cpu().numpy()

    def validate(self, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
        """What the batches of an epoch's validation say; cuts the learning rate where they say so."""
        sums: dict[str, float] = {}
        count = 0
        with torch.no_grad():
            for batch in batches:
                samples, selected, _ = self._samples({name: x.to(self.device) for name, x in batch.items()}, 0)
                size, parts = self._portions(samples, slice(0, batch["learn"].numel()) if selected is None else selected)
                count += size
                for part in parts:
                    for name, x in self._loss({name: take(x, part, 0) for name, x in samples.items()}, 1, 0.0).terms.items():
                        sums[name] = sums.get(name, 0.0) + float(x)
        found = self._told({name: x / count for name, x in sums.items()})
        loss = found["loss.policy"]
        if not math.isfinite(loss):
            raise NumericsError(f"the validation loss is {loss}; a lower learning rate may help")
        self._since_best = 0 if loss < self._best else self._since_best + 1
        self._best = min(loss, self._best)
        if self._since_best and self._since_best % self.settings.patience == 0:
            self._cut *= self.settings.learning_rate_cut
        return {f"validation.{name}": x for name, x in found.items()} | {"validation.since_best": self._since_best}

    def state_dict(self) -> dict[str, Tensor]:
        plateau = torch.tensor([self._cut, self._best, self._since_best], dtype=torch.float64)
        return super().state_dict() | {PLATEAU: plateau}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        require_state(self, self.state_dict(), state)
        super().load_state_dict({name: x for name, x in state.items() if name != PLATEAU})
        self._cut, self._best, since_best = state[PLATEAU].tolist()
        self._since_best = int(since_best)

    def _make_optimizer(self) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
        settings = self.settings
        if settings.optimizer == "adam":
            return super()._make_optimizer()
        optimizer = torch.optim.SGD(
            [self.parameters.parameter], lr=settings.learning_rate, momentum=settings.momentum, dampening=settings.momentum
        )
        return optimizer, self._attach("sgd", optimizer, {"momentum_buffer": torch.zeros_like(self.parameters.gradient)})

    def _learning_rate(self, progress: float) -> float:
        return super()._learning_rate(progress) * self._cut

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The samples `[T·B, …]`."""
        mask = batch["learn"].flatten()
        samples = {
            name: x.flatten(0, 1) for name, x in batch.items() if name == "return" or name.startswith(("inputs.", "legal.", "action."))
        }
        return samples, None if bool(mask.all()) else mask.nonzero().squeeze(1), {"samples": int(mask.sum())}

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        actions, legal = under(chunk, "action."), under(chunk, "legal.")
        with self.precision.autocast(self.device):
            outputs = self.policy(self.precision.arrange(under(chunk, "inputs.")))
        evaluations = evaluate(self.role, self.policy.heads, outputs.heads, actions, legal)
        likelier = ranks(self.role, self.policy.heads, outputs.heads, actions, legal)
        value_loss = self.value_error()(outputs.value, chunk["return"]).sum(0) / size
        loss = self.settings.value_weight * value_loss.sum()
        terms = self.term_by_reward("loss.value", value_loss)
        for name, evaluation in evaluations.items():
            policy_loss, entropy = -evaluation.log_prob.sum() / size, evaluation.entropy.sum() / size
            loss = loss + policy_loss - entropy_weight * entropy
            active = torch.ones_like(evaluation.log_prob, dtype=torch.bool) if evaluation.active is None else evaluation.active
            terms[f"loss.policy.{name}"], terms[f"entropy.{name}"] = policy_loss.detach(), entropy.detach()
            terms[f"active.{name}"] = active.sum() / size
            if name in likelier:
                for k in (1, self.settings.top_k):
                    terms[f"top{k}_error.{name}"] = (active & (likelier[name] >= k)).sum() / size
        return Loss(loss, terms, loss.new_zeros(()))

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        mean = means(steps, "")
        return self._told(mean) | {"gradient_norm": mean["gradient_norm"]}

    def _told(self, mean: Mapping[str, float]) -> dict[str, float]:
        """The metrics of all that a `Loss` has here, from its terms' means."""
        values = {name: x for name, x in mean.items() if name.startswith("loss.value.")}
        told = {"loss.policy": sum(x for name, x in mean.items() if name.startswith("loss.policy.")), "loss.value": sum(values.values())}
        if len(values) > 1:
            told |= values
        errors = [f"top{k}_error" for k in (1, self.settings.top_k)]
        for head in self.role.heads:
            active = mean[f"active.{head}"] or 1.0
            told |= {name: mean[name] / active for kind in ("entropy", *errors) if (name := f"{kind}.{head}") in mean}
        return told
