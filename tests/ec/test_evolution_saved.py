"""A run that was saved goes on as if it had not stopped: N + N = 2 N, whatever the algorithm, the mode and the moment."""

import numpy as np
import pytest

from lamarckian.ec import GA, NSGA2, Categorical, Evolution, Failures, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.ec.evaluator import OneByOne, Vectorised, as_evaluator
from lamarckian.ec.population import Fault
from lamarckian.ec.problems import DTLZ2, TSP, ZDT1, Knapsack, Sphere
from lamarckian.ec.result import best_value, front_of
from lamarckian.errors import CheckpointError, EvaluationError

from .fakes import ALGORITHMS, Broken, Scripted, known, problem_for, stored
from .judging import same
from .test_evolution import advance, driven, uneven

OVERLAPPING = ["nsga2", "ga", "steady"]
CASES = [(name, "synchronous") for name in ALGORITHMS] + [(name, mode) for name in OVERLAPPING for mode in ("asynchronous", "steady")]


def unselected(tree):
    """The ids of the candidates that are on their way, or wait for selection."""
    groups = [*tree["pending"], *(entry["proposal"] for entry in tree["arrived"])]
    return sorted(id for group in groups for id in group["ids"].tolist())


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.parametrize("calls", [0, 1, 2, 11])
def test_saved_in_this_process(name, mode, calls):
    def begun():
        return Evolution(as_evaluator(Broken(problem_for(name), {1: np.nan}, every=1)), ALGORITHMS[name](), 7, mode)

    whole, rest = begun(), begun()
    for _ in range(calls):
        whole.advance()
    rest.load(stored(whole.save()))
    assert same(known(rest), known(whole))
    for _ in range(25):
        whole.advance(), rest.advance()
    assert same(known(rest), known(whole))
    assert same(front_of(rest).rows(), front_of(whole).rows())
    assert len(whole.population)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("calls", [1, 3, 5, 8, 13])
def test_saved_in_the_middle_of_a_generation(name, calls):
    """Candidates that are on their way are made anew and evaluated again."""
    faults = {2: ["died", "died"], 4: ["raised"], 11: ["raised", "raised", "died"], 20: ["timeout", "raised"]}
    failures = Failures(retries=2)
    whole, workers = driven(name, "synchronous", 3, faults=faults, failures=failures)
    for _ in range(calls):
        whole.advance()
    tree = stored(whole.save())
    assert len(unselected(tree)) in (0, whole.algorithm.size)
    rest, others = driven(name, "synchronous", 2, faults=None, failures=failures)
    others._faults = {id: list(kinds) for id, kinds in workers._faults.items()}
    rest.load(tree)
    advance(whole, 6), advance(rest, 6)
    assert whole.failed == rest.failed == 1 and [id for id, _ in whole.faults] == [11]
    assert same(known(rest), known(whole))


def test_tries_are_kept():
    faults = {1: ["raised"] * 3}
    first, _ = driven(NSGA2(4), "synchronous", 1, faults=faults, failures=Failures(retries=2), problem=ZDT1(5))
    for _ in range(3):
        first.advance()
    tree = stored(first.save())
    assert tree["tries"] == {1: 2}
    second, workers = driven(NSGA2(4), "synchronous", 1, faults={1: ["raised"]}, failures=Failures(retries=2), problem=ZDT1(5))
    second.load(tree)
    advance(second, 1)
    assert workers.submitted.count(1) == 1 and second.failed == 1 and second.evaluations == 4


@pytest.mark.parametrize("mode", ["asynchronous", "steady"])
@pytest.mark.parametrize("calls", [1, 4, 9, 30])
def test_without_generations_nothing_is_lost_and_nothing_comes_twice(mode, calls):
    told = []

    class Watched(NSGA2):
        def tell(self, offspring):
            told.extend(offspring.ids.tolist())
            super().tell(offspring)

    first, _ = driven(Watched(6), mode, 3, problem=ZDT1(5), failures=Failures(retries=1), faults={2: ["raised"] * 2, 5: ["died"]})
    for _ in range(calls):
        first.advance()
    second, workers = driven(Watched(6), mode, 3, problem=ZDT1(5))
    tree = stored(first.save())
    second.load(tree)
    assert second.evaluations == first.evaluations and sorted([*told, *unselected(tree)]) == list(range(len(told) + len(unselected(tree))))
    while second.evaluations < 60:
        second.advance()
    left = unselected(second.save())
    assert sorted([*told, *left]) == list(range(len(told) + len(left)))
    assert workers.busy == [3] * len(workers.busy) and second.failed == (calls > 4)


