"""Steps uphill along a gradient, in numpy and in place: Adam and SGD."""

from __future__ import annotations

from typing import Any

import numpy as np

_MEAN_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Adam (Kingma, Ba 2015, Algorithm 1) with its customary decays 0.9 and 0.999, for `length` parameters."""

    def __init__(self, learning_rate: float, length: int) -> None:
        self.learning_rate = learning_rate
        self._steps = 0
        self._mean, self._square, self._scratch = np.zeros((3, length))

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """What to add to the parameters, `[L]`; valid until the next call."""
        self._steps += 1
        step = self._scratch
        self._mean *= _MEAN_DECAY
        self._mean += np.multiply(gradient, 1 - _MEAN_DECAY, out=step)
        self._square *= _SQUARE_DECAY
        np.multiply(gradient, gradient, out=step, dtype=np.float64)
        step *= 1 - _SQUARE_DECAY
        self._square += step
        np.divide(self._square, 1 - _SQUARE_DECAY**self._steps, out=step)
        np.sqrt(step, out=step)
        step += _EPSILON
        np.divide(self._mean, step, out=step)
        step *= self.learning_rate / (1 - _MEAN_DECAY**self._steps)
        return step

    def save(self) -> dict[str, Any]:
        """All that it knows."""
        return {"steps": self._steps, "mean": self._mean.copy(), "square": self._square.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what `save` gave."""
        self._steps = state["steps"]
        self._mean[:], self._square[:] = state["mean"], state["square"]


class SGD:
    """Gradient ascent with momentum: v ← momentum · v + gradient, and a step of learning rate · v, for `length` parameters."""

    def __init__(self, learning_rate: float, momentum: float, length: int) -> None:
        self.learning_rate, self.momentum = learning_rate, momentum
        self._velocity, self._scratch = np.zeros((2, length))

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """As `Adam.step`."""
        self._velocity *= self.momentum
        self._velocity += gradient
        return np.multiply(self._velocity, self.learning_rate, out=self._scratch)

    def save(self) -> dict[str, Any]:
        """As `Adam.save`."""
        return {"velocity": self._velocity.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """As `Adam.load`."""
        self._velocity[:] = state["velocity"]
