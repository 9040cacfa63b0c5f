"""Random numbers inside compiled kernels: a stream for every candidate, the same wherever that candidate is made.

xoshiro256++ (Blackman, Vigna 2021), its state filled by SplitMix64 from a seed and a candidate's id. So offspring depend neither on the
worker that makes them nor on how many are made in one call.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit

STATE_WORDS = 4


@njit
def _scramble(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit
def open_stream(state: np.ndarray, seed: int, key: int) -> None:
    """Fills `state`, uint64 `[4]`, with the start of the stream that `seed` and `key` (a candidate's id) name."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    word = _scramble(np.uint64(seed) + golden) ^ _scramble(np.uint64(key) * golden + np.uint64(1))
    for index in range(STATE_WORDS):
        word += golden
        state[index] = _scramble(word)


@njit
def _rotate(word: np.uint64, bits: int) -> np.uint64:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@njit
def word(state: np.ndarray) -> np.uint64:
    """The next 64 random bits."""
    result = _rotate(state[0] + state[3], 23) + state[0]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = _rotate(state[3], 45)
    return result


@njit
def uniform(state: np.ndarray) -> float:
    """A float in [0, 1), of 53 random bits."""
    return float(word(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit
def uniforms(state: np.ndarray, out: np.ndarray) -> None:
    """Fills `out` `[n]` with what n calls of `uniform` give; quicker."""
    s0, s1, s2, s3 = state
    for index in range(len(out)):
        out[index] = float((_rotate(s0 + s3, 23) + s0) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        shifted = s1 << np.uint64(17)
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = _rotate(s3, 45)
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3


@njit
def below(state: np.ndarray, bound: int) -> int:
    """An integer in [0, bound), for bounds up to 2**52."""
    if bound >= 1 << 32:
        return int(uniform(state) * bound)
    return int(np.int64((word(state) >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)))


@njit
def normal(state: np.ndarray) -> float:
    """A standard normal number (polar method, Marsaglia 1964; its twin is thrown away, so that a stream has no hidden state)."""
    while True:
        x = 2.0 * uniform(state) - 1.0
        y = 2.0 * uniform(state) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * np.sqrt(-2.0 * np.log(square) / square)