def test_one_worker_without_generations_goes_on_bit_by_bit():
    for mode in ("asynchronous", "steady"):
        whole, _ = driven(NSGA2(6), mode, 1, problem=ZDT1(5))
        rest, _ = driven(NSGA2(6), mode, 1, problem=ZDT1(5))
        for _ in range(15):
            whole.advance()
        rest.load(stored(whole.save()))
        for _ in range(30):
            whole.advance(), rest.advance()
        assert same(known(whole), known(rest))


def test_what_was_saved_does_not_change_as_the_run_goes_on():
    evolution = Evolution(as_evaluator(ZDT1(5)), NSGA2(6), 1)
    advance(evolution, 3)
    tree, copy = evolution.save(), stored(evolution.save())
    population = evolution.population
    ages = population.age.copy()
    advance(evolution, 6)
    assert same(tree, copy) and np.array_equal(population.age, ages)
    rest = Evolution(as_evaluator(ZDT1(5)), NSGA2(6), 1)
    rest.load(tree)
    advance(rest, 6)
    assert same(tree, copy) and same(known(rest), known(evolution))


@pytest.mark.parametrize("failures", [Failures(), Failures(then="penalise", retries=1)])
def test_penalties_are_kept(failures):
    def begun():
        return driven(NSGA2(6), "synchronous", 3, problem=ZDT1(5), failures=failures, faults={8: ["raised"] * 2, 13: ["raised"] * 2})[0]

    whole, rest = begun(), begun()
    advance(whole, 2)
    rest.load(stored(whole.save()))
    advance(whole, 5), advance(rest, 5)
    assert same(known(whole), known(rest))


def test_a_run_whose_objectives_only_the_evaluation_told_still_knows_them():
    def begun():
        return Evolution(OneByOne(lambda x: float(np.square(x).sum()), Real(-1.0, 1.0, 3)), GA(6), 1)

    whole, rest = begun(), begun()
    advance(whole, 2)
    rest.load(stored(whole.save()))
    assert rest.objectives == 1 and best_value(rest) == best_value(whole) and same(front_of(rest).rows(), front_of(whole).rows())


def test_genomes_of_all_kinds_are_saved():
    genome = Genome({
        "x": Real([0.0, 1e-5], [1.0, 1.0]), "rate": Real(1e-4, 1.0, 2, "log"), "n": Integer(-3, 3, 2),
        "kind": Categorical([["a", None], [1, 2.5, False]]),
        "order": Permutation(4), "team": Subset(6, 2), "net": Network([("w", (2, 2)), ("b", ())]),
    })  # fmt: skip

    def begun():
        return Evolution(OneByOne(lambda v: [float(v["x"].sum()), float(v["net"].sum())], genome), NSGA2(6), 1)

    whole, rest = begun(), begun()
    advance(whole, 3)
    rest.load(stored(whole.save()))
    advance(whole, 6), advance(rest, 6)
    assert same(known(whole), known(rest))


@pytest.mark.parametrize(
    ("problem", "algorithm", "message"),
    [
        (ZDT1(6), NSGA2(6), "its genome is"),
        (TSP(5), GA(6), "its genome is"),
        (Knapsack(5), NSGA2(6), "its genome is"),
        (ZDT1(5), NSGA2(6, truncation="crowding"), None),
        (DTLZ2(objectives=3, variables=5), NSGA2(6), "it has 2 objectives, here are 3"),
        (Sphere(5), GA(6), "its genome is"),
    ],
)
def test_checkpoints_of_other_runs_are_refused(problem, algorithm, message):
    first = Evolution(as_evaluator(ZDT1(5)), NSGA2(6), 1)
    advance(first, 2)
    second = Evolution(as_evaluator(problem), algorithm, 1)
    if message is None:
        second.load(stored(first.save()))
        return
    with pytest.raises(CheckpointError, match=message):
        second.load(stored(first.save()))


