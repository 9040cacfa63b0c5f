"""A game that takes its time, as a large one does: Gymnasium's CartPole, each of whose steps leaves the processor free for a while."""

from __future__ import annotations

import time
from typing import Any

import gymnasium


class Paced(gymnasium.Wrapper):
    """step_s: how long a step takes at least."""

    def __init__(self, env: gymnasium.Env, step_s: float) -> None:
        super().__init__(env)
        self._step_s = step_s

    def step(self, action: Any) -> Any:
        time.sleep(self._step_s)
        return self.env.step(action)


def cartpole(step_s: float, **options: Any) -> gymnasium.Env:
    return Paced(gymnasium.make("CartPole-v1", **options), step_s)
