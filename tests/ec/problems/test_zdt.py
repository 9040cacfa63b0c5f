"""ZDT against values worked out by hand, exact hypervolumes, and the known optimal variables of every point of a front."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from math import exp, pi, sqrt

import numpy as np
import pytest

from lamarckian.ec.problems import ZDT1, ZDT2, ZDT3, ZDT4, ZDT5, ZDT6
from lamarckian.ec.problems.zdt import ZDT3_PIECES, ZDT6_LEAST, ZDT6_PEAK
from lamarckian.errors import MisuseError

from .fronts import area, dominated

REALS = (ZDT1, ZDT2, ZDT3, ZDT4, ZDT6)


def value(problem, first: float, others: float) -> list[float]:
    """The objectives where x₁ is `first` and all other variables are `others`."""
    x = np.full((1, len(problem.bounds[0])), others)
    x[0, 0] = first
    return problem.evaluate(x)[0].tolist()


def bits(first: int, *others: int) -> dict[str, np.ndarray]:
    """ZDT5's bits with `first` ones among the first 30 and `others` among each five of the rest."""
    groups = [np.arange(30) < first, *(np.arange(5) < ones for ones in others)]
    return {"bits": np.concatenate(groups).astype(np.int64)[None]}


@pytest.mark.parametrize(
    ("problem", "first", "others", "expected"),
    [
        (ZDT1, 0.0, 0.0, (0, 1)),
        (ZDT1, 0.25, 0.0, (0.25, 0.5)),
        (ZDT1, 0.5, 0.5, (0.5, 5.5 - sqrt(5.5 / 2))),
        (ZDT1, 1.0, 1.0, (1, 10 - sqrt(10))),
        (ZDT2, 0.0, 0.0, (0, 1)),
        (ZDT2, 0.5, 0.0, (0.5, 0.75)),
        (ZDT2, 0.5, 0.5, (0.5, 5.5 - 0.5 / 11)),
        (ZDT2, 1.0, 1.0, (1, 9.9)),
        (ZDT3, 0.0, 0.0, (0, 1)),
        (ZDT3, 0.25, 0.0, (0.25, 0.25)),  # sin 2.5π = 1
        (ZDT3, 0.25, 1.0, (0.25, 10 - sqrt(2.5) - 0.25)),
        (ZDT3, 1.0, 1.0, (1, 10 - sqrt(10))),
        (ZDT4, 0.25, 0.0, (0.25, 0.5)),
        (ZDT4, 0.25, 0.25, (0.25, 181.5625 - sqrt(181.5625 / 4))),  # cos π = −1: g = 91 + 9 (1/16 + 10)
        (ZDT4, 1.0, 5.0, (1, 226 - sqrt(226))),  # g = 91 + 9 (25 − 10)
        (ZDT6, 0.0, 0.0, (1, 0)),
        (ZDT6, 1.0, 1.0, (1, 9.9)),
        (ZDT6, 1 / 12, 1 / 16, (1 - exp(-1 / 3), 5.5 - (1 - exp(-1 / 3)) ** 2 / 5.5)),
    ],
)
def test_values_by_hand(problem, first, others, expected):
    assert value(problem(), first, others) == pytest.approx(expected, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [
        (0, [0] * 10, (1, 20)),
        (0, [5] * 10, (1, 10)),
        (30, [5] * 10, (31, 10 / 31)),
        (15, [3] * 10, (16, 50 / 16)),
        (9, [0, 1, 2, 3, 4, 5, 5, 5, 5, 5], (10, 2.5)),  # 2 + 3 + 4 + 5 + 6 + 5 · 1 = 25
    ],
)
def test_zdt5_by_hand(first, others, expected):
    assert ZDT5().evaluate(bits(first, *others))[0].tolist() == pytest.approx(expected)


