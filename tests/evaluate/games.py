"""A game that goes wrong when it is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from lamarckian.mdp import Action, AsynchronousMatch, Discrete, Observation, Result, Role, Vector


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
