"""What algorithms of actor and critic share: settings, optimiser, schedules, minibatches, steps, state and metrics."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from lamarckian import ops
from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import FlatParameters, Outputs, Policy, choose
from lamarckian.nets.heads import Evaluation, Parameters
from lamarckian.nets.precision import Dtype, MemoryFormat
from lamarckian.rl.algorithm import Algorithm, Alone, Peers
from lamarckian.rl.averaging import average
from lamarckian.rl.optimiser import adam, factor
from lamarckian.rl.settings import require_constant

Discount: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Decay: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Part: TypeAlias = slice | Tensor
"""Some of the samples: a range, or their indices."""
Step: TypeAlias = dict[str, float]
"""What one step of the optimiser reports."""


class ActorCriticSettings(BaseModel):
    """The settings that algorithms of actor and critic have in common.

    minibatches: steps of the optimiser in a pass over the batch.
    gamma: one discount, or one for each reward name.
    reward_weights: A = Σ_r w_r A_r; a name left out weighs 1.
    entropy_weight: goes linearly to `final_entropy_weight` over the run, where that is given.
    max_staleness: samples of an older version than this many updates ago are left out.
    optimizer: with the settings that begin with its name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learning_rate: float = Field(default=3e-4, gt=0)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    minibatches: int = Field(default=4, ge=1)
    gamma: Discount | dict[str, Discount] = 0.99
    reward_weights: dict[str, float] = {}
    value_loss: Literal["squared", "huber"] = "squared"
    value_weight: float = Field(default=0.5, ge=0)
    entropy_weight: float = Field(default=0.01, ge=0)
    final_entropy_weight: float | None = Field(default=None, ge=0)
    max_gradient_norm: float | None = Field(default=0.5, gt=0)
    max_staleness: int | None = Field(default=None, ge=0)
    adam_betas: tuple[Decay, Decay] = (0.9, 0.999)
    adam_epsilon: float = Field(default=1e-5, gt=0)
    optimizer: Literal["adam", "rmsprop"] = "adam"
    rmsprop_decay: Decay = 0.99
    rmsprop_epsilon: float = Field(default=1e-5, gt=0)


SettingsOf = TypeVar("SettingsOf", bound=ActorCriticSettings)


class Loss(NamedTuple):
    """A portion's part of a minibatch's loss; `terms`, scalars that add up over its portions; the portion's largest ratio."""

    loss: Tensor
    terms: dict[str, Tensor]
    ratio_max: Tensor