def test_zdt5_counts_ones_wherever_they_are():
    shuffled = bits(7, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    row = shuffled["bits"][0]
    row[:30], row[-5:] = row[:30][::-1].copy(), row[-5:][::-1].copy()
    assert ZDT5().evaluate(shuffled)[0].tolist() == pytest.approx((8, (1 + 8 * 2 + 3) / 8))


def test_zdt5_front_by_brute_force():
    # All counts of ones; the order of the fives does not matter.
    fives = np.array(list(combinations_with_replacement(range(6), 10)))
    first = np.repeat(np.arange(31), len(fives))
    others = (np.arange(5) < np.tile(fives, (31, 1))[:, :, None]).reshape(-1, 50)
    found = np.unique(ZDT5().evaluate({"bits": np.hstack([np.arange(30) < first[:, None], others])}), axis=0)
    assert len(found) > 1000
    front = ZDT5().front()
    assert front.shape == (31, 2)
    np.testing.assert_allclose(found[~dominated(found)], front, rtol=1e-15)


@pytest.mark.parametrize("problem", REALS)
def test_every_point_of_the_front_is_attained(problem):
    front = problem().front(101)
    x = np.zeros((101, len(problem().bounds[0])))
    x[:, 0] = front[:, 0]
    if problem is ZDT6:  # f₁ falls from 1 to its least value on the way to x₁ = ZDT6_PEAK
        low, high = np.zeros(101), np.full(101, ZDT6_PEAK)
        for _ in range(60):
            x[:, 0] = (low + high) / 2
            above = problem().evaluate(x)[:, 0] > front[:, 0]
            low, high = np.where(above, x[:, 0], low), np.where(above, high, x[:, 0])
    np.testing.assert_allclose(problem().evaluate(x), front, atol=1e-12)


@pytest.mark.parametrize("problem", [*REALS, ZDT5])
def test_no_point_of_the_front_dominates_another(problem):
    assert not dominated(problem().front()).any()


@pytest.mark.parametrize("problem", REALS)
def test_no_random_solution_dominates_the_front(problem):
    random = np.random.default_rng(0)
    x = random.random((400, len(problem().bounds[0]))) * [1.0, *[0.0] * (len(problem().bounds[0]) - 1)]
    x[200:, 1:] = random.random((200, 1)) * 1e-3
    front = problem().front(200)
    assert not dominated(np.concatenate([front - 1e-9, problem().evaluate(x)]))[:200].any()


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ZDT1, 1.21 - 1 / 3),
        (ZDT2, 1.21 - 2 / 3),
        (ZDT3, 1.331763),
        (ZDT4, 1.21 - 1 / 3),
        (ZDT6, 1.1 * (1.1 - ZDT6_LEAST) - (1 - ZDT6_LEAST) + (1 - ZDT6_LEAST**3) / 3),
    ],
)
def test_hypervolume_of_the_front(problem, expected):
    for points in (100, 5000):
        found, missing = area(problem().front(points))
        assert expected - missing - 5e-7 <= found <= expected + 5e-7
    assert missing < 1e-3


def test_zdt3_pieces_end_at_minima_and_begin_at_their_height():
    def f2(f1: float) -> float:
        return 1 - sqrt(f1) - f1 * np.sin(10 * pi * f1)

    for (_, end), (begin, _) in pairwise(ZDT3_PIECES):
        assert f2(begin) == pytest.approx(f2(end), abs=1e-14)
    for _, end in ZDT3_PIECES:
        assert -0.5 / sqrt(end) - np.sin(10 * pi * end) - 10 * pi * end * np.cos(10 * pi * end) == pytest.approx(0, abs=1e-12)
    everywhere = np.linspace(0, 1, 20001)
    height = 1 - np.sqrt(everywhere) - everywhere * np.sin(10 * pi * everywhere)
    best = height < np.minimum.accumulate(np.concatenate([[np.inf], height[:-1]]))
    inside = np.any([(begin < everywhere) & (everywhere <= end) for begin, end in ZDT3_PIECES], axis=0) | (everywhere == 0)
    # The grid sees a minimum only at its own points: one a piece may be seen wrongly.
    assert (best != inside).sum() <= 10


def test_zdt6_begins_at_its_least_f1():
    x = np.zeros((100001, 2))
    x[:, 0] = np.linspace(0, 1, len(x))
    least = ZDT6(variables=2).evaluate(x)[:, 0].min()
    assert ZDT6_LEAST - 1e-15 <= least <= ZDT6_LEAST + 1e-7
    assert ZDT6().front()[0, 0] == pytest.approx(0.28077532, abs=5e-9)


@pytest.mark.parametrize("problem", REALS)
def test_settings_out_of_range_are_refused(problem):
    for variables in (1, 0, 2.5, "30", True):
        with pytest.raises(MisuseError, match=f"{problem.__name__}: variables must be a whole number of at least 2, not {variables!r}"):
            problem(variables=variables)
    with pytest.raises(MisuseError, match="points must be a whole number of at least 2, not 1"):
        problem().front(1)


def test_customary_sizes_and_bounds():
    assert [len(problem().bounds[0]) for problem in REALS] == [30, 30, 30, 10, 10]
    for problem in (ZDT1, ZDT2, ZDT3, ZDT6):
        assert [set(bound.tolist()) for bound in problem().bounds] == [{0.0}, {1.0}]
    assert [bound.tolist() for bound in ZDT4(variables=3).bounds] == [[0, -5, -5], [1, 5, 5]]
    assert ZDT5().genome.length == 80
    assert all(problem.minimise for problem in (*REALS, ZDT5))
