"""Results: what is left at the end."""

import numpy as np
import pytest

from lamarckian.ec import GA, NSGA2, Evolution, evolve
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.problems import TSP, ZDT1, Knapsack, Sphere
from lamarckian.ec.result import best_value, front_of, result_of
from lamarckian.errors import MisuseError


class Points:
    """Whose objectives are its genes, but for a constraint: the first is at least 0.25."""

    bounds = [0.0, 0.0], [1.0, 1.0]
    objectives = 2

    def __init__(self, points, minimise=True):
        self._points = np.array(points, np.float64)
        self.minimise = minimise

    def initialize(self, count, generator):
        return self._points

    def evaluate(self, x):
        return x, 0.25 - x[:, 0]


FIRST = [[0.9, 0.3], [0.3, 0.9], [0.1, 0.1], [0.5, 0.5], [0.6, 0.6], [0.3, 0.9], [0.5, 0.5]]


def test_a_front_by_hand():
    result = evolve(Points(FIRST), NSGA2(7), 7)
    assert result.front.tolist() == [[0.3, 0.9], [0.3, 0.9], [0.5, 0.5], [0.5, 0.5], [0.9, 0.3]]
    assert np.array_equal(result.genomes, result.front) and np.array_equal(result.front_population.fitness, -result.front)
    assert result.hypervolume([1.0, 1.0]) == pytest.approx(0.7 * 0.1 + 0.5 * 0.4 + 0.1 * 0.2)
    assert (result.evaluations, result.failed, result.generations, result.faults) == (7, 0, 1, [])
    assert len(result.population) == 7 and result.seconds > 0
    with pytest.raises(MisuseError, match="no best one among 5 feasible individuals of 2 objectives"):
        _ = result.best


def test_a_front_of_maximisation_by_hand():
    result = evolve(Points(FIRST, minimise=False), NSGA2(7), 7)
    assert result.front.tolist() == [[0.3, 0.9], [0.3, 0.9], [0.6, 0.6], [0.9, 0.3]]
    assert np.array_equal(result.front_population.fitness, result.front)
    assert result.hypervolume([0.0, 0.0]) == pytest.approx(0.3 * 0.9 + 0.3 * 0.6 + 0.3 * 0.3)


def test_nothing_feasible_is_an_empty_front():
    result = evolve(Points([[0.1, 0.1], [0.2, 0.2]]), NSGA2(2), 2)
    assert result.front.shape == (0, 2) and result.genomes.shape == (0, 2) and result.hypervolume([1, 1]) == 0
    assert result.population.violation == pytest.approx([0.15, 0.05])


@pytest.mark.parametrize(("problem", "objectives"), [(ZDT1(4), 2), (Sphere(4), 1), (Knapsack(4, 3), 3)])
def test_before_anything_was_evaluated_there_is_an_empty_front(problem, objectives):
    evolution = Evolution(as_evaluator(problem), NSGA2(4))
    assert front_of(evolution).raw.shape == (0, objectives) and best_value(evolution) is None
    assert result_of(evolution, False, 0.0).hypervolume([0.0] * objectives) == 0.0


def test_the_front_of_what_has_not_been_selected_from_yet_is_empty():
    class Unsaid(Knapsack):
        def __init__(self):
            super().__init__(4)
            del self.objectives

        def evaluate(self, x):
            return np.ones((len(x["items"]), 3))

    evolution = Evolution(as_evaluator(Unsaid()), NSGA2(4), mode="asynchronous")
    assert front_of(evolution).raw.shape == (0, 0)
    evolution.advance()
    assert evolution.objectives == 3 and front_of(evolution).raw.shape == (0, 3)


def test_the_best_is_given_as_the_problem_takes_it():
    genome, value = evolve(TSP(5, "circle"), GA(20), 1_000).best
    assert sorted(genome["tour"].tolist()) == list(range(5)) and value == pytest.approx(TSP(5, "circle").optimum)
    genome, value = evolve(Sphere(3), GA(20), 200).best
    assert genome.shape == (3,) and Sphere(3).evaluate(genome[None])[0, 0] == value


def test_the_best_of_all_that_ever_were_is_feasible_where_anybody_was():
    class Half:
        bounds = [-1.0, -1.0], [1.0, 1.0]
        objectives = 1

        def evaluate(self, x):
            return x.sum(axis=1), -x[:, 0]

    result = evolve(Half(), GA(10), 500)
    assert result.best[1] == pytest.approx(-1.0, abs=0.05) and result.best[0][0] >= 0


def test_a_result_stays_as_it_was():
    evolution = Evolution(as_evaluator(ZDT1(4)), NSGA2(6))
    evolution.advance()
    result = result_of(evolution, True, 0.0)
    front, ages = result.front.copy(), result.population.age.copy()
    for _ in range(20):
        evolution.advance()
    assert np.array_equal(result.front, front) and np.array_equal(result.population.age, ages) and result.generations == 1
