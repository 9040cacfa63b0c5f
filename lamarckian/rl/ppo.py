"""Proximal policy optimisation (Schulman et al. 2017), with the dual clip and the decoupled heads of Ye et al. 2020."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Annotated, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from lamarckian import ops
from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import FlatParameters, Policy, choose, evaluate
from lamarckian.nets.precision import Dtype, MemoryFormat

Discount: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Part: TypeAlias = slice | Tensor
"""Some of the samples: a range, or their indices."""


class PPOSettings(BaseModel):
    """The settings of PPO.

    epochs: how often each sample is used. minibatches: steps of the optimiser in an epoch.
    gamma: one discount, or one for each reward name.
    reward_weights: A = Σ_r w_r A_r; a name left out weighs 1.
    clip: ε of the ratio; dual_clip: c of Ye et al., None for no second clip; value_clip: ε of the values, None for none.
    entropy_weight: goes linearly to `final_entropy_weight` over the run, where that is given.
    target_kl: no further epoch once an epoch's mean KL divergence is above it.
    max_staleness: samples of an older version than this many updates ago are left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    learning_rate: float = Field(default=3e-4, gt=0)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    epochs: int = Field(default=4, ge=1)
    minibatches: int = Field(default=4, ge=1)
    gamma: Discount | dict[str, Discount] = 0.99
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    reward_weights: dict[str, float] = {}
    normalise_advantage: bool = True
    clip: float = Field(default=0.2, gt=0)
    dual_clip: float | None = Field(default=None, gt=1)
    value_loss: Literal["squared", "huber"] = "squared"
    value_clip: float | None = Field(default=None, gt=0)
    value_weight: float = Field(default=0.5, ge=0)
    entropy_weight: float = Field(default=0.01, ge=0)
    final_entropy_weight: float | None = Field(default=None, ge=0)
    max_gradient_norm: float | None = Field(default=0.5, gt=0)
    target_kl: float | None = Field(default=None, gt=0)
    max_staleness: int | None = Field(default=None, ge=0)
    adam_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    adam_epsilon: float = Field(default=1e-5, gt=0)


