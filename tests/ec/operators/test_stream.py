"""Streams of random numbers against their definitions, worked out with whole numbers of any size."""

import numpy as np
import pytest

from lamarckian.ec.stream import STATE_WORDS, below, normal, open_stream, uniform, word
from tests.ec.operators.properties import about, evenly

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def xoshiro(state: list[int], count: int) -> list[int]:
    """xoshiro256++ as its authors define it."""
    s, words = list(state), []
    for _ in range(count):
        words.append((rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        shifted = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotate(s[3], 45)
    return words


def scramble(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def opened(seed: int, key: int) -> np.ndarray:
    state = np.empty(STATE_WORDS, np.uint64)
    open_stream(state, seed, key)
    return state


def draws(function, count: int, *arguments, seed: int = 1, key: int = 2) -> np.ndarray:
    state = opened(seed, key)
    return np.array([function(state, *arguments) for _ in range(count)])


def test_words_are_those_of_xoshiro():
    state = np.array([1, 2, 3, 4], np.uint64)
    words = [int(word(state)) for _ in range(50)]
    assert words[:4] == [41943041, 58720359, 3588806011781223, 3591011842654386]
    assert words == xoshiro([1, 2, 3, 4], 50)


@pytest.mark.parametrize("seed, key", [(0, 0), (1, 0), (0, 1), (2**63 - 1, 2**40), (123456789, 987654321)])
def test_a_stream_starts_from_splitmix(seed, key):
    assert scramble(GOLDEN) == 0xE220A8397B1DCDAF  # the first word of SplitMix64 from 0
    start = scramble((seed + GOLDEN) & MASK) ^ scramble((key * GOLDEN + 1) & MASK)
    expected = [scramble((start + (index + 1) * GOLDEN) & MASK) for index in range(4)]
    assert [int(x) for x in opened(seed, key)] == expected


def test_uniform_numbers_are_the_upper_53_bits():
    words = xoshiro([int(x) for x in opened(3, 4)], 20)
    assert draws(uniform, 20, seed=3, key=4).tolist() == [(x >> 11) / 2**53 for x in words]


def test_uniform_numbers_lie_evenly_in_the_unit_interval():
    numbers = draws(uniform, 20_000)
    assert (numbers >= 0.0).all() and (numbers < 1.0).all()
    assert evenly(np.histogram(numbers, 20, (0.0, 1.0))[0])
    assert about(numbers, 0.5) and about(numbers**2, 1 / 3) and about(numbers[1:] * numbers[:-1], 0.25)


def test_integers_below_a_bound_are_equally_likely():
    assert evenly(np.bincount(draws(below, 14_000, 7), minlength=7))
    assert not draws(below, 10, 1).any()


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    numbers = draws(normal, 20_000)
    for power, moment in enumerate([0.0, 1.0, 0.0, 3.0], start=1):
        assert about(numbers**power, moment)
    assert about(abs(numbers) < 1.0, 0.682689)


@pytest.mark.parametrize("neighbours", ["keys", "seeds"])
def test_neighbouring_streams_are_uncorrelated(neighbours):
    starts = [opened(5, index) if neighbours == "keys" else opened(index, 5) for index in range(10_000)]
    rows = np.array([[uniform(state), uniform(state)] for state in starts])
    assert len(np.unique(rows)) == rows.size
    for first, second in [(rows[:-1, 0], rows[1:, 0]), (rows[:-1, 1], rows[1:, 0]), (rows[:, 0], rows[:, 1])]:
        assert about((first - 0.5) * (second - 0.5), 0.0)
    assert evenly(np.histogram(rows[:, 0], 20, (0.0, 1.0))[0])