class ActorCritic(ABC, Generic[SettingsOf]):
    """Fragments → versions, see `Algorithm`; how a batch is prepared and what its loss is, a subclass says."""

    axis: int
    """The axis of the prepared samples along which minibatches are split: 0, samples `[T·B, …]`, or 1, whole columns `[T, B, …]`."""
    peers: Peers = Alone()

    def __init__(
        self,
        policy: Policy,
        role: Role,
        settings: SettingsOf,
        *,
        device: str = "cpu",
        dtype: Dtype = "auto",
        memory_format: MemoryFormat = "auto",
        seed: int = 0,
    ) -> None:
        self.policy, self.role, self.settings = policy.to(device), role, settings
        self.recurrent = bool(policy.state)
        if self.recurrent:
            self.axis = 1  # what is remembered goes from step to step
        self.device = torch.device(device)
        self.precision = choose(policy, role, self.device, dtype, memory_format)
        self.parameters = FlatParameters(policy)
        self._optimizer, self._optimizer_state = self._make_optimizer()
        self._generator = torch.Generator().manual_seed(seed)
        gamma = settings.gamma if isinstance(settings.gamma, dict) else dict.fromkeys(role.rewards, settings.gamma)
        self._gamma = self._per_reward("gamma", gamma)
        self.set_reward_weights(settings.reward_weights)

    @property
    def discounts(self) -> dict[str, float]:
        """γ of each reward that it learns a value of."""
        return dict(zip(self.role.rewards, self._gamma.tolist(), strict=True))

    def prepare(self, steps: int, endless: bool) -> None:
        """Raises RecipeError where a schedule has no end to go to; see `Algorithm`."""
        settings = self.settings
        if endless:
            require_constant("learning_rate_schedule", settings.learning_rate_schedule, "constant")
            if settings.final_entropy_weight is not None:
                require_constant("final_entropy_weight", settings.final_entropy_weight, settings.entropy_weight)

    def set_reward_weights(self, weights: Mapping[str, float]) -> None:
        """Sets the weights by reward name from the next update on; a name left out weighs 1. They are not in the state.

        Raises RecipeError for a name that is none of the role's rewards.
        """
        self._reward_weights = self._per_reward("reward_weights", {**dict.fromkeys(self.role.rewards, 1.0), **weights})

    @property
    def reward_weights(self) -> dict[str, float]:
        """The weights by reward name."""
        return dict(zip(self.role.rewards, self._reward_weights.tolist(), strict=True))

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        batch = {name: x.to(self.device, non_blocking=True) for name, x in batch.items()}
        samples, selected, metrics = self._samples(batch, version)
        learning_rate, entropy_weight = self._schedule(progress)
        count = batch["learn"].shape[1] if self.axis else batch["learn"].numel()
        spent = {"forward": 0.0, "backward": 0.0, "step": 0.0}

        def one_pass() -> list[Step]:
            steps = (self._step(samples, part, entropy_weight, spent) for part in self._minibatches(count, selected))
            return [step for step in steps if step]

        try:
            metrics |= self._learn(one_pass, metrics["samples"] > 0)
        except NumericsError as error:
            raise NumericsError(f"{type(self).__name__}, update of version {version}: {error}; {suspects(batch, self.peers)}") from None
        metrics["learning_rate"] = learning_rate
        return metrics | {f"time.{name}_s": seconds for name, seconds in spent.items()}

    def state_dict(self) -> dict[str, Tensor]:
        state = {"parameters": self.parameters.parameter.detach(), "generator": self._generator.get_state()}
        return {name: x.clone() for name, x in (state | self._optimizer_state).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        require_state(self, ActorCritic.state_dict(self), state)  # of which a subclass may have more
        with torch.no_grad():
            self.parameters.parameter.copy_(state["parameters"])
        for name, x in self._optimizer_state.items():
            x.copy_(state[name])
        self._generator.set_state(state["generator"].cpu())

    @abstractmethod
    def _samples(self, batch: Mapping[str, Tensor], version: int) -> tuple[dict[str, Tensor], Tensor | None, dict[str, float]]:
        """The prepared samples; indices along `axis` of those to learn from, or None for all; metrics of the batch."""

    def _learn(self, one_pass: Callable[[], list[Step]], any_samples: bool) -> dict[str, float]:
        """Makes as many passes over the batch as it should, one unless a subclass says otherwise; their metrics."""
        return self._summary(one_pass()) if any_samples else {}

    @abstractmethod
    def _loss(self, chunk: Mapping[str, Tensor], size: int, entropy_weight: float) -> Loss:
        """What `chunk` adds to the loss of a minibatch of `size` samples.

        Its terms include `loss.policy.<head>`, `entropy.<head>`, `active.<head>` (share), `kl` or `kl.<head>`, and `loss.value.<reward>`.
        """

    def _portions(self, samples: Mapping[str, Tensor], minibatch: Part) -> tuple[int, list[Part]]:
        """How many samples a minibatch has to learn from, and its parts, each small enough for one forward and backward pass."""
        if not self.axis:
            return split(minibatch, self.precision.rows)
        mask = samples["mask"]
        _, parts = split(minibatch, max(self.precision.rows // len(mask), 1))
        return int(take(mask, minibatch, self.axis).sum()), parts

    def remembered(self, batch: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        """What `unroll` needs beside the inputs, for the first `rows` steps: `first` `[rows, B]`, and states `[1, B, …]`."""
        if not self.recurrent:
            return {}
        ended = batch["terminated"] | batch["truncated"]
        first = torch.cat([torch.zeros_like(ended[:1]), ended])[:rows]
        return {"first": first, **{name: x.unsqueeze(0) for name, x in batch.items() if name.startswith("state.")}}

    def unroll(self, chunk: Mapping[str, Tensor]) -> Outputs:
        """The policy's outputs `[T·B, …]` for the inputs of whole columns, `[T, B, …]`."""
        inputs = self.precision.arrange({name: x.flatten(0, 1) for name, x in under(chunk, "inputs.").items()})
        with self.precision.autocast(self.device):
            if not self.recurrent:
                return self.policy(inputs)
            return self.policy(inputs, {name: x.squeeze(0) for name, x in under(chunk, "state.").items()}, chunk["first"])

    def _make_optimizer(self) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
        """The optimiser, and its state under the names it has in a checkpoint."""
        settings = self.settings
        if settings.optimizer == "rmsprop":
            rmsprop = torch.optim.RMSprop(
                [self.parameters.parameter], lr=settings.learning_rate, alpha=settings.rmsprop_decay, eps=settings.rmsprop_epsilon
            )
            statistics = {"step": torch.zeros(()), "square_avg": torch.zeros_like(self.parameters.gradient)}
            return rmsprop, self._attach("rmsprop", rmsprop, statistics)
        optimizer, state = adam(self.parameters, settings)
        return optimizer, self._attach("adam", optimizer, state)

    def _attach(self, name: str, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> dict[str, Tensor]:
        optimizer.state[self.parameters.parameter] = state
        return {f"{name}.{key}": x for key, x in state.items()}

    def _schedule(self, progress: float) -> tuple[float, float]:
        """Sets the learning rate; returns it and the entropy weight."""
        settings = self.settings
        learning_rate = self._learning_rate(progress)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        final = settings.entropy_weight if settings.final_entropy_weight is None else settings.final_entropy_weight
        return learning_rate, settings.entropy_weight + (final - settings.entropy_weight) * progress

    def _learning_rate(self, progress: float) -> float:
        return self.settings.learning_rate * factor(self.settings.learning_rate_schedule, progress)

    def _per_reward(self, setting: str, given: Mapping[str, float]) -> Tensor:
        return per_reward(self.role, setting, given).to(self.device)

    def _mask(self, batch: Mapping[str, Tensor], version: int) -> tuple[Tensor, dict[str, float]]:
        """Which samples to learn from, bool `[T, B]`, and the metrics of that: all learners' together, but for the largest staleness."""
        limit, staleness = self.settings.max_staleness, version - batch["version"]
        mask = batch["learn"] if limit is None else batch["learn"] & (staleness <= limit)
        sums = torch.tensor([*torch.stack([mask.sum(), batch["learn"].sum(), staleness.sum()]).tolist(), staleness.numel()])
        self.peers.add(sums)
        used, learnable, age, count = sums.tolist()
        return mask, {
            "samples": used,
            "samples.stale": learnable - used,
            "staleness.mean": age / count,
            "staleness.max": float(largest(staleness)),
        }

    def _minibatches(self, count: int, selected: Tensor | None) -> Iterator[Part]:
        """Splits the samples at random into minibatches; a single one needs neither shuffling nor gathering."""
        minibatches = self.settings.minibatches
        if minibatches == 1:
            yield slice(0, count) if selected is None else selected
            return
        order = torch.randperm(count if selected is None else len(selected), generator=self._generator).to(self.device)
        order = order if selected is None else selected[order]
        yield from (part for part in order.tensor_split(minibatches) if len(part) or self.peers.size > 1)

    def _step(self, samples: Mapping[str, Tensor], minibatch: Part, entropy_weight: float, spent: dict[str, float]) -> Step:
        """One step of the optimiser; none, and no metrics, where no learner has a sample in its minibatch."""
        metrics = self._differentiate(samples, minibatch, entropy_weight, spent)
        if metrics:
            started = perf_counter()
            self._apply(metrics["gradient_norm"])
            spent["step"] += perf_counter() - started
        return metrics

    def _differentiate(self, samples: Mapping[str, Tensor], minibatch: Part, entropy_weight: float, spent: dict[str, float]) -> Step:
        """Computes the gradient, summed up over portions that fit the caches, and averages it with the peers.

        Raises NumericsError where a number is not finite, at all of them alike.
        """
        self.parameters.zero_gradient()
        size, parts = self._portions(samples, minibatch)
        losses: list[Loss] = []
        for part in parts:
            started = perf_counter()
            losses.append(self._loss({name: take(x, part, self.axis) for name, x in samples.items()}, max(size, 1), entropy_weight))
            middle = perf_counter()
            losses[-1].loss.backward()  # type: ignore[no-untyped-call]
            spent["forward"] += middle - started
            spent["backward"] += perf_counter() - middle

        terms = torch.stack([torch.stack(list(loss.terms.values())) for loss in losses]).detach().sum(0)
        ratio_max = torch.stack([loss.ratio_max for loss in losses]).max()
        terms, weight = average(self.peers, self.parameters.gradient, torch.cat([terms, ratio_max[None]]), size)
        if not weight:
            return {}
        started = perf_counter()
        # The only wait for the device: everything that is asked of this step comes in one piece.
        numbers = torch.cat([terms, torch.linalg.vector_norm(self.parameters.gradient)[None]]).tolist()
        metrics = dict(zip([*losses[0].terms, "ratio_max", "gradient_norm"], numbers, strict=True))
        if not all(map(math.isfinite, numbers)):
            wrong = ", ".join(f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value))
            raise NumericsError(f"{wrong}; the parameters are those from before this step")
        spent["step"] += perf_counter() - started
        return metrics

    def _apply(self, norm: float) -> None:
        """Steps by `parameters.gradient`, whose norm is given, clipped."""
        limit = self.settings.max_gradient_norm
        if limit is not None and norm > limit:
            self.parameters.gradient.mul_(limit / norm)
        self._optimizer.step()

    def value_error(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of each value, of values and their targets."""
        return ops.squared_error if self.settings.value_loss == "squared" else ops.huber

    def _summary(self, steps: list[Step]) -> dict[str, float]:
        """The metrics of all that a `Loss` has in any algorithm."""
        active, values = means(steps, "active."), means(steps, "loss.value.")
        return {
            "loss.policy": sum(means(steps, "loss.policy.").values()),
            "loss.value": sum(values.values()),
            **({f"loss.value.{name}": x for name, x in values.items()} if len(values) > 1 else {}),
            **{f"entropy.{name}": x / active[name] if active[name] else 0.0 for name, x in means(steps, "entropy.").items()},
            "kl": sum(means(steps, "kl").values()),
            "ratio_max": max(step["ratio_max"] for step in steps),
            "gradient_norm": sum(step["gradient_norm"] for step in steps) / len(steps),
        }

    def term_by_reward(self, term: str, x: Tensor) -> dict[str, Tensor]:
        """`x` `[R]`, as terms of a `Loss`."""
        return {f"{term}.{name}": entry for name, entry in zip(self.role.rewards, x.detach().unbind(), strict=True)}

    def _by_reward(self, metric: str, values: list[float]) -> dict[str, float]:
        if len(values) == 1:
            return {metric: values[0]}
        return {f"{metric}.{name}": value for name, value in zip(self.role.rewards, values, strict=True)}


def per_reward(role: Role, setting: str, given: Mapping[str, float]) -> Tensor:
    """A number for each reward, `[R]`. Raises RecipeError where `given` does not name just the role's rewards."""
    if set(given) != set(role.rewards):
        raise RecipeError(f"`{setting}` names the rewards {sorted(given)}; the game has {sorted(role.rewards)}")
    return torch.tensor([given[name] for name in role.rewards])


def require_state(algorithm: Algorithm, mine: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError where `state` has other tensors than the algorithm's own, `mine`."""
    if state.keys() != mine.keys() or any(state[name].shape != x.shape for name, x in mine.items()):
        raise CheckpointError(
            f"this is not the state of a learner by {type(algorithm).__name__} of {len(algorithm.parameters.gradient)} parameters: "
            f"expected { {name: tuple(x.shape) for name, x in mine.items()} }, got { {name: tuple(x.shape) for name, x in state.items()} }"
        )


def split(minibatch: Part, limit: int) -> tuple[int, list[Part]]:
    """How long a minibatch is, and its parts, of at most `limit` each and as equal as can be; one at least, if an empty one."""
    size = minibatch.stop if isinstance(minibatch, slice) else len(minibatch)
    count = max(-(-size // limit), 1)
    ranges = [slice(size * index // count, size * (index + 1) // count) for index in range(count)]
    return size, [part if isinstance(minibatch, slice) else minibatch[part] for part in ranges]


def rows_of(parameters: Parameters, rows: Part) -> Parameters:
    """A head's parameters for some of the samples."""
    kind: Any = type(parameters)
    return kind(*(x[rows] for x in parameters))


def take(x: Tensor, part: Part, axis: int) -> Tensor:
    """Entries of `x` along `axis`; a view, where `part` is a range."""
    return x.narrow(axis, part.start, part.stop - part.start) if isinstance(part, slice) else x.index_select(axis, part)


def largest(x: Tensor) -> Tensor:
    """The largest entry; 0 where there is none."""
    return x.max() if x.numel() else x.new_zeros(())


def under(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}


def behaviour_log_prob(log_prob: Tensor, evaluation: Evaluation) -> Tensor:
    """What the acting policy's head recorded as `log_prob`, 0 where it is inactive: nobody says what is recorded there."""
    return log_prob if evaluation.active is None else torch.where(evaluation.active, log_prob, 0.0)


def means(steps: list[Step], prefix: str) -> dict[str, float]:
    """Means over steps of what begins with `prefix`, by the rest of its name."""
    names = [name for name in steps[0] if name.startswith(prefix)]
    return {name.removeprefix(prefix): sum(step[name] for step in steps) / len(steps) for name in names}


def suspects(batch: Mapping[str, Tensor], peers: Peers) -> str:
    """Which arrays of a batch are not finite."""
    counts = {name: int((~torch.isfinite(x)).sum()) for name, x in batch.items() if x.is_floating_point()}
    found = [f"{name} ({count} of {batch[name].numel()})" for name, count in counts.items() if count]
    if found:
        return f"not finite in the batch: {', '.join(found)}"
    return f"the batch{' of this learner' * (peers.size > 1)} is finite: a lower learning rate may help"
