"""Who mates with whom."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numba import njit

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
    if mating in ("nearest", "farthest"):
        spans = np.ptp(fitness, axis=0)
        fitness = fitness / np.where(spans > 0, spans, 1.0)
    _mate(_METHODS.index(mating), tournament, seed, ids, rank, crowding, age, fitness, pairs)
    return pairs


@njit(cache=True)
def _fitter(rank: np.ndarray, crowding: np.ndarray, a: int, b: int) -> bool:
    return rank[a] < rank[b] or (rank[a] == rank[b] and crowding[a] > crowding[b])


@njit(cache=True)
def _draw(method: int, tournament: int, state: np.ndarray, rank: np.ndarray, crowding: np.ndarray, age: np.ndarray) -> int:
    best = below(state, len(rank))
    if method != 1:
        for _ in range(tournament - 1):
            other = below(state, len(rank))
            if (age[other] > age[best]) if method == 2 else _fitter(rank, crowding, other, best):
                best = other
    return best


@njit(cache=True)
def _neighbour(fitness: np.ndarray, row: int, farthest: bool) -> int:
    chosen, chosen_distance = row, 0.0
    for other in range(len(fitness)):
        distance = 0.0
        for objective in range(fitness.shape[1]):
            distance += (fitness[other, objective] - fitness[row, objective]) ** 2
        if other != row and (chosen == row or (distance > chosen_distance) == farthest):
            chosen, chosen_distance = other, distance
    return chosen


@njit(cache=True, nogil=True)
def _mate(
    method: int, tournament: int, seed: int, ids: np.ndarray,
    rank: np.ndarray, crowding: np.ndarray, age: np.ndarray, fitness: np.ndarray, pairs: np.ndarray,
) -> None:  # fmt: skip
    state = np.empty(STATE_WORDS, np.uint64)
    size = len(rank)
    for index in range(len(ids)):
        open_stream(state, seed, ids[index])
        a = _draw(method, tournament, state, rank, crowding, age)
        if method >= 3:
            b = _neighbour(fitness, a, method == 4)
        else:
            b = _draw(method, tournament, state, rank, crowding, age)
            for _ in range(_TRIES):
                if b != a:
                    break
                b = _draw(method, tournament, state, rank, crowding, age)
            if b == a and size > 1:
                b = (a + 1 + below(state, size - 1)) % size
        if _fitter(rank, crowding, b, a):
            a, b = b, a
        pairs[index, 0], pairs[index, 1] = a, b
