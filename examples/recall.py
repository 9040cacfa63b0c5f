"""Recall: a sign is shown once, then nothing for a while, then the question which it was. Only who remembers can answer.

Hold it to the contract with `python examples/recall.py`; train on it with `lamarckian train examples/recall.yaml`.
"""

import numpy as np

from lamarckian.mdp import AsynchronousMatch, Discrete, Observation, Result, Role, Vector
from lamarckian.mdp.check import check_mdp


class Recall:
    """The sign is seen in the first step only; the action of the last step, `delay` steps later, is the answer, worth 1 if it is right."""

    def __init__(self, signs: int = 4, delay: int = 30) -> None:
        self.signs = signs
        self.delay = delay
        self.roles = {"player": Role({"view": Vector(signs + 1)}, {"answer": Discrete(signs)})}

    def start(self, seed: int) -> AsynchronousMatch:
        return AsynchronousMatch(RecallRules(self.signs, self.delay, seed), self.roles)


class RecallRules:
    """The rules of one match."""

    truncated = False

    def __init__(self, signs, delay, seed):
        self.terminated = False
        self._sign = np.random.default_rng(seed).integers(signs)
        self._signs, self._left, self._right = signs, delay, False
        self._shown = True

    def observe(self, role):
        view = np.zeros(self._signs + 1, np.float32)
        view[self._sign] = self._shown
        view[-1] = self._left == 0  # the question
        return Observation({"view": view})

    def advance(self, actions):
        action = actions["player"]
        self._shown = False
        self.terminated = self._left == 0
        self._right = self.terminated and action is not None and action["answer"] == self._sign
        self._left -= 1
        return {"player": [float(self._right)]}

    def result(self, role):
        return Result(float(self._right))


if __name__ == "__main__":
    check_mdp(Recall(delay=5))
    print("The game keeps its contract.")
