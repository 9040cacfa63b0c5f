"""What a recurrent policy remembers in each of the seats that it plays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class States:
    """The recurrent state of every seat: 0 when a match begins, then what the network gave last. A seat is any small number.

    shapes: of each part, by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._parts = {name: np.zeros((0, *shape), np.float32) for name, shape in shapes.items()}
        self._begins = np.zeros(0, np.bool_)

    def begin(self, seats: np.ndarray) -> None:
        """Matches begin at these seats, int `[K]`: with their next decision. What was remembered stays until then."""
        if self._parts:
            self._reach(seats)
            self._begins[seats] = True

    def before(self, seats: np.ndarray, count: int) -> dict[str, np.ndarray]:
        """Each part `[B, …]` as the network gets it: `state.<name>`. The first `count` seats are to decide, the others only end a match."""
        self._reach(seats)
        states = {f"state.{name}": part[seats] for name, part in self._parts.items()}
        begins = np.nonzero(self._begins[seats[:count]])[0]
        for part in states.values():
            part[begins] = 0.0
        return states

    def after(self, seats: np.ndarray, outputs: dict[str, np.ndarray]) -> None:
        """Takes what the network gave to the seats that decided, `after.<name>`, out of its outputs; their matches go on."""
        for name, part in self._parts.items():
            part[seats] = outputs.pop(f"after.{name}")[: len(seats)]
        self._begins[seats] = False

    def save(self) -> dict[str, np.ndarray]:
        return {**{name: part.copy() for name, part in self._parts.items()}, "begins": self._begins.copy()} if self._parts else {}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        if self._parts:
            self._parts = {name: state[name].copy() for name in self._parts}
            self._begins = state["begins"].copy()

    def _reach(self, seats: np.ndarray) -> None:
        missing = int(seats.max(initial=-1)) + 1 - len(self._begins)
        if missing > 0:
            self._begins = np.concatenate([self._begins, np.ones(missing, np.bool_)])
            self._parts = {
                name: np.concatenate([part, np.zeros((missing, *part.shape[1:]), np.float32)]) for name, part in self._parts.items()
            }
