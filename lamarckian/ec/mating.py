"""Who mates with whom."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.stream import STATE_WORDS, below, open_stream
from lamarckian.errors import MisuseError

Mating: TypeAlias = Literal["tournament", "random", "oldest", "nearest", "farthest"]
"""How pairs are chosen.

tournament: each parent is the best of some drawn at random. random: anybody. oldest: each parent is the oldest of some drawn at random.
nearest, farthest: one by tournament, the other whoever is nearest to it, or farthest from it, in objectives scaled to their range.
"""
_METHODS = get_args(Mating)
_TRIES = 8


def check_mating(mating: str, tournament: int) -> None:
    """Raises MisuseError where there is no such way to mate."""
    if mating not in _METHODS:
        raise MisuseError(f"mating must be one of {', '.join(_METHODS)}, not {mating!r}")
    if tournament < 1:
        raise MisuseError(f"a tournament has at least 1 entrant, not {tournament}")


def mate(
    mating: Mating, tournament: int, seed: int, ids: np.ndarray,
    rank: np.ndarray, crowding: np.ndarray, age: np.ndarray, fitness: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Parents of the children `ids`, int64 `[n, 2]`, as rows of a population of which rank, crowding, age and fitness are given.

    The first parent of a pair is the fitter one: of lower rank, and among equals the less crowded one. The two differ wherever the
    population has two individuals. A child's parents depend on the stream that `seed` and its id name, and on nobody else's.
    """
    pairs = np.empty((len(ids), 2), np.int64)
    if mating == "oldest":
        _draw(tournament, seed, ids, -age, np.zeros(len(age)), pairs)
    else:
        _draw(1 if mating == "random" else tournament, seed, ids, rank, crowding, pairs)
    if mating in ("nearest", "farthest"):
        spans = np.ptp(fitness, axis=0)
        _seek(fitness / np.where(spans > 0, spans, 1.0), mating == "farthest", pairs)
    _arrange(rank, crowding, pairs)
    return pairs


@njit
def _fitter(rank: np.ndarray, crowding: np.ndarray, a: int, b: int) -> bool:
    return rank[a] < rank[b] or (rank[a] == rank[b] and crowding[a] > crowding[b])


@njit
def _draw(tournament: int, seed: int, ids: np.ndarray, rank: np.ndarray, crowding: np.ndarray, pairs: np.ndarray) -> None:
    """Both parents by tournament."""
    state = np.empty(STATE_WORDS, np.uint64)
    size = len(rank)
    for index in range(len(ids)):
        open_stream(state, seed, ids[index])
        a = b = -1
        for _ in range(_TRIES):
            b = below(state, size)
            for _ in range(tournament - 1):
                other = below(state, size)
                if _fitter(rank, crowding, other, b):
                    b = other
            if a >= 0 and b != a:
                break
            a = b
        if b == a and size > 1:
            b = (a + 1 + below(state, size - 1)) % size
        pairs[index, 0], pairs[index, 1] = a, b


@njit
def _seek(fitness: np.ndarray, farthest: bool, pairs: np.ndarray) -> None:
    """Gives each first parent its nearest, or farthest, for a partner."""
    for index in range(len(pairs)):
        row = pairs[index, 0]
        chosen, chosen_distance = row, 0.0
        for other in range(len(fitness)):
            distance = 0.0
            for objective in range(fitness.shape[1]):
                distance += (fitness[other, objective] - fitness[row, objective]) ** 2
            if other != row and (chosen == row or (distance > chosen_distance) == farthest):
                chosen, chosen_distance = other, distance
        pairs[index, 1] = chosen


@njit
def _arrange(rank: np.ndarray, crowding: np.ndarray, pairs: np.ndarray) -> None:
    """The fitter one first."""
    for index in range(len(pairs)):
        a, b = pairs[index]
        if _fitter(rank, crowding, b, a):
            pairs[index, 0], pairs[index, 1] = b, a
