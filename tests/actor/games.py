"""A game whose roles end at different times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lamarckian.mdp import Action, Discrete, Observation, Result, Role, SynchronousMatch, Vector

LIVES = {"first": 3, "last": 8}


class Melting:
    """Everybody acts each turn; `first` is over after 3, `last` after 8."""

    roles = dict.fromkeys(LIVES, Role({"x": Vector(2)}, {"a": Discrete(2)}))

    def start(self, seed: int) -> SynchronousMatch:
        return SynchronousMatch(Turns(seed % 5), self.roles)


class Turns:
    """The rules of one match."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._turn = 0

    def to_act(self) -> list[str]:
        return [role for role, turns in LIVES.items() if self._turn < turns]

    def observe(self, role: str) -> Observation:
        return Observation({"x": np.array([self._start, self._turn], np.float32)})

    def advance(self, actions: Mapping[str, Action]) -> Mapping[str, Sequence[float]]:
        self._turn += 1
        return {role: [float(actions[role]["a"]) if role in actions else 0.0] for role in LIVES}

    def ended(self, role: str) -> tuple[bool, bool]:
        return self._turn >= LIVES[role], False

    def result(self, role: str) -> Result:
        return Result(float(self._turn))
