"""A policy that acts: its inference session, how it samples, and the version it holds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from lamarckian.actor.inference import Inference, Model
from lamarckian.actor.sampling import Sampler
from lamarckian.actor.states import States
from lamarckian.mdp.spaces import Continuous, Role

NO_STATE: Mapping[str, np.ndarray] = MappingProxyType({})


class Versions(Protocol):
    """Where newer parameters come from; see `lamarckian.transport.versions.VersionBoard`."""

    def take(self, into: np.ndarray, held: int) -> int | None: ...


class Decision(NamedTuple):
    """What a policy answered to B observations: `[B, …]` per head, and `[B, R]` values.

    played: the actions as games get them: within the bounds of their heads, where a Gaussian knows none.
    state: recurrent state before the decision, `[B, …]` per part.
    """

    actions: dict[str, np.ndarray]
    log_probs: dict[str, np.ndarray]
    played: dict[str, np.ndarray]
    value: np.ndarray
    state: Mapping[str, np.ndarray] = NO_STATE


class ActingPolicy:
    """Answers batches of observations; `adopt` takes the newest version where there is a source of versions.

    states: what it remembers of each seat. parameters: flat, of the version it holds.
    outputs: of which kind they are: what its network gives for the heads, and which of these are squashed. Where they are the same for two
        policies of a role, each can sample from what the other's network gave.
    """

    def __init__(
        self,
        model: Model,
        role: Role,
        generator: np.random.Generator,
        greedy: bool = False,
        versions: Versions | None = None,
    ) -> None:
        self.version = -1
        self.generator = generator
        self.inference_s = 0.0
        self.states = States(model.state)
        self.recurrent = bool(model.state)
        self._infer = Inference(model)
        squashed = self._infer.squashed
        self.outputs = tuple(sorted(name for name in self._infer.outputs if name.startswith("head."))), tuple(sorted(squashed))
        self._sample = Sampler(role, squashed, greedy)
        self._bounds = {name: head.bounds() for name, head in role.heads.items() if isinstance(head, Continuous)}
        self._versions = versions
        self.parameters = np.empty(model.size, np.float32)

    def adopt(self) -> None:
        """Takes the newest version, if it is another than the one held. Cheap enough to ask before each decision: then
        samples are younger than if a version waited for the next fragment, and each says which version acted."""
        if self._versions is not None:
            version = self._versions.take(self.parameters, self.version)
            if version is not None:
                self.version = version
                self._infer.load(self.parameters)

    def hold(self, version: int, parameters: np.ndarray) -> None:
        """Takes the flat float32 parameters of a version that stays."""
        self.version = version
        self.parameters[:] = parameters
        self._infer.load(self.parameters)

    def begin(self, seats: np.ndarray) -> None:
        """Matches begin at these seats, int `[K]`."""
        self.states.begin(seats)

    def decide(self, inputs: Mapping[str, np.ndarray], legal: Mapping[str, np.ndarray], seats: np.ndarray, count: int) -> Decision:
        """Actions for the first `count` of B observations, and values `[B, R]` for all. seats: who made them, int `[B]`."""
        outputs, before = self.infer(inputs, seats, count)
        value = outputs.pop("value")
        if len(value) > count:
            outputs = {name: array[:count] for name, array in outputs.items()}
        return Decision(*self.sample(outputs, legal), value, before)

    def infer(
        self, inputs: Mapping[str, np.ndarray], seats: np.ndarray, count: int
    ) -> tuple[dict[str, np.ndarray], Mapping[str, np.ndarray]]:
        """What the network gives for B observations, the first `count` of which it decides on; and the states before."""
        start = time.perf_counter()
        before = self.states.before(seats, count) if self.recurrent else NO_STATE
        outputs = self._infer({**inputs, **before} if self.recurrent else inputs)
        if self.recurrent:
            self.states.after(seats[:count], outputs)
        self.inference_s += time.perf_counter() - start
        return outputs, before

    def sample(
        self, outputs: Mapping[str, np.ndarray], legal: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Actions, their log-probabilities, and the actions as games get them, from what a network gave for the heads."""
        actions, log_probs = self._sample(outputs, legal, self.generator)
        played = {name: array if name not in self._bounds else array.clip(*self._bounds[name]) for name, array in actions.items()}
        return actions, log_probs, played

    def value(self, inputs: Mapping[str, np.ndarray], seats: np.ndarray) -> np.ndarray:
        """Values `[B, R]` of B observations that these seats made."""
        return self._infer({**inputs, **self.states.before(seats, 0)} if self.recurrent else inputs)["value"]
