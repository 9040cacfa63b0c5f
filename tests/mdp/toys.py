"""A small asynchronous game that keeps its contract, made so that single parts can be broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from lamarckian.mdp import AsynchronousMatch, Discrete, Observation, Result, Role, Step, Vector

ROLE = Role({"view": Vector(2)}, {"move": Discrete(3, masked=True)}, ("pay", "tick"))
NAMES = ("left", "right")


class CountRules:
    """Counts ticks up to `ticks`. Every tick pays 1 and its own number; `log` holds the moves in effect, tick by tick."""

    truncated = False

    def __init__(self, ticks: int, seed: int) -> None:
        self.terminated = False
        self.ticks = ticks
        self.tick = 0
        self.log: list[dict[str, int | None]] = []
        self.random = np.random.default_rng(seed)
        self.value = self.random.random()

    def observe(self, role: str) -> Any:
        return Observation({"view": np.array([self.tick, self.value], np.float32)}, {"move": self.mask()})

    def mask(self) -> np.ndarray:
        return np.array([True, self.tick % 2 == 0, True])

    def advance(self, actions: Mapping[str, Any]) -> Any:
        self.log.append({role: None if action is None else int(action["move"]) for role, action in actions.items()})
        self.tick += 1
        self.value = self.random.random()
        self.terminated = self.tick == self.ticks
        return {role: [1.0, float(self.tick)] for role in actions}

    def result(self, role: str) -> Any:
        return Result(float(self.tick), objectives={"log": float(len(self.log))})


class CountMatch(AsynchronousMatch):
    def __init__(self, rules: CountRules, *args: Any) -> None:
        super().__init__(rules, *args)
        self.rules = rules


class Count:
    """The game of `CountRules`, or of the rules given."""

    def __init__(
        self,
        ticks: int = 20,
        period: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
        rules: Callable[..., Any] = CountRules,
    ) -> None:
        self.ticks, self.period, self.latency, self.rules = ticks, period, latency, rules
        self.roles: Mapping[str, Role] = dict.fromkeys(NAMES, ROLE)

    def start(self, seed: int) -> CountMatch:
        return CountMatch(self.rules(self.ticks, seed), self.roles, self.period, self.latency)


def now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something")


class Now:
    """An answer that is there at once."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        return self.value
        yield


class Always:
    """An agent that always makes the same move."""

    def __init__(self, move: int = 0) -> None:
        self.move = move

    def start(self, seed: int) -> None:
        pass

    def act(self, observation: Observation) -> Awaitable[Any]:
        return Now({"move": self.move})


class Steps(list[Step]):
    """A recorder that keeps everything."""

    def record(self, step: Step) -> None:
        self.append(step)