class PPO:
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

    def __init__(
        self,
        policy: Policy,
        role: Role,
        settings: PPOSettings,
        *,
        device: str = "cpu",
        dtype: Dtype = "auto",
        memory_format: MemoryFormat = "auto",
        seed: int = 0,
    ) -> None:
        self.policy, self.role, self.settings = policy.to(device), role, settings
        self.device = torch.device(device)
        self.precision = choose(policy, role, self.device, dtype, memory_format)
        self.parameters = FlatParameters(policy)
        self._optimizer = torch.optim.Adam(
            [self.parameters.parameter], lr=settings.learning_rate, betas=settings.adam_betas, eps=settings.adam_epsilon, fused=True
        )
        self._adam = {
            "step": torch.zeros((), device=self.device),
            "exp_avg": torch.zeros_like(self.parameters.gradient),
            "exp_avg_sq": torch.zeros_like(self.parameters.gradient),
        }
        self._optimizer.state[self.parameters.parameter] = self._adam
        names = [f"{term}.{head}" for head in role.heads for term in ("loss.policy", "entropy", "kl", "clipped", "active")]
        self._names = [*names, *(f"loss.value.{reward}" for reward in role.rewards), "ratio_max", "gradient_norm"]
        self._generator = torch.Generator().manual_seed(seed)
        gamma = settings.gamma if isinstance(settings.gamma, dict) else dict.fromkeys(role.rewards, settings.gamma)
        self._gamma = self._per_reward("gamma", gamma)
        self._reward_weights = self._per_reward("reward_weights", dict.fromkeys(role.rewards, 1.0) | settings.reward_weights)

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        settings = self.settings
        batch = {name: x.to(self.device, non_blocking=True) for name, x in batch.items()}
        samples, selected, metrics = self._samples(batch, version)
        learning_rate = settings.learning_rate * _factor(settings.learning_rate_schedule, progress)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        final = settings.entropy_weight if settings.final_entropy_weight is None else settings.final_entropy_weight
        entropy_weight = settings.entropy_weight + (final - settings.entropy_weight) * progress

        steps: list[dict[str, float]] = []
        spent = {"forward": 0.0, "backward": 0.0, "step": 0.0}
        epochs = 0
        while epochs < settings.epochs and metrics["samples"]:
            first = len(steps)
            minibatches = self._minibatches(len(samples["advantage"]), selected)
            try:
                steps.extend(self._step(samples, part, entropy_weight, spent) for part in minibatches)
            except NumericsError as error:
                raise NumericsError(f"PPO, update of version {version}: {error}; {_suspects(batch)}") from None
            epochs += 1
            if settings.target_kl is not None and sum(_means(steps[first:], "kl.").values()) > settings.target_kl:
                break
        metrics |= self._summary(steps) if steps else {}
        metrics |= {"learning_rate": learning_rate, "epochs_done": epochs}
        return metrics | {f"time.{name}_s": seconds for name, seconds in spent.items()}

    def state_dict(self) -> dict[str, Tensor]:
        state = {"parameters": self.parameters.parameter.detach(), "generator": self._generator.get_state()}
        return {name: x.clone() for name, x in (state | {f"adam.{name}": x for name, x in self._adam.items()}).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        mine = self.state_dict()
        if state.keys() != mine.keys() or any(state[name].shape != x.shape for name, x in mine.items()):
            raise CheckpointError(
                f"this is not the state of a PPO learner of {len(self.parameters.gradient)} parameters: expected "
                f"{ {name: tuple(x.shape) for name, x in mine.items()} }, got { {name: tuple(x.shape) for name, x in state.items()} }"
            )
        with torch.no_grad():
            self.parameters.parameter.copy_(state["parameters"])
        for name, x in self._adam.items():
            x.copy_(state[f"adam.{name}"])
        self._generator.set_state(state["generator"].cpu())

    def _per_reward(self, setting: str, given: Mapping[str, float]) -> Tensor:
        if set(given) != set(self.role.rewards):
            raise RecipeError(f"`{setting}` names the rewards {sorted(given)}; the game has {sorted(self.role.rewards)}")
        return torch.tensor([given[name] for name in self.role.rewards], device=self.device)

    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The samples `[T·B, …]`; indices of those to learn from, or None for all; metrics of the batch."""
        settings, value = self.settings, batch["value"][:-1]
        advantage = ops.advantages(
            batch["reward"], batch["value"], batch["bootstrap"], batch["terminated"], batch["truncated"], self._gamma, settings.gae_lambda
        )
        target = advantage + value
        staleness = version - batch["version"]
        mask = batch["learn"] if settings.max_staleness is None else batch["learn"] & (staleness <= settings.max_staleness)
        scalar = advantage @ self._reward_weights
        if settings.normalise_advantage:
            scalar = ops.normalise(scalar, mask)
        rows = {name: x for name, x in batch.items() if name.startswith(("inputs.", "legal.", "action.", "log_prob."))}
        rows |= {"advantage": scalar, "target": target, "value": value}
        samples = {name: x[: len(value)].flatten(0, 1) for name, x in rows.items()}

        used, learnable = int(mask.sum()), int(batch["learn"].sum())
        selected = None if used == mask.numel() else mask.flatten().nonzero().squeeze(1)
        metrics = {
            "samples": used,
            "samples.stale": learnable - used,
            "staleness.mean": float(staleness.double().mean()),
            "staleness.max": float(staleness.max()),
        }
        kept_target, kept_value = target[mask], value[mask]
        if used:
            variance, rest = kept_target.var(0, unbiased=False), (kept_target - kept_value).var(0, unbiased=False)
            explained = torch.where(variance > 0, 1 - rest / variance, 0.0)
            metrics |= self._by_reward("explained_variance", explained.tolist())
            metrics |= self._by_reward("return.mean", kept_target.mean(0).tolist())
        return samples, selected, metrics

    def _minibatches(self, count: int, selected: Tensor | None) -> Iterator[Part]:
        """Splits the samples at random into minibatches; a single one needs neither shuffling nor gathering."""
        minibatches = self.settings.minibatches
        if minibatches == 1:
            yield slice(0, count) if selected is None else selected
            return
        order = torch.randperm(count if selected is None else len(selected), generator=self._generator).to(self.device)
        order = order if selected is None else selected[order]
        yield from (part for part in order.tensor_split(minibatches) if len(part))

    def _step(self, samples: Mapping[str, Tensor], minibatch: Part, entropy_weight: float, spent: dict[str, float]) -> dict[str, float]:
        """One step of the optimiser; the gradient is summed up over portions that fit the caches."""
        self.parameters.zero_gradient()
        size, parts = _portions(minibatch, self.precision.rows)
        terms: list[Tensor] = []
        ratios: list[Tensor] = []
        for part in parts:
            started = perf_counter()
            chunk = {name: x[part] if isinstance(part, slice) else x.index_select(0, part) for name, x in samples.items()}
            loss = self._loss(chunk, size, entropy_weight, terms, ratios)
            middle = perf_counter()
            loss.backward()
            spent["forward"] += middle - started
            spent["backward"] += perf_counter() - middle

        started = perf_counter()
        gradient = self.parameters.gradient
        # The only wait for the device: everything that is asked of this step comes in one piece.
        ends = torch.stack([torch.stack(ratios).max(), torch.linalg.vector_norm(gradient)])
        numbers = torch.cat([torch.stack(terms).sum(0), ends]).tolist()
        metrics = dict(zip(self._names, numbers, strict=True))
        if not all(map(math.isfinite, numbers)):
            wrong = ", ".join(f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value))
            raise NumericsError(f"{wrong}; the parameters are those from before this step")
        norm, limit = metrics["gradient_norm"], self.settings.max_gradient_norm
        if limit is not None and norm > limit:
            gradient.mul_(limit / norm)
        self._optimizer.step()
        spent["step"] += perf_counter() - started
        return metrics

    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float, terms: list[Tensor], ratios: list[Tensor]) -> Tensor:
        """What `chunk` adds to the loss of a minibatch of `size`. Appends what it adds to `self._names`, and its largest ratio.

        Heads add up: each sample's objective is the sum of its active heads'. So each is averaged over all samples, not
        over those where it is active.
        """
        settings = self.settings
        with self.precision.autocast(self.device):
            outputs = self.policy(self.precision.arrange(_under(chunk, "inputs.")))
        evaluations = evaluate(self.role, self.policy.heads, outputs.heads, _under(chunk, "action."), _under(chunk, "legal."))
        advantage = chunk["advantage"]
        loss = advantage.new_zeros(())
        numbers = []
        for name, (log_prob, entropy, active) in evaluations.items():
            behaviour = chunk[f"log_prob.{name}"]
            ratio = ops.ratio(log_prob, behaviour if active is None else torch.where(active, behaviour, 0.0))
            if settings.dual_clip is None:
                surrogate = ops.clipped_surrogate(ratio, advantage, settings.clip)
            else:
                surrogate = ops.dual_clipped_surrogate(ratio, advantage, settings.clip, settings.dual_clip)
            if active is not None:
                surrogate = torch.where(active, surrogate, 0.0)
            policy_loss, entropy = -surrogate.sum() / size, entropy.sum() / size
            loss = loss + policy_loss - entropy_weight * entropy
            with torch.no_grad():
                kl, clipped = ops.kl_divergence(ratio).sum() / size, ((ratio - 1).abs() > settings.clip).sum() / size
                share = (ratio.new_tensor(len(ratio)) if active is None else active.sum()) / size
                numbers += [policy_loss.detach(), entropy.detach(), kl, clipped, share]
                ratios.append(ratio.max())

        error = ops.squared_error if settings.value_loss == "squared" else ops.huber
        if settings.value_clip is None:
            value_losses = error(outputs.value, chunk["target"])
        else:
            value_losses = ops.clipped_value_loss(error, outputs.value, chunk["value"], chunk["target"], settings.value_clip)
        value_loss = value_losses.sum(0) / size
        terms.append(torch.cat([torch.stack(numbers), value_loss.detach()]))
        return loss + settings.value_weight * value_loss.sum()

    def _summary(self, steps: list[dict[str, float]]) -> dict[str, float]:
        active = _means(steps, "active.")
        values = _means(steps, "loss.value.")
        return {
            "loss.policy": sum(_means(steps, "loss.policy.").values()),
            "loss.value": sum(values.values()),
            **({f"loss.value.{name}": x for name, x in values.items()} if len(values) > 1 else {}),
            **{f"entropy.{name}": x / active[name] if active[name] else 0.0 for name, x in _means(steps, "entropy.").items()},
            "kl": sum(_means(steps, "kl.").values()),
            "clip_fraction": sum(_means(steps, "clipped.").values()) / max(sum(active.values()), 1e-9),
            "ratio_max": max(step["ratio_max"] for step in steps),
            "gradient_norm": sum(step["gradient_norm"] for step in steps) / len(steps),
        }

    def _by_reward(self, metric: str, values: list[float]) -> dict[str, float]:
        if len(values) == 1:
            return {metric: values[0]}
        return {f"{metric}.{name}": value for name, value in zip(self.role.rewards, values, strict=True)}


def _suspects(batch: Mapping[str, Tensor]) -> str:
    """Which arrays of a batch are not finite."""
    counts = {name: int((~torch.isfinite(x)).sum()) for name, x in batch.items() if x.is_floating_point()}
    found = [f"{name} ({count} of {batch[name].numel()})" for name, count in counts.items() if count]
    return f"not finite in the batch: {', '.join(found)}" if found else "the batch is finite: a lower learning rate may help"


def _portions(minibatch: Part, rows: int) -> tuple[int, list[Part]]:
    """How many samples a minibatch has, and its parts, of at most `rows` each and as equal as can be."""
    size = minibatch.stop if isinstance(minibatch, slice) else len(minibatch)
    count = -(-size // rows)
    ranges = [slice(size * index // count, size * (index + 1) // count) for index in range(count)]
    return size, [part if isinstance(minibatch, slice) else minibatch[part] for part in ranges]


def _under(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}


def _means(steps: list[dict[str, float]], prefix: str) -> dict[str, float]:
    names = [name for name in steps[0] if name.startswith(prefix)]
    return {name.removeprefix(prefix): sum(step[name] for step in steps) / len(steps) for name in names}


def _factor(schedule: str, progress: float) -> float:
    """1 at the run's start; at its end 1 if constant, else 0."""
    if schedule == "constant":
        return 1.0
    return 1 - progress if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