def test_another_algorithm_and_another_direction_are_refused():
    class Up:
        bounds, objectives, minimise = ZDT1(5).bounds, 2, False

        def evaluate(self, x):
            return -ZDT1(5).evaluate(x)

    class Other(NSGA2):
        pass

    tree = stored(Evolution(as_evaluator(ZDT1(5)), NSGA2(6), 1).save())
    with pytest.raises(CheckpointError, match="its algorithm is NSGA2, here it is Other"):
        Evolution(as_evaluator(ZDT1(5)), Other(6), 1).load(tree)
    with pytest.raises(CheckpointError, match="its minimise is True, here it is False"):
        Evolution(as_evaluator(Up()), NSGA2(6), 1).load(tree)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("calls", range(1, 9))
def test_what_workers_had_begun_this_process_ends(name, calls):
    faults = {1: ["raised"], 6: ["timeout"], 9: ["died"]}
    whole, _ = driven(name, "synchronous", 3, faults=faults, failures=Failures(retries=1))
    for _ in range(calls):
        whole.advance()
    rest = Evolution(as_evaluator(problem_for(name)), ALGORITHMS[name](), 1, failures=Failures(retries=1))
    rest.load(stored(whole.save()))
    advance(whole, 6), advance(rest, 6)
    assert same(known(rest), known(whole)) and whole.failed == 0


def test_workers_may_be_as_many_as_you_like_after_a_restart():
    whole, _ = driven("nsga2", "synchronous", 4)
    for _ in range(4):
        whole.advance()
    rest = Evolution(as_evaluator(problem_for("nsga2")), ALGORITHMS["nsga2"](), 1, workers=lambda bench: Scripted(bench, 9, uneven))
    rest.load(stored(whole.save()))
    advance(whole, 5), advance(rest, 5)
    assert same(known(whole), known(rest))


class Fragile(Vectorised):
    """A sphere that cannot judge candidate 3 as long as it is not mended."""

    mended = False

    def evaluate(self, ids, values):
        evaluation = super().evaluate(ids, values)
        if not self.mended and 3 in ids:
            evaluation.faults[ids.tolist().index(3)] = Fault("raised", "broken")
        return evaluation


@pytest.mark.parametrize("name", ["ga", "cmaes"])
def test_what_an_error_ends_goes_on_when_it_is_mended(name):
    whole = Evolution(as_evaluator(Sphere(5)), ALGORITHMS[name](), 1)
    ended = Evolution(Fragile(Sphere(5)), ALGORITHMS[name](), 1, failures=Failures(then="stop"))
    for _ in range(2):  # the second time it is not mended yet
        with pytest.raises(EvaluationError, match="candidate 3 cannot be judged: broken"):
            ended.advance()
    state = stored(ended.save())
    assert [group["ids"].tolist() for group in state["pending"]] == [[3]] and state["evaluations"] == whole.algorithm.size - 1
    rest = Evolution(as_evaluator(Sphere(5)), ALGORITHMS[name](), 1, failures=Failures(then="stop"))
    rest.load(state)
    for evolution in (whole, rest):
        evolution.advance(), evolution.advance()
    assert same(known(rest)["algorithm"], known(whole)["algorithm"]) and rest.evaluations == whole.evaluations


def test_what_an_error_kept_from_being_judged_is_not_lost():
    class Wrong(Sphere):
        def evaluate(self, x):
            return np.zeros((len(x) + 1, 1))

    whole, ended = Evolution(as_evaluator(Sphere(5)), GA(8), 1), Evolution(as_evaluator(Wrong(5)), GA(8), 1)
    with pytest.raises(EvaluationError, match="candidates 0 to 7: evaluate must return"):
        ended.advance()
    rest = Evolution(as_evaluator(Sphere(5)), GA(8), 1)
    rest.load(stored(ended.save()))
    for evolution in (whole, rest):
        evolution.advance(), evolution.advance()
    assert same(known(rest), known(whole))
