"""NSGA-II: as good as it is known to be, and right where that can be seen at a glance."""

import numpy as np
import pytest

from lamarckian.ec import NSGA2, evolve, problems
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.evolution import Evolution
from lamarckian.errors import MisuseError


@pytest.mark.parametrize(
    ("problem", "truncation", "generations", "reference", "least"),
    [
        ("ZDT1", "default", 250, 1.1, 0.8705),
        ("ZDT1", "pcd", 250, 1.1, 0.8705),
        ("ZDT1", "crowding", 250, 1.1, 0.8690),
        ("ZDT2", "default", 250, 1.1, 0.5365),
        ("ZDT3", "default", 250, 1.1, 1.3275),
        ("ZDT4", "default", 250, 1.1, 0.866),
        ("ZDT6", "default", 250, 1.1, 0.4970),
        ("DTLZ1", "crowding", 500, 0.55, 0.1363),
        ("DTLZ1", "mnn", 500, 0.55, 0.139),
        ("DTLZ2", "mnn", 250, 1.1, 0.735),
        ("DTLZ2", "crowding", 250, 1.1, 0.703),
        ("DTLZ4", "default", 250, 1.1, 0.706),
        ("DTLZ5", "default", 250, 1.1, 0.4372),
        ("DTLZ7", "default", 250, (1.1, 1.1, 6.6), 2.479),
    ],
)
def test_the_median_hypervolume_of_seven_runs(problem, truncation, generations, reference, least):
    reached = []
    for seed in range(7):
        result = evolve(getattr(problems, problem)(), NSGA2(100, truncation=truncation), 100 * generations, seed)
        assert result.evaluations == 100 * generations and result.generations == generations and len(result.population) == 100
        reached.append(result.hypervolume(np.broadcast_to(reference, result.front.shape[1])))
    assert np.median(reached) >= least, np.sort(reached)


@pytest.mark.parametrize(("objectives", "method"), [(2, "pcd"), (3, "mnn")])
def test_the_default_truncation(objectives, method):
    problem = problems.DTLZ2(objectives=objectives)
    fronts = [evolve(problem, NSGA2(20, truncation=truncation), 600, 3).front for truncation in ("default", method, "crowding")]
    assert np.array_equal(fronts[0], fronts[1]) and not np.array_equal(fronts[0], fronts[2])


def test_survivors_are_the_first_fronts_of_parents_and_offspring():
    """Checked against pairwise domination."""
    runs = Evolution(as_evaluator(problems.ZDT1(5)), NSGA2(30), seed=2)
    for _ in range(5):
        runs.advance()
        before = runs.population
        seen = {}
        tell = runs.algorithm.tell

        def watch(offspring, seen=seen, tell=tell):
            seen["all"] = np.concatenate([runs.population.fitness, offspring.fitness])
            tell(offspring)

        runs.algorithm.tell = watch
        runs.advance()
        runs.algorithm.tell = tell
        union, kept = seen["all"], runs.population.fitness
        assert len(before) == len(kept) == 30
        dominators = ((union[:, None] >= union).all(2) & (union[:, None] > union).any(2)).sum(axis=0)
        best = union[dominators == 0]
        if len(best) <= 30:
            assert {tuple(row) for row in best} <= {tuple(row) for row in kept}
        else:
            assert {tuple(row) for row in kept} <= {tuple(row) for row in best}


def test_steady_state_is_as_good():
    result = evolve(problems.ZDT1(10), NSGA2(50, offspring=1), 5_000, 1)
    assert result.generations == 4_951 and result.hypervolume([1.1, 1.1]) > 0.85


def test_feasible_individuals_come_before_the_others_and_these_by_their_violation():
    class Half:
        bounds = [0.0] * 4, [1.0] * 4
        objectives = 2

        def evaluate(self, x):
            return problems.ZDT1(4).evaluate(x), 0.5 - x[:, 0]

    result = evolve(Half(), NSGA2(20), 2_000, 1)
    assert (result.front[:, 0] >= 0.5).all() and result.front[:, 0].min() < 0.51 and (result.population.violation == 0).all()


def test_where_nobody_is_feasible_the_least_violation_stays_and_the_front_is_empty():
    class Never:
        bounds = [0.0] * 4, [1.0] * 4
        objectives = 2

        def evaluate(self, x):
            return problems.ZDT1(4).evaluate(x), 1.0 + x.sum(axis=1)

    result = evolve(Never(), NSGA2(20), 2_000, 1)
    assert result.front.shape == (0, 2) and result.genomes.shape == (0, 4) and result.hypervolume([1.1, 1.1]) == 0
    assert len(result.population) == 20 and result.population.violation.max() < 1.2
    with pytest.raises(MisuseError, match="no best one among 0 feasible individuals"):
        _ = result.best


def test_wrong_truncation_is_refused():
    with pytest.raises(MisuseError, match="truncation must be default, crowding, pcd or mnn, not 'hv'"):
        NSGA2(truncation="hv")
