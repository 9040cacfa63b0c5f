"""Seeds. Every part of a run draws from a stream of its own, derived from the run's seed and the part's path."""

from __future__ import annotations

import zlib

import numpy as np


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed for the part of the run that `path` names: the same path gives the same seed."""
    return int(_sequence(seed, path).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """A random generator for the part of the run that `path` names."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, path)))


def match_seed(seed: int, match: int, number: int) -> int:
    """The seed of the `number`-th game that is played at index `match`; the same by the batched way and by coroutines."""
    return derive(seed, match, number)


def agent_seed(seed: int, role: str) -> int:
    """The seed of whoever plays `role` in the match of this seed."""
    return derive(seed, role)


def _sequence(seed: int, path: tuple[int | str, ...]) -> np.random.SeedSequence:
    key = tuple(part if isinstance(part, int) else zlib.crc32(part.encode()) for part in path)
    return np.random.SeedSequence(seed, spawn_key=key)
