"""Knapsacks and round trips against sums item by item and city by city, and all solutions of small ones."""

from __future__ import annotations

from itertools import pairwise, permutations
from math import dist, pi, sin, sqrt

import numpy as np
import pytest

from lamarckian.ec.problems import TSP, Knapsack
from lamarckian.errors import MisuseError


def test_knapsack_item_by_item():
    problem = Knapsack(items=20, knapsacks=3, seed=4)
    packed = problem.genome.sample(50, np.random.default_rng(0))
    profits, violation = problem.evaluate(packed)
    assert profits.shape == (50, 3)
    for row, profit, excess in zip(packed["items"], profits, violation, strict=True):
        chosen = [item for item in range(20) if row[item]]
        assert profit.tolist() == [sum(own[item] for item in chosen) for own in problem.profits]
        weights = [sum(own[item] for item in chosen) for own in problem.weights]
        assert excess == sum(max(0, weight - holds) for weight, holds in zip(weights, problem.capacities, strict=True))
    assert (violation > 0).any()
    assert (violation == 0).any()


def test_knapsacks_hold_half_of_everything():
    problem = Knapsack(items=30, knapsacks=2)
    profits, violation = problem.evaluate({"items": np.array([[0] * 30, [1] * 30])})
    assert profits.tolist() == [[0, 0], problem.profits.sum(axis=1).tolist()]
    assert violation.tolist() == [0, problem.weights.sum() / 2]


def test_profits_and_weights_are_whole_numbers_of_10_to_100():
    problem = Knapsack(items=5000)
    for drawn in (problem.profits, problem.weights):
        assert drawn.shape == (2, 5000)
        assert set(drawn.ravel()) == set(range(10, 101))
    assert not problem.minimise


def test_a_seed_names_one_instance():
    assert np.array_equal(Knapsack(seed=1).profits, Knapsack(seed=1).profits)
    assert not np.array_equal(Knapsack(seed=1).profits, Knapsack(seed=2).profits)
    assert np.array_equal(TSP(seed=1).cities, TSP(seed=1).cities)
    assert not np.array_equal(TSP(seed=1).cities, TSP(seed=2).cities)


@pytest.mark.parametrize("layout", ["random", "circle"])
def test_round_trips_city_by_city(layout):
    problem = TSP(cities=12, layout=layout, seed=3)
    tours = problem.genome.sample(40, np.random.default_rng(0))
    found = problem.evaluate(tours)
    assert found.shape == (40, 1)
    for tour, (length,) in zip(tours["tour"], found, strict=True):
        assert length == pytest.approx(sum(dist(problem.cities[a], problem.cities[b]) for a, b in pairwise([*tour, tour[0]])))


def test_where_a_round_trip_begins_and_which_way_it_goes_makes_no_difference():
    problem = TSP(cities=20)
    tours = problem.genome.sample(10, np.random.default_rng(0))["tour"]
    expected = problem.evaluate({"tour": tours})
    for other in (np.roll(tours, 5, axis=1), tours[:, ::-1]):
        np.testing.assert_allclose(problem.evaluate({"tour": other}), expected)


def test_the_optimum_on_the_circle_by_all_round_trips():
    problem = TSP(cities=7, layout="circle", seed=1)
    found = problem.evaluate({"tour": np.array(list(permutations(range(7))))})
    assert problem.optimum == pytest.approx(7 * sin(pi / 7))
    assert found.min() == pytest.approx(problem.optimum)
    assert (found < problem.optimum + 1e-9).sum() == 14  # seven beginnings, two ways


def test_the_optimum_on_a_large_circle_is_the_way_around():
    problem = TSP(cities=200, layout="circle")
    x, y = (problem.cities - 0.5).T
    assert problem.evaluate({"tour": np.argsort(np.arctan2(y, x))[None]})[0, 0] == pytest.approx(problem.optimum)
    assert problem.evaluate({"tour": np.arange(200)[None]})[0, 0] > 10 * problem.optimum


def test_four_cities_on_the_circle_are_a_square():
    assert TSP(cities=4, layout="circle").optimum == pytest.approx(4 * sqrt(0.5))


def test_no_optimum_is_claimed_for_random_cities():
    assert TSP().optimum is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Knapsack(items=0), "Knapsack: items must be a whole number of at least 1, not 0"),
        (lambda: Knapsack(knapsacks=0), "Knapsack: knapsacks must be a whole number of at least 1, not 0"),
        (lambda: Knapsack(seed=-1), "Knapsack: seed must be a whole number of at least 0, not -1"),
        (lambda: TSP(cities=2), "TSP: cities must be a whole number of at least 3, not 2"),
        (lambda: TSP(layout="line"), "TSP: layout is 'random' or 'circle', not 'line'"),
        (lambda: TSP(cities=5).evaluate({"tour": np.array([[0, 1, 2, 3, 5]])}), "cities are numbered 0 to 4; a tour names 0 to 5"),
        (lambda: TSP(cities=5).evaluate({"tour": np.array([[0, 1, 2, 3]])}), r"TSP evaluates arrays of shape \[N, 5\], not \[1, 4\]"),
    ],
)
def test_misuse_is_refused(make, message):
    with pytest.raises(MisuseError, match=message):
        make()
