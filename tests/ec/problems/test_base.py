"""What the problems share."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec import problems
from lamarckian.ec.problems.base import along, lattice, sine
from lamarckian.errors import MisuseError, RecipeError
from lamarckian.plugins import construct

ALL = [getattr(problems, name) for name in problems.__all__]


@given(st.floats(-1000, 1000))
def test_sine_is_the_library_s(turn):
    nearest = round(turn)
    assert sine(turn) == pytest.approx((-1) ** nearest * np.sin(np.pi * (turn - nearest)), rel=1e-15, abs=5e-16)


def test_sine_is_exact_at_quarters_of_a_turn():
    assert [sine(quarter / 2) for quarter in range(-4, 5)] == [0, 1, 0, -1, 0, 1, 0, -1, 0]
    assert np.isnan(sine(np.nan))


def test_points_along_pieces_by_hand():
    assert along([(0.0, 1.0), (2.0, 4.0)], 7).tolist() == [0, 0.5, 1, 2.5, 3, 3.5, 4]


@given(st.integers(2, 6), st.integers(2, 300))
def test_a_lattice_is_all_multiples_that_sum_to_1(objectives, points):
    found = lattice(objectives, points)
    divisions = round(1 / found[found > 0].min())
    assert len(found) == comb(divisions + objectives - 1, objectives - 1) >= points
    assert comb(divisions + objectives - 2, objectives - 1) < points
    whole = np.rint(found * divisions)
    np.testing.assert_allclose(whole / divisions, found)
    assert (whole >= 0).all()
    assert (whole.sum(axis=1) == divisions).all()
    assert len(np.unique(whole, axis=0)) == len(found)


@pytest.mark.parametrize("problem", ALL)
def test_evaluating_none_gives_none(problem):
    made = construct(problem, {}, "problem")
    x = np.empty((0, len(made.bounds[0]))) if hasattr(made, "bounds") else made.genome.sample(0, np.random.default_rng(0))
    result = made.evaluate(x)
    assert (result[0] if isinstance(result, tuple) else result).shape == (0, made.objectives)


@pytest.mark.parametrize("problem", [problem for problem in ALL if hasattr(problem(), "bounds")])
def test_rows_are_evaluated_each_for_itself_whatever_their_layout(problem):
    made = problem()
    low, high = made.bounds
    x = low + (high - low) * np.random.default_rng(0).random((20, len(low)))
    expected = made.evaluate(x)
    assert expected.dtype == np.float64
    assert np.array_equal(np.concatenate([made.evaluate(row[None]) for row in x]), expected)
    assert np.array_equal(made.evaluate(np.asfortranarray(x)), expected)
    assert np.array_equal(made.evaluate(x[::-1])[::-1], expected)
    with pytest.raises(MisuseError, match=rf"{problem.__name__} evaluates arrays of shape \[N, {len(low)}\], not \[20, {len(low) - 1}\]"):
        made.evaluate(x[:, 1:])
    with pytest.raises(MisuseError, match="evaluates arrays of shape"):
        made.evaluate(x[0])


def test_recipes_check_settings():
    assert construct(problems.DTLZ2, {"objectives": 4, "variables": 8}, "problem").objectives == 4
    for settings in ({"objectives": "three"}, {"goals": 3}):
        with pytest.raises(RecipeError, match=r"problem\."):
            construct(problems.DTLZ2, settings, "problem")
    with pytest.raises(RecipeError, match="layout"):
        construct(problems.TSP, {"layout": "line"}, "problem")
