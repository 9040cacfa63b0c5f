"""GA: reaches what is known to be best."""

import numpy as np
import pytest

from lamarckian.ec import GA, Evolution, Integer, Permutation, Variation, evolve
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.operators import Insertion, OrderCrossover
from lamarckian.ec.problems import TSP, Knapsack, Rastrigin, Sphere
from lamarckian.errors import MisuseError

from .judging import judged


def best_packing(problem):
    """The optimum, by dynamic programming over the weight."""
    best = np.full(int(problem.capacities[0]) + 1, -np.inf)
    best[0] = 0
    for profit, weight in zip(problem.profits[0], problem.weights[0].astype(int), strict=True):
        best[weight:] = np.maximum(best[weight:], best[:-weight] + profit)
    return best.max()


@pytest.mark.parametrize(("population", "offspring"), [(60, None), (60, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_packing_of_a_knapsack_is_found(population, offspring, seed):
    problem = Knapsack(30, 1, seed)
    genome, value = evolve(problem, GA(population, offspring), 4_000, seed, target=best_packing(problem)).best
    assert value == best_packing(problem)
    assert problem.weights[0] @ genome["items"] <= problem.capacities[0] and problem.profits[0] @ genome["items"] == value


def test_nobody_is_there_twice_where_genes_can_be_counted():
    evolution = Evolution(as_evaluator(Knapsack(12, 1, 0)), GA(20), 1)
    for _ in range(30):
        evolution.advance()
        rows = evolution.population.genes["items"]
        assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.parametrize("offspring", [None, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_round_trip_on_a_circle_is_found(offspring, seed):
    problem = TSP(10, "circle", seed)
    operators = {"tour": Variation(OrderCrossover(), Insertion())}
    result = evolve(problem, GA(60, offspring, operators=operators), 12_000, seed, target=problem.optimum + 1e-9)
    assert result.best[1] == pytest.approx(problem.optimum, abs=1e-9)


@pytest.mark.parametrize(("offspring", "evaluations"), [(None, 10_000), (1, 4_000)])
def test_the_optimum_of_a_sphere_is_come_near_to(offspring, evaluations):
    assert evolve(Sphere(10), GA(50, offspring), evaluations, 1).best[1] < 1e-3


def test_rastrigin_s_local_optima_are_passed():
    assert np.median([evolve(Rastrigin(5), GA(100), 20_000, seed).best[1] for seed in range(3)]) < 0.5


def test_the_best_of_parents_and_offspring_survive():
    evolution = Evolution(as_evaluator(Sphere(4)), GA(10), 1)
    evolution.advance()
    for _ in range(10):
        before = evolution.population
        told = []
        tell = evolution.algorithm.tell
        evolution.algorithm.tell = lambda offspring, told=told, tell=tell: (told.append(offspring), tell(offspring))
        evolution.advance()
        evolution.algorithm.tell = tell
        both = np.concatenate([before.raw[:, 0], told[0].raw[:, 0]])
        assert evolution.population.raw[:, 0].tolist() == sorted(both)[:10]


def test_steady_state_replaces_the_worst_by_a_better_child_only():
    evolution = Evolution(as_evaluator(Sphere(4)), GA(10, offspring=1), 1)
    evolution.advance()
    replaced = 0
    for _ in range(100):
        before = set(evolution.population.ids.tolist())
        worst = evolution.population.ids[-1]
        evolution.advance()
        gone = before - set(evolution.population.ids.tolist())
        assert gone <= {worst}
        replaced += len(gone)
    assert evolution.evaluations == 110 and 10 < replaced < 100


def test_feasible_individuals_survive_first_then_those_that_violate_least():
    algorithm = GA(4)
    algorithm.begin(as_evaluator(Sphere(2)).describe(), 1, 1)
    for violation, fitness in (([3.0, 2.0, 1.0, 0.0], [9.0, 8.0, 7.0, 0.0]), ([0.5, 0.0, 4.0, 0.5], [1.0, -1.0, 99.0, 2.0])):
        proposals = algorithm.propose(4)
        algorithm.tell(judged(proposals, algorithm.realise(proposals), fitness, violation=violation))
    assert algorithm.population.ids.tolist() == [3, 5, 4, 7]


def test_several_objectives_are_refused_even_when_only_the_evaluation_tells():
    algorithm = GA(4)
    with pytest.raises(MisuseError, match="GA takes problems of 1 objective, and this one has 2: use NSGA2"):
        algorithm.begin(as_evaluator(Sphere(2)).describe(), 2, 1)
    algorithm.begin(as_evaluator(Sphere(2)).describe(), None, 1)
    proposals = algorithm.propose(4)
    offspring = judged(proposals, algorithm.realise(proposals), np.zeros(4))
    offspring.fitness = np.zeros((4, 3))
    with pytest.raises(MisuseError, match="GA takes problems of 1 objective, and this one has 3: use NSGA2"):
        algorithm.tell(offspring)


def test_children_of_each_kind_are_of_their_kind():
    class Parts:
        genome = {"n": Integer(0, 5, 3), "order": Permutation(4)}
        objectives = 1

        def evaluate(self, values):
            assert values["n"].dtype == np.int64 and (np.sort(values["order"], axis=1) == np.arange(4)).all()
            return values["n"].sum(axis=1) + np.abs(values["order"] - np.arange(4)).sum(axis=1)

    genome, value = evolve(Parts(), GA(30), 1_500, 1).best
    assert value == 0 and genome["order"].tolist() == [0, 1, 2, 3]
