"""The built-in players of Pong. They act from the input `vector` alone, play either side alike, and answer B matches in a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from numba import njit
from pydantic import Field

from lamarckian.errors import CheckpointError, ContractError
from lamarckian.games.pong.rules import BALL, BAT_HEIGHT, DOWN, FIELD, SIZE, SPEED, STAY, UP, WIDTH, streams, uniform
from lamarckian.games.settings import checked
from lamarckian.mdp import Observations

MIDDLE = FIELD / 2
HIGHEST, LOWEST = BALL / 2, FIELD - BALL / 2  # of the ball's centre
SWING_ROOM = BAT_HEIGHT / 2 + SPEED  # a bat's centre so far from a wall has room for a full move
HIT_X = 20.0  # of the ball's centre when the bat on the left can first meet it, on its way 80, 76, … 24, 20


class _Bot:
    """A bot's memory: arrays with a row for each match, of which `random` is the match's own random stream."""

    @checked
    def __init__(self) -> None:
        self._remember()

    def _remember(self, **first: np.ndarray) -> None:
        """Adds arrays to the memory, each given by the row that a match starts with."""
        self._first = {"random": np.zeros((), np.uint64)} | first
        self._memory = {name: np.empty((0, *row.shape), row.dtype) for name, row in self._first.items()}

    def start(self, matches: np.ndarray, seeds: Sequence[int]) -> None:
        """New matches begin at these indices, int `[K]`, each with its seed."""
        missing = int(np.max(matches, initial=-1)) + 1 - len(self._memory["random"])
        for name, row in self._first.items():
            if missing > 0:
                more = np.broadcast_to(row, (missing, *row.shape))
                self._memory[name] = np.concatenate([self._memory[name], more])
            self._memory[name][matches] = row
        self._memory["random"][matches] = streams(seeds)

    def save(self) -> dict[str, np.ndarray]:
        """Copies of all that the bot's future actions depend on."""
        return {name: array.copy() for name, array in self._memory.items()}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from what `save` gave."""
        matches = len(state.get("random", ()))
        for name, row in self._first.items():
            shape = state[name].shape if name in state else None
            if shape != (matches, *row.shape):
                raise CheckpointError(f"saved bot of Pong: '{name}' must have the shape {(matches, *row.shape)}, not {shape}")
        self._memory = {name: np.array(state[name], row.dtype) for name, row in self._first.items()}

    def _vectors(self, observations: Observations) -> np.ndarray:
        """The input `vector`, float32 `[B, 10]`."""
        vectors = np.ascontiguousarray(observations.inputs.get("vector", ()), np.float32)
        started = len(self._memory["random"])
        if vectors.shape[1:] != (SIZE,) or len(vectors) > started:
            raise ContractError(f"a bot started for {started} matches needs 'vector' [{started}, {SIZE}], not {list(vectors.shape)}")
        return vectors


@njit(cache=True, nogil=True)
def _towards(bat, target):
    """The move that brings the bat nearest to the target."""
    gap = target - bat
    return DOWN if gap > SPEED / 2 else UP if gap < -SPEED / 2 else STAY


@njit(cache=True, nogil=True)
def _track(vectors, random, offset, heading, seen, error, moves):
    for b in range(len(vectors)):
        vector = vectors[b]
        flown = np.sign(vector[8] - vector[6])
        if flown != heading[b] and flown != 0:
            heading[b] = flown
            offset[b] = error * (2 * uniform(random, b) - 1)
        for i in range(seen.shape[1] - 1):
            seen[b, i] = seen[b, i + 1]
        seen[b, -1] = vector[9]
        moves[b] = _towards(FIELD * vector[0], FIELD * seen[b, 0] + offset[b])


class Tracker(_Bot):
    """Follows the ball's y. With both settings 0 it neither lags nor errs."""

    @checked
    def __init__(
        self,
        *,
        reaction_ticks: Annotated[int, Field(ge=0, le=60, description="decisions by which it sees the ball late")] = 0,
        error_px: Annotated[float, Field(ge=0, le=FIELD, description="largest error of its aim, drawn anew when the ball turns")] = 0.0,
    ) -> None:
        self._remember(
            offset=np.zeros((), np.float64),
            heading=np.zeros((), np.float32),
            seen=np.full(reaction_ticks + 1, MIDDLE / FIELD, np.float32),
        )
        self._error = error_px

    def act(self, observations: Observations) -> Mapping[str, np.ndarray]:
        """A move for each match, int32 `[B]`."""
        vectors, memory = self._vectors(observations), self._memory
        moves = np.empty(len(vectors), np.int32)
        _track(vectors, memory["random"], memory["offset"], memory["heading"], memory["seen"], self._error, moves)
        return {"move": moves}


@njit(cache=True, nogil=True)
def _landing(y, vy, ticks):
    """Where the ball's centre is after so many ticks, and its vertical speed then: its way unfolded at the walls."""
    span = LOWEST - HIGHEST
    way = (y - HIGHEST + vy * ticks) % (2 * span)
    if way > span:
        return LOWEST - (way - span), -vy
    return HIGHEST + way, vy


@njit(cache=True, nogil=True)
def _intercept(vectors, moves):
    for b in range(len(vectors)):
        vector = vectors[b]
        bat, x = FIELD * vector[0], WIDTH * vector[8]
        ticks = round((x - HIT_X) / SPEED)
        if vector[8] >= vector[6] or ticks < 1:
            moves[b] = _towards(bat, MIDDLE)
            continue
        y, vy = _landing(FIELD * vector[9], FIELD * (vector[9] - vector[7]), ticks)
        swing = SPEED if vy > 0 else -SPEED
        if ticks > 1:
            moves[b] = _towards(bat, min(max(y - swing, SWING_ROOM), FIELD - SWING_ROOM))
        else:
            moves[b] = DOWN if swing > 0 else UP


class Interceptor(_Bot):
    """Waits where the ball will land and hits it on the move, so that it comes back steeper each time."""

    def act(self, observations: Observations) -> Mapping[str, np.ndarray]:
        """A move for each match, int32 `[B]`."""
        vectors = self._vectors(observations)
        moves = np.empty(len(vectors), np.int32)
        _intercept(vectors, moves)
        return {"move": moves}


@njit(cache=True, nogil=True)
def _draw(random, moves):
    for b in range(len(moves)):
        moves[b] = int(3 * uniform(random, b))


class Random(_Bot):
    """Draws each move anew, all three alike."""

    def act(self, observations: Observations) -> Mapping[str, np.ndarray]:
        """A move for each match, int32 `[B]`."""
        moves = np.empty(len(self._vectors(observations)), np.int32)
        _draw(self._memory["random"], moves)
        return {"move": moves}


class Stay(_Bot):
    """Never moves."""

    def act(self, observations: Observations) -> Mapping[str, np.ndarray]:
        """A move for each match, int32 `[B]`."""
        return {"move": np.full(len(self._vectors(observations)), STAY, np.int32)}
