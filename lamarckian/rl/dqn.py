"""Deep Q-learning (Mnih et al. 2015, https://doi.org/10.1038/nature14236): double, dueling, n-step, with prioritised replay."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from lamarckian.data.replay import Replay, require_memory
from lamarckian.errors import NumericsError, RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import FlatParameters, QNetwork, choose
from lamarckian.nets.precision import ROWS, Dtype, MemoryFormat
from lamarckian.recipe.sizes import Size, parse_size
from lamarckian.rl.actor_critic import Decay, Discount, Step, per_reward, require_state, split, suspects
from lamarckian.rl.algorithm import Alone, Peers
from lamarckian.rl.averaging import average
from lamarckian.rl.optimiser import adam, factor
from lamarckian.rl.settings import is_default, require_constant, require_default
from lamarckian.rl.temporal_difference import Judged, TemporalDifference


class DQNSettings(BaseModel):
    """The settings of DQN.

    minibatch: samples of one step of the optimiser. replay_ratio: samples drawn for each that was played; it decides how many steps
        an update makes.
    replay_size: what the replay may take of the memory; replay_samples: how many samples it holds at most, None for as many as fit.
    learning_starts: no step before the replay has so many samples to draw, or is full.
    n_step: rewards of a target; windows are shorter at the end of a fragment's column, see `Replay.windows`.
    double: the online network chooses the action whose value the target network gives (van Hasselt et al. 2016).
    prioritised: samples are drawn by (|TD error| + priority_epsilon)^priority_exponent and weighed by importance_exponent, β, which goes
        linearly to final_importance_exponent over the run (Schaul et al. 2016). Otherwise all alike.
    target_every, target_rate: each so many steps θ⁻ ← θ⁻ + rate · (θ − θ⁻).
    epsilon: goes linearly to final_epsilon over epsilon_share of the run, or over epsilon_steps samples, where that is given.
    reward_weights: what is learned is the value of Σ_r w_r r; a name left out weighs 1.

    A network with a memory learns from whole columns (Kapturowski et al. 2019, "R2D2"): a minibatch is as many as have `minibatch` samples.
    stored_state: goes on from what the actor remembered when it played; otherwise from nothing. burn_in: steps that a column begins with
        which only bring the memory up to date.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learning_rate: float = Field(default=3e-4, gt=0)
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    minibatch: int = Field(default=256, ge=1)
    replay_ratio: float = Field(default=8.0, gt=0)
    replay_size: Size = "1GB"
    replay_samples: int | None = Field(default=None, ge=1)
    learning_starts: int = Field(default=10_000, ge=1)
    gamma: Discount = 0.99
    reward_weights: dict[str, float] = {}
    n_step: int = Field(default=3, ge=1)
    double: bool = True
    prioritised: bool = True
    priority_exponent: float = Field(default=0.6, ge=0)
    priority_epsilon: float = Field(default=1e-6, gt=0)
    importance_exponent: float = Field(default=0.4, ge=0)
    final_importance_exponent: float = Field(default=1.0, ge=0)
    stored_state: bool = True
    burn_in: int = Field(default=0, ge=0)
    target_every: int = Field(default=500, ge=1)
    target_rate: float = Field(default=1.0, gt=0, le=1)
    epsilon: float = Field(default=1.0, ge=0, le=1)
    final_epsilon: float = Field(default=0.02, ge=0, le=1)
    epsilon_share: float = Field(default=0.1, gt=0, le=1)
    epsilon_steps: int | None = Field(default=None, ge=1)
    loss: Literal["huber", "squared"] = "huber"
    max_gradient_norm: float | None = Field(default=10.0, gt=0)
    adam_betas: tuple[Decay, Decay] = (0.9, 0.999)
    adam_epsilon: float = Field(default=1e-5, gt=0)


class Drawn(NamedTuple):
    """Entries of the replay, int64 `[K]`, and what they hold, `[K, …]`; how much each counts in the loss, `[K]`.

    target: `[K]`, where it is known ahead. version: that acted, a mean over all that was drawn at once.
    """

    entries: np.ndarray
    samples: Any
    weight: Tensor
    target: Tensor | None
    version: float

    def split(self, limit: int) -> Iterator[Drawn]:
        """Parts of at most `limit` entries each, and as equal as can be."""
        if len(self.entries) <= limit:
            yield self
            return
        for part in split(slice(0, len(self.entries)), limit)[1]:
            samples = self.samples.map(itemgetter(part))
            target = None if self.target is None else self.target[part]
            yield Drawn(self.entries[part], samples, self.weight[part], target, self.version)


