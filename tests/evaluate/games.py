"""A game that goes wrong when it is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from lamarckian.mdp import Action, AsynchronousMatch, Discrete, Observation, Result, Role, SynchronousMatch, Vector


class Rules:
    """Twenty ticks; a point for each action 1."""

    truncated = False

    def __init__(self, fault: str | None, seed: int) -> None:
        self.terminated = False
        self._fault = fault if seed % 16 == 0 else None
        self._ticks = 0
        self._points = 0.0

    def observe(self, role: str) -> Observation:
        value = np.nan if self._fault == "observation" and self._ticks == 13 else self._ticks / 20
        return Observation({"x": np.array([value], np.float32)})

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        self._ticks += 1
        self.terminated = self._ticks == 20
        [action] = actions.values()
        point = float(action is not None and action["a"] == 1)
        self._points += point
        if self._fault == "exception" and self._ticks == 13:
            raise ZeroDivisionError("the game's own fault")
        return {"player": [np.inf if self._fault == "reward" and self._ticks == 13 else point]}

    def result(self, role: str) -> Result:
        return Result(self._points / 20)


class Faulty:
    """One role that shall act 1; a sixteenth of its matches has the `fault`, in the middle."""

    def __init__(self, fault: Literal["observation", "reward", "exception"] | None = None, width: int = 2) -> None:
        self._fault = fault
        self.roles = {"player": Role({"x": Vector(1)}, {"a": Discrete(width)})}

    def start(self, seed: int) -> AsynchronousMatch:
        return AsynchronousMatch(Rules(self._fault, seed), self.roles)


class Choices:
    """The rules of one match: ten ticks; each pays 1 `brave` for action 1 and 1 `careful` for action 0."""

    truncated = False

    def __init__(self, names: Sequence[str]) -> None:
        self.terminated = False
        self._names = names
        self._ticks = 0
        self._brave = dict.fromkeys(names, 0)

    def observe(self, role: str) -> Observation:
        return Observation({"x": np.array([self._ticks / 10], np.float32)})

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        self._ticks += 1
        self.terminated = self._ticks == 10
        brave = {name: int(action is not None and action["a"] == 1) for name, action in actions.items()}
        for name in self._names:
            self._brave[name] += brave[name]
        return {name: [brave[name], 1 - brave[name]] for name in self._names}

    def result(self, role: str) -> Result:
        return Result(self._brave[role] / 10)


class Chosen:
    """What is best is a matter of the weights of its rewards. `score` is the share of action 1."""

    def __init__(self, players: int = 1) -> None:
        role = Role({"x": Vector(1)}, {"a": Discrete(2)}, ("brave", "careful"))
        self.roles = {f"p{index}": role for index in range(players)}

    def start(self, seed: int) -> AsynchronousMatch:
        return AsynchronousMatch(Choices(list(self.roles)), self.roles)


class Rounds:
    """The rules of one match: `up` is over after three rounds and has won, the others after five and have lost."""

    def __init__(self) -> None:
        self._rounds = 0

    def to_act(self) -> list[str]:
        return [role for role in Three.roles if not self.ended(role)[0]]

    def observe(self, role: str) -> Observation:
        return Observation({"x": np.array([self._rounds / 5], np.float32)})

    def advance(self, actions: Mapping[str, Action]) -> Mapping[str, Sequence[float]]:
        self._rounds += 1
        return {role: [0.0] for role in Three.roles}

    def ended(self, role: str) -> tuple[bool, bool]:
        return self._rounds >= (3 if role == "up" else 5), False

    def result(self, role: str) -> Result:
        return Result(1.0, "win") if role == "up" else Result(0.0, "loss")


class Three:
    """A game of three roles, which end at different times."""

    roles = dict.fromkeys(("up", "down", "other"), Role({"x": Vector(1)}, {"a": Discrete(2)}))

    def start(self, seed: int) -> SynchronousMatch:
        return SynchronousMatch(Rounds(), self.roles)
