"""B matches of Pong side by side: what both ways of playing stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from lamarckian.errors import CheckpointError
from lamarckian.games.pong.image import photograph
from lamarckian.games.pong.rules import MATCH, SIZE, advance, begin, streams
from lamarckian.mdp import Result


class Table:
    """The matches' state, and what each seat sees of it.

    image: size and frames of the images, or None for none.
    matches: `MATCH` `[B]`. rewards: float32 `[2, B, 1]`, by seat. ended: bool `[B]`.
    inputs: by seat, arrays `vector` `[B, 10]` and, where there are images, `image` `[B, frames, size, size]`; each call writes
    to the same arrays.
    """

    def __init__(self, size: int, rounds: int, rally_ticks: int, image: tuple[int, int] | None) -> None:
        self.matches = np.zeros(size, MATCH)
        self.rewards = np.zeros((2, size, 1), np.float32)
        self.ended = np.zeros(size, np.bool_)
        self.inputs: list[dict[str, np.ndarray]] = [{}, {}]
        self._arrays = {"vector": np.zeros((2, size, SIZE), np.float32)}
        if image is not None:
            pixels, frames = image
            self._arrays["image"] = np.zeros((2, size, frames, pixels, pixels), np.uint8)
        for name, array in self._arrays.items():
            for seat in range(2):
                self.inputs[seat][name] = array[seat]
        self._all = np.arange(size)
        self._limits = rounds, rally_ticks
        self._points, self._moved, self._ticks = (self.matches[name] for name in ("points", "moved", "ticks"))

    def begin(self, lanes: np.ndarray, seeds: Sequence[int]) -> None:
        """Starts new matches at the indices `lanes`, int64 `[K]`."""
        begin(self.matches, self._arrays["vector"], lanes, streams(seeds))
        if "image" in self._arrays:
            photograph(self.matches, self._arrays["image"], lanes, True)

    def advance(self, moves: np.ndarray) -> int:
        """One tick, `moves` int64 `[2, B]`; gives how many matches ended, or -1, with nothing done, if a move is out of range."""
        count = advance(self.matches, moves, *self._limits, self._arrays["vector"], self.rewards, self.ended)
        if "image" in self._arrays and count >= 0:
            photograph(self.matches, self._arrays["image"], self._all, False)
        return count

    def result(self, b: int, seat: int) -> Result:
        """The result of a seat in match b so far."""
        rounds = self._limits[0]
        own, other = int(self._points[b, seat]), int(self._points[b, 1 - seat])
        outcome: Literal["win", "draw", "loss"] = "win" if own > other else "loss" if own < other else "draw"
        busy = int(self._moved[b, seat]) / max(int(self._ticks[b]), 1)
        return Result((own - other + rounds) / (2 * rounds), outcome, {"busy": busy, "lazy": 1.0 - busy})

    def save(self) -> dict[str, np.ndarray]:
        """Copies of all that the matches' future depends on."""
        fields = {name: self.matches[name].copy() for name in MATCH.names or ()}
        return fields | {name: array.copy() for name, array in self._arrays.items()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from what `save` gave."""
        fields = {name: self.matches[name] for name in MATCH.names or ()}
        for name, array in (fields | self._arrays).items():
            if name not in state or state[name].shape != array.shape:
                came = state[name].shape if name in state else "nothing"
                raise CheckpointError(f"saved matches of Pong: '{name}' must have the shape {array.shape}, not {came}")
            array[...] = state[name]