class DQN:
    """Fragments → versions, see `Algorithm`. The same seed and the same batches give the same versions, bit for bit.

    Of several learners each has a replay of its own and draws a minibatch of its own, and the first step waits for the last replay.

    With several heads the target is one for all, the mean over the heads that matter of their value of what each would do next, and so are
    error and loss means over the heads that mattered (Tavakoli et al. 2018, https://arxiv.org/abs/1711.08946, eq. 5 and 6).

    | metric | mean over the update's steps, unless said otherwise |
    | --- | --- |
    | `loss`, `td_error.mean` | weighed by importance; mean of |target − Q(s, a)| |
    | `q.mean`, `target.mean` | of the actions that were taken; of their targets |
    | `gradient_norm`, `learning_rate` | before clipping; of this update |
    | `epsilon`, `beta` | of those who act from now on; of this update |
    | `priority.max` | the highest that a sample ever had, to the power of the exponent |
    | `replay.samples`, `replay.eligible`, `replay.size_bytes` | held; of those, which can be drawn; what they take |
    | `age.mean` | of the samples drawn, in versions |
    | `optimiser.steps` | of this update |
    | `samples` | that were played, and may be drawn |
    | `staleness.mean`, `staleness.max` | versions, over the samples that were played; once |
    | `time.store_s`, `time.sample_s`, `time.forward_s`, `time.backward_s`, `time.step_s` | sums |
    """

    Settings = DQNSettings
    network: ClassVar[str] = "q"
    opponents: ClassVar[Mapping[str, str]] = {"epsilon": "final_epsilon"}
    peers: Peers = Alone()

    def __init__(
        self,
        policy: QNetwork,
        role: Role,
        settings: DQNSettings,
        *,
        device: str = "cpu",
        dtype: Dtype = "auto",
        memory_format: MemoryFormat = "auto",
        seed: int = 0,
    ) -> None:
        self._size_bytes = parse_size(settings.replay_size)
        require_memory(self._size_bytes, "algorithm.replay_size")
        self.policy, self.role, self.settings = policy.to(device), role, settings
        self.device = torch.device(device)
        self.precision = choose(policy, role, self.device, dtype, memory_format)
        self._target = copy.deepcopy(policy).requires_grad_(False)
        self.parameters, self._target_parameters = FlatParameters(policy), FlatParameters(self._target)
        self._optimizer, self._optimizer_state = adam(self.parameters, settings)
        self._optimizer.state[self.parameters.parameter] = self._optimizer_state
        self._generator = torch.Generator().manual_seed(seed)
        self._steps = self._played = 0
        self._due = 0.0  # samples that are still to be drawn for those that were played, less than a minibatch
        self._replay: Replay | None = None
        self._set_epsilon(0.0)
        self._difference = TemporalDifference(role, settings, policy, self._target, self.precision, self._weights(settings.reward_weights))

    def set_reward_weights(self, weights: Mapping[str, float]) -> None:
        """As `ActorCritic.set_reward_weights`; samples from before are weighed anew, too."""
        self._difference.reward_weights = self._weights(weights)

    @property
    def reward_weights(self) -> dict[str, float]:
        """As `ActorCritic.reward_weights`."""
        return dict(zip(self.role.rewards, self._difference.reward_weights.tolist(), strict=True))

    def _weights(self, given: Mapping[str, float]) -> Tensor:
        return per_reward(self.role, "reward_weights", {**dict.fromkeys(self.role.rewards, 1.0), **given}).to(self.device)

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        settings = self.settings
        spent = dict.fromkeys(("store", "sample", "forward", "backward", "step"), 0.0)
        started = perf_counter()
        replay = self._filled(batch)
        spent["store"] = perf_counter() - started
        ready = replay.eligible_samples >= settings.learning_starts or (replay.full and replay.eligible > 0)
        sums = torch.tensor([batch["learn"].numel(), int(batch["learn"].sum()), ready])
        self.peers.add(sums)
        played, learnable, all_ready = sums.tolist()
        self._played += played

        learning_rate = settings.learning_rate * factor(settings.learning_rate_schedule, progress)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        beta = 0.0
        if settings.prioritised:
            beta = settings.importance_exponent + (settings.final_importance_exponent - settings.importance_exponent) * progress
        count = 0.0
        if all_ready == self.peers.size:
            samples = self._entries(replay) * (replay.steps if self.policy.state else 1)
            count, self._due = divmod(self._due + played / self.peers.size * settings.replay_ratio, samples)
        try:
            steps = self._learn(replay, int(count), beta, version, spent) if count else []
        except NumericsError as error:
            raise NumericsError(f"DQN, update of version {version}: {error}; {suspects(batch, self.peers)}") from None
        self._set_epsilon(progress)
        staleness = version - batch["version"]
        return {
            **({name: sum(step[name] for step in steps) / count for name in steps[0]} if steps else {}),
            "epsilon": float(self.policy.epsilon),
            "beta": beta,
            "priority.max": replay.highest,
            "replay.samples": replay.samples,
            "replay.eligible": replay.eligible_samples,
            "replay.size_bytes": replay.size_bytes,
            "learning_rate": learning_rate,
            "optimiser.steps": count,
            "samples": learnable,
            "staleness.mean": float(staleness.double().mean()),
            "staleness.max": float(staleness.max()),
            **{f"time.{name}_s": seconds for name, seconds in spent.items()},
        }

    def state_dict(self) -> dict[str, Tensor]:
        state = {
            "parameters": self.parameters.parameter.detach(),
            "target": self._target_parameters.parameter.detach(),
            "generator": self._generator.get_state(),
            "counts": torch.tensor([self._steps, self._played]),
            "due": torch.tensor(self._due, dtype=torch.float64),
            **{f"adam.{name}": x for name, x in self._optimizer_state.items()},
        }
        return {name: x.clone() for name, x in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        require_state(self, self.state_dict(), state)
        with torch.no_grad():
            self.parameters.parameter.copy_(state["parameters"])
            self._target_parameters.parameter.copy_(state["target"])
        for name, x in self._optimizer_state.items():
            x.copy_(state[f"adam.{name}"])
        self._generator.set_state(state["generator"].cpu())
        self._steps, self._played = state["counts"].tolist()
        self._due = float(state["due"])

    def save_replay(self) -> dict[str, np.ndarray]:
        """The replay; views, good until the next update."""
        return {} if self._replay is None or not self._replay.samples else self._replay.save()

    def load_replay(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Goes on with a replay that was saved. Raises CheckpointError where it is of another game or size."""
        self._made(arrays["reward"].shape[1]).load(arrays)

    def prepare(self, steps: int, endless: bool) -> None:
        """Makes the replay, for fragments of so many steps. endless: whether nothing says how long the run is.

        Raises RecipeError where the settings cannot work with that.
        """
        settings = self.settings
        if endless and settings.epsilon_steps is None:
            raise RecipeError(
                "algorithm.epsilon_steps: missing; without it ε goes down over a share of the run, which has no end here: give it, or "
                "stop.steps, stop.updates or stop.minutes"
            )
        if endless:
            require_constant("learning_rate_schedule", settings.learning_rate_schedule, "constant")
            if settings.prioritised and not is_default(settings, "final_importance_exponent"):
                require_constant("final_importance_exponent", settings.final_importance_exponent, settings.importance_exponent)
        if not self.policy.state:
            require_default(settings, ("stored_state", "burn_in"), "the network has no memory that this could be about")
        elif settings.burn_in >= steps:
            raise RecipeError(f"algorithm.burn_in: given {settings.burn_in}; a fragment has {steps} steps; allowed: fewer")
        replay = Replay(self.role, steps, self._size_bytes, settings.replay_samples, self.policy.state)
        if settings.learning_starts > replay.capacity:
            raise RecipeError(
                f"algorithm.learning_starts: given {settings.learning_starts:,}; the replay has room for {replay.capacity:,} samples; "
                "give fewer, or a larger algorithm.replay_size or algorithm.replay_samples"
            )
        self._replay = replay

    def _filled(self, batch: Mapping[str, Tensor]) -> Replay:
        """The replay with the columns of `batch` in it."""
        fragment = {name: x.cpu().numpy() for name, x in batch.items()}
        replay = self._made(len(fragment["reward"]))
        replay.add(fragment)
        return replay

    def _made(self, steps: int) -> Replay:
        """The replay; made for fragments of so many steps, where nobody has called `prepare`."""
        if self._replay is None:
            self.prepare(steps, endless=False)
        assert self._replay is not None
        return self._replay

    def _set_epsilon(self, progress: float) -> None:
        settings = self.settings
        if settings.epsilon_steps is None:
            done = progress / settings.epsilon_share
        else:
            done = self._played / settings.epsilon_steps
        with torch.no_grad():
            self.policy.epsilon.fill_(settings.epsilon + (settings.final_epsilon - settings.epsilon) * min(done, 1.0))

    def _minibatches(self, replay: Replay, count: int, beta: float) -> Iterator[Drawn]:
        """So many minibatches.

        Where no step changes what the next ones draw, many are drawn at once, while another thread draws the next many; and where the
        target network alone says what their targets are, it judges them in one pass: that takes a fraction of the time of many small ones.
        """
        settings, entries = self.settings, self._entries(replay)
        ahead = 1 if settings.prioritised or self.policy.state else max(min(self.precision.rows, ROWS) // entries, 1)
        sizes, done = [], self._steps
        while done < self._steps + count:
            sizes.append(min(ahead, self._steps + count - done, settings.target_every - done % settings.target_every))
            done += sizes[-1]
        # A thread has a number of threads of its own for what it computes.
        with ThreadPoolExecutor(1, "draw", torch.set_num_threads, (torch.get_num_threads(),)) as aside:
            draw = partial(self._draw, replay, entries, beta)
            coming: Callable[[], Drawn] = partial(draw, sizes[0])
            for size, following in zip(sizes, [*sizes[1:], 0], strict=True):
                drawn = coming()
                changes = settings.prioritised or (self._steps + size) % settings.target_every == 0
                coming = partial(draw, following) if changes or not following else aside.submit(draw, following).result
                yield from drawn.split(entries)

    def _draw(self, replay: Replay, entries: int, beta: float, minibatches: int) -> Drawn:
        """So many minibatches of so many entries each, one behind the other."""
        uniform = torch.rand(minibatches, entries, dtype=torch.float64, generator=self._generator).numpy()
        drawn, weights = (x.reshape(-1) for x in replay.draw(uniform, beta))
        hold = replay.sequences if self.policy.state else replay.windows
        held: Any = hold(drawn, self.settings.n_step, self.settings.gamma)
        samples = held.map(self._tensor)
        target = None if self.settings.double or self.policy.state else self._difference.targets(samples)
        return Drawn(drawn, samples, self._tensor(weights), target, float(held.version.mean()))

    def _tensor(self, x: np.ndarray) -> Tensor:
        return torch.from_numpy(x).to(self.device, non_blocking=True)

    def _learn(self, replay: Replay, count: int, beta: float, version: int, spent: dict[str, float]) -> list[Step]:
        """So many steps of the optimiser."""
        settings, steps = self.settings, []
        minibatches = self._minibatches(replay, count, beta)
        for _ in range(count):
            started = perf_counter()
            drawn = next(minibatches)
            spent["sample"] += perf_counter() - started
            step, errors = self._step(drawn, spent)
            started = perf_counter()
            if settings.prioritised:
                replay.prioritise(drawn.entries, (errors + settings.priority_epsilon) ** settings.priority_exponent)
            spent["sample"] += perf_counter() - started
            steps.append(step | {"age.mean": version - drawn.version})
        return steps

    def _step(self, drawn: Drawn, spent: dict[str, float]) -> tuple[Step, np.ndarray]:
        """One step of the optimiser, whose gradient is summed up over portions that fit the caches; |TD error| of the entries, float64."""
        settings = self.settings
        self.parameters.zero_gradient()
        size, rows = len(drawn.entries), self.precision.rows
        if self.policy.state:
            learn = drawn.samples.learn
            size, rows = int(learn[:, settings.burn_in :].sum()), max(rows // (learn.shape[1] + 1), 1)
        judged: list[Judged] = []
        for part in drawn.split(rows):
            started = perf_counter()
            if self.policy.state:
                judged.append(self._difference.of_columns(part.samples, part.weight, max(size, 1)))
            else:
                judged.append(self._difference.of_steps(part.samples, part.weight, max(size, 1), part.target))
            middle = perf_counter()
            judged[-1].loss.backward()  # type: ignore[no-untyped-call]
            spent["forward"] += middle - started
            spent["backward"] += perf_counter() - middle

        gradient = self.parameters.gradient
        loss = torch.stack([portion.loss.detach() for portion in judged]).sum()
        sums = torch.stack([portion.sums for portion in judged]).sum(0) / max(size, 1)
        terms, _ = average(self.peers, gradient, torch.cat([loss[None], sums]), size)
        started = perf_counter()
        # The only wait for the device: everything that is asked of this step comes in one piece.
        numbers = torch.cat([terms, torch.linalg.vector_norm(gradient)[None], *(portion.errors for portion in judged)]).cpu()
        metrics = dict(zip(("loss", "q.mean", "target.mean", "td_error.mean", "gradient_norm"), numbers[:5].tolist(), strict=True))
        if not all(map(math.isfinite, metrics.values())):
            wrong = ", ".join(f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value))
            raise NumericsError(f"{wrong}; the parameters are those from before this step")
        limit = settings.max_gradient_norm
        if limit is not None and metrics["gradient_norm"] > limit:
            gradient.mul_(limit / metrics["gradient_norm"])
        self._optimizer.step()
        self._steps += 1
        if self._steps % settings.target_every == 0:
            with torch.no_grad():
                self._target_parameters.parameter.lerp_(self.parameters.parameter, settings.target_rate)
        spent["step"] += perf_counter() - started
        return metrics, numbers[5:].double().numpy()

    def _entries(self, replay: Replay) -> int:
        """Entries of a minibatch: samples, or columns of them."""
        return max(self.settings.minibatch // replay.steps, 1) if self.policy.state else self.settings.minibatch
