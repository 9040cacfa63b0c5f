"""Candidates that cannot be judged: counted, kept out, tried again, penalised; and the run goes on."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec import GA, NSGA2, Evolution, Failures, evolve
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.offspring import PENALTY
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.ec.problems import DTLZ2, ZDT1, Sphere
from lamarckian.ec.result import front_of
from lamarckian.errors import EvaluationError, MisuseError

from .fakes import ALGORITHMS, Broken, Scripted, problem_for
from .test_evolution import advance, driven, uneven

BAD = {0: np.nan, 1: np.inf, 2: -np.inf}


def finite(population):
    return np.isfinite(population.fitness).all() and np.isfinite(population.raw).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_numbers_that_are_not_finite_never_survive_whatever_the_algorithm(name):
    problem = Broken(problem_for(name), BAD)
    evolution = Evolution(as_evaluator(problem), ALGORITHMS[name](), 1)
    expected = 0
    for generation in range(1, 21):
        size = evolution.algorithm.size
        expected += min(size, 3)
        evolution.advance()
        assert evolution.failed == expected and evolution.generation == generation
        assert finite(evolution.population.take(np.flatnonzero(evolution.population.evaluated)))
        assert np.isfinite(front_of(evolution).raw).all() and np.isfinite(evolution.best.raw).all()
    assert {fault.kind for _, fault in evolution.faults} == {"numbers"}
    assert len(evolution.faults) <= 100


def test_three_objectives_any_of_which_may_be_wrong():
    result = evolve(Broken(DTLZ2(), {row: (np.nan, np.inf, -np.inf)[row % 3] for row in range(0, 40, 3)}), NSGA2(40), 4_000, 1)
    assert result.failed == 14 * 100 and len(result.population) == 40 and finite(result.population) and np.isfinite(result.front).all()
    assert result.hypervolume([1.1] * 3) > 0.6


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("every", [1, 2])
def test_generations_that_fail_altogether_do_not_end_a_run(name, every):
    problem = Broken(problem_for(name), dict.fromkeys(range(99), np.nan), every)
    result = evolve(problem, ALGORITHMS[name](), 200, 1)
    assert result.evaluations >= 200 and result.generations > 10
    if every == 1:
        assert result.failed == result.evaluations
        assert result.front.shape == (0, problem.objectives) and result.hypervolume([1.0] * problem.objectives) == 0.0
        assert not len(result.population.take(result.population.evaluated))
    else:
        assert 0 < result.failed < result.evaluations and len(result.front) and np.isfinite(result.front).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_whatever_raises_from_the_first_generation_on_leaves_an_empty_front(name):
    class Raises:
        bounds = problem_for(name).bounds

        def evaluate(self, x):
            raise RuntimeError("no")

    result = evolve(Raises(), ALGORITHMS[name](), 60)
    assert result.failed == result.evaluations >= 60 and result.front.shape == (0, 0) and result.hypervolume([]) == 0.0
    with pytest.raises(MisuseError, match="no best one"):
        _ = result.best


@pytest.mark.parametrize("name", ALGORITHMS)
def test_where_all_are_infeasible_the_front_is_empty(name):
    class Never:
        bounds = problem_for(name).bounds

        def evaluate(self, x):
            return problem_for(name).evaluate(x), 1.0 + np.abs(x).sum(axis=1)

    result = evolve(Never(), ALGORITHMS[name](), 400, 1)
    objectives = problem_for(name).objectives
    assert result.front.shape == (0, objectives) and result.failed == 0 and (result.population.violation > 0).all()
    if name in ("ga", "nsga2", "steady"):
        assert result.population.violation.max() < 3.0


class Throws:
    """Raises for the candidates with these ids, so many times each."""

    minimise = True
    objectives = 2

    def __init__(self, times):
        self.times = dict(times)
        self.asked = []

    def describe(self):
        return as_evaluator(ZDT1(5)).describe()

    def initialize(self, count, generator):
        return None

    def evaluate(self, ids, values):
        self.asked += ids.tolist()
        faults = {}
        for row, id in enumerate(ids.tolist()):
            if self.times.get(id, 0) > 0:
                self.times[id] -= 1
                faults[row] = Fault("raised", f"RuntimeError: {id}")
        return Evaluation(ZDT1(5).evaluate(values["x"]), np.zeros(len(ids)), faults)


@pytest.mark.parametrize("count", [0, 3])
def test_what_raised_is_skipped(count):
    evaluator = Throws({2: 1, 9: 9})
    workers = (lambda bench: Scripted(bench, count, uneven)) if count else None
    evolution = advance(Evolution(evaluator, NSGA2(6), 1, workers=workers), 4)
    assert evolution.evaluations == 24 and evolution.failed == 2 and sorted(evaluator.asked) == list(range(24))
    assert [(id, fault.message) for id, fault in evolution.faults] == [(2, "RuntimeError: 2"), (9, "RuntimeError: 9")]
    assert len(evolution.population) == 6


@pytest.mark.parametrize("count", [0, 3])
def test_what_raised_is_tried_again_as_often_as_it_may(count):
    evaluator = Throws({2: 1, 3: 2, 9: 3, 14: 99})
    workers = (lambda bench: Scripted(bench, count, uneven)) if count else None
    evolution = Evolution(evaluator, NSGA2(6), 1, failures=Failures(retries=2), workers=workers)
    advance(evolution, 4)
    assert evolution.evaluations == 24 and evolution.failed == 2
    assert {id: evaluator.asked.count(id) for id in (1, 2, 3, 9, 14)} == {1: 1, 2: 2, 3: 3, 9: 3, 14: 3}
    untroubled = advance(Evolution(Throws({9: 99, 14: 99}), NSGA2(6), 1), 4)
    assert np.array_equal(evolution.population.raw, untroubled.population.raw)
    assert not evolution.save()["tries"]


def test_a_first_generation_of_which_all_raise_may_be_tried_again():
    evolution = Evolution(Throws(dict.fromkeys(range(6), 1)), NSGA2(6), 1, failures=Failures(retries=1))
    evolution.advance()
    assert evolution.failed == 0 and len(evolution.population) == 6


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "steady"])
def test_a_candidate_whose_worker_died_is_tried_once_more(mode):
    faults = {3: ["died"], 8: ["died", "died"], 10: ["raised"], 12: ["timeout"]}
    evolution, workers = driven(NSGA2(6), mode, 3, faults=faults, problem=ZDT1(5))
    while evolution.evaluations < 24:
        evolution.advance()
    assert {id: workers.submitted.count(id) for id in (3, 8, 10, 12)} == {3: 2, 8: 2, 10: 1, 12: 1}
    assert evolution.failed == 3 and {(id, fault.kind) for id, fault in evolution.faults} == {(8, "died"), (10, "raised"), (12, "timeout")}
    assert workers.busy.count(3) > len(workers.busy) - 9 or mode == "synchronous"


def test_timeouts_and_deaths_count_together_against_the_retries():
    faults = {1: ["timeout", "died", "raised"], 2: ["timeout", "raised"]}
    evolution, workers = driven(NSGA2(6), "synchronous", 3, faults=faults, failures=Failures(retries=2), problem=ZDT1(5))
    advance(evolution, 1)
    assert workers.submitted.count(1) == workers.submitted.count(2) == 3 and [id for id, _ in evolution.faults] == [1]


@pytest.mark.parametrize("count", [0, 3])
def test_what_is_penalised_is_in_the_population_but_never_in_the_front(count):
    evaluator = Throws({1: 9, 3: 9})
    workers = (lambda bench: Scripted(bench, count, uneven)) if count else None
    evolution = Evolution(evaluator, NSGA2(6), 1, failures=Failures(then="penalise"), workers=workers)
    advance(evolution, 1)
    population = evolution.population
    assert evolution.failed == 2 and len(population) == 6
    punished = np.isin(population.ids, [1, 3])
    assert (population.violation[punished] == PENALTY).all() and (population.violation[~punished] == 0).all()
    assert (population.fitness[punished] == population.fitness[~punished].min(axis=0)).all()
    assert not np.isin([1, 3], front_of(evolution).ids).any()
    advance(evolution, 4)
    assert not np.isin([1, 3], evolution.population.ids).any()


def test_a_penalty_is_the_worst_of_all_that_ever_was():
    evaluator = Throws({20: 1})
    evolution = Evolution(evaluator, NSGA2(6), 1, failures=Failures(then="penalise"))
    worst = np.full(2, np.inf)
    for _ in range(4):
        tell = evolution.algorithm.tell

        def watch(offspring, tell=tell):
            nonlocal worst
            punished = offspring.ids == 20
            worst = np.minimum(worst, offspring.fitness[~punished].min(axis=0))
            assert (offspring.fitness[punished] == worst).all()
            tell(offspring)

        evolution.algorithm.tell = watch
        evolution.advance()
        evolution.algorithm.tell = tell


def test_numbers_that_are_not_finite_are_not_penalised():
    evolution = Evolution(as_evaluator(Broken(ZDT1(5), {0: np.nan})), NSGA2(6), 1, failures=Failures(then="penalise"))
    evolution.advance()
    assert len(evolution.population) == 5 and (evolution.population.violation == 0).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_bears_penalties(name):
    problem = problem_for(name)

    class Half:
        bounds, objectives = problem.bounds, problem.objectives

        def evaluate(self, x):
            if (x[:, 0] > x.mean()).all():
                raise RuntimeError("too far")
            if len(x) > 1:
                raise RuntimeError("one by one")
            return problem.evaluate(x)

    result = evolve(Half(), ALGORITHMS[name](), 200, 1, failures=Failures(then="penalise"))
    assert 0 < result.failed < result.evaluations and np.isfinite(result.front).all() and len(result.front)
    assert np.isfinite(result.population.fitness).all()


@pytest.mark.parametrize("count", [0, 2])
def test_a_run_may_stop_at_the_first_failure(count):
    workers = (lambda bench: Scripted(bench, count)) if count else None
    evolution = Evolution(Throws({9: 2}), NSGA2(6), 1, failures=Failures(retries=1, then="stop"), workers=workers)
    with pytest.raises(EvaluationError, match="candidate 9 cannot be judged: RuntimeError: 9"):
        advance(evolution, 4)


def test_numbers_that_are_not_finite_do_not_stop_a_run():
    evolution = Evolution(as_evaluator(Broken(ZDT1(5), {0: np.nan})), NSGA2(6), 1, failures=Failures(then="stop"))
    assert advance(evolution, 3).failed == 3


def test_the_first_failure_is_logged_and_the_others_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        evolve(Broken(Sphere(3), {2: np.inf}), GA(6), 60)
    assert [record.getMessage() for record in caplog.records] == [
        "candidate 2 has failed: not finite: objectives [inf], violation 0",
    ]


def test_genes_of_failed_candidates_need_not_be_valid():
    """Training that diverges leaves numbers that are none; they are not taken over."""

    class Diverges(Throws):
        def evaluate(self, ids, values):
            evaluation = super().evaluate(ids, values)
            evaluation.genes = {"x": np.where(np.isin(ids, [1, 9])[:, None], np.nan, values["x"])}
            return evaluation

    seen = {}
    evolution = Evolution(Diverges({1: 9, 9: 9}), NSGA2(6), 1)
    tell = evolution.algorithm.tell
    evolution.algorithm.tell = lambda offspring: (
        seen.update(zip(offspring.ids.tolist(), offspring.genes["x"], strict=True)),
        tell(offspring),
    )
    advance(evolution, 3)
    assert evolution.failed == 2 and all(np.isfinite(genes).all() for genes in seen.values())


def tries(script, retries):
    """How often a candidate is submitted whose first tries end so."""
    for failed, kind in enumerate(script):
        if kind == "numbers" or failed >= max(retries, kind == "died"):
            return failed + 1
    return len(script) + 1


@given(
    mode=st.sampled_from(["synchronous", "asynchronous", "steady"]),
    sizes=st.tuples(st.integers(2, 7), st.integers(1, 9), st.integers(1, 12)),
    seed=st.integers(0, 999),
    failures=st.builds(Failures, retries=st.integers(0, 2), then=st.sampled_from(["skip", "penalise"])),
    share=st.sampled_from([0.0, 0.3, 0.9]),
    single=st.booleans(),
)
def test_whatever_happens_each_candidate_counts_once(mode, sizes, seed, failures, share, single):
    population, offspring, count = sizes
    generator = np.random.default_rng(seed)
    kinds = np.array(["died", "raised", "timeout", "numbers"])
    faults = {id: generator.choice(kinds, generator.integers(1, 5)).tolist() for id in range(80) if generator.random() < share}
    told = []

    class Watched(GA if single else NSGA2):
        def tell(self, offspring):
            told.extend(offspring.ids.tolist())
            super().tell(offspring)

    slow = generator.integers(1, 6, 1000)
    problem = Sphere(3) if single else ZDT1(3)
    evolution, workers = driven(Watched(population, offspring), mode, count, lambda id: slow[id], problem, seed, faults, failures)
    while evolution.evaluations < 60:
        evolution.advance()
        survivors = evolution.population
        assert len(survivors) <= population and len(np.unique(survivors.ids)) == len(survivors) and survivors.evaluated.all()
        assert np.isfinite(survivors.fitness).all() and np.isfinite(front_of(evolution).raw).all()
    left = [entry["proposal"]["ids"][0] for entry in evolution.save()["arrived"]]
    assert len(told) == len(set(told)) and len(told) + len(left) == evolution.evaluations and not set(left) & set(told)
    assert all(workers.submitted.count(id) == tries(faults.get(id, []), failures.retries) for id in told)
    assert mode == "synchronous" or set(workers.busy) == {count}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout_s": 0.0}, "timeout_s must be above 0, not 0"),
        ({"timeout_s": np.inf}, "timeout_s must be above 0, not inf"),
        ({"timeout_s": np.nan}, "timeout_s must be above 0, not nan"),
        ({"retries": -1}, "retries must be at least 0, not -1"),
        ({"then": "ignore"}, "then must be skip, penalise or stop, not 'ignore'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(MisuseError, match=message):
        Failures(**settings)
