"""The loop of evolution: when candidates are proposed, when survivors are selected, whoever does the work."""

import gc

import numpy as np
import pytest

from lamarckian.ec import CMAES, CSO, GA, NSGA2, Evolution, Failures, OpenAIES, Variation, evolve
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.ec.population import NOBODY, Evaluation
from lamarckian.ec.problems import DTLZ2, ZDT1, Sphere
from lamarckian.ec.result import front_of
from lamarckian.errors import EvaluationError, MisuseError

from .fakes import ALGORITHMS, Scripted, known, problem_for
from .judging import same


def uneven(id):
    """Some candidates take far longer than others."""
    return 1.0 + (id * 7919) % 5


def driven(name_or_algorithm="nsga2", mode="asynchronous", count=3, duration=uneven, problem=None, seed=1, faults=None, failures=None):
    """An evolution by scripted workers, and these."""
    name = name_or_algorithm if isinstance(name_or_algorithm, str) else "nsga2"
    algorithm = ALGORITHMS[name]() if isinstance(name_or_algorithm, str) else name_or_algorithm
    made = []

    def workers(bench):
        made.append(Scripted(bench, count, duration, faults))
        return made[0]

    evolution = Evolution(as_evaluator(problem or problem_for(name)), algorithm, seed, mode, failures, workers)
    return evolution, made[0]


def advance(evolution, generations):
    while evolution.generation < generations:
        evolution.advance()
    return evolution


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_seed_gives_the_same_run_and_another_one_another(name):
    runs = [advance(Evolution(as_evaluator(problem_for(name)), ALGORITHMS[name](), seed), 10) for seed in (1, 1, 2)]
    assert same(known(runs[0]), known(runs[1]))
    assert not np.array_equal(runs[0].population.raw, runs[2].population.raw)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 4, 50])
def test_workers_that_return_in_any_order_make_the_same_run_as_this_process(name, count):
    here = advance(Evolution(as_evaluator(problem_for(name)), ALGORITHMS[name](), 5), 12)
    there, workers = driven(name, "synchronous", count, seed=5)
    advance(there, 12)
    assert workers.returned != sorted(workers.returned) or count == 1
    assert same(known(here), known(there))
    assert there.workers == count and here.workers == 1


def test_an_algorithm_may_be_used_again():
    algorithm = NSGA2(10)
    first = evolve(ZDT1(5), algorithm, 200, 1)
    evolve(Sphere(3), algorithm, 50, 2)
    assert np.array_equal(evolve(ZDT1(5), algorithm, 200, 1).front, first.front)


@pytest.mark.parametrize("mode", ["asynchronous", "steady"])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 20])
def test_no_worker_is_ever_idle_without_generations_to_wait_for(mode, count):
    evolution, workers = driven(GA(8), mode, count, problem=Sphere(4))
    for _ in range(60):
        evolution.advance()
    assert workers.busy == [count] * 60
    assert workers.submitted == list(range(len(workers.submitted)))  # ids rise without a gap
    assert evolution.evaluations == len(workers.returned)


def test_in_synchronous_mode_a_generation_waits_for_its_last_candidate():
    evolution, workers = driven(NSGA2(6), "synchronous", 3, lambda id: 10.0 if id == 0 else 1.0)
    sizes = []
    while evolution.generation < 3:
        if evolution.advance():
            sizes.append((len(workers.submitted), len(workers.returned)))
    assert sizes == [(6, 6), (12, 12), (18, 18)]


def test_selection_happens_when_a_generation_has_arrived_and_stragglers_join_the_next_one():
    told = []

    class Watched(NSGA2):
        def tell(self, offspring):
            told.append(offspring.ids.tolist())
            super().tell(offspring)

    evolution, workers = driven(Watched(6), "asynchronous", 3, lambda id: 8.5 if id == 7 else 1.0 + id / 1000)
    advance(evolution, 5)
    assert told[0] == [0, 1, 2, 3]  # 6 − 3 + 1: the rest of the first generation is on its way, and children need parents
    assert told[1:] == [sorted(workers.returned[start : start + 6]) for start in (4, 10, 16, 22)]
    assert told[1][:3] == [4, 5, 6] and told[4][:2] == [7, 23]


def test_the_first_generation_is_all_fresh_and_children_have_parents():
    for mode in ("asynchronous", "steady"):
        evolution, _ = driven(GA(8), mode, 3, problem=Sphere(4))
        proposals = {}
        propose = evolution.algorithm.propose

        def watch(count, proposals=proposals, propose=propose):
            made = propose(count)
            proposals[int(made.ids[0])] = made
            return made

        evolution.algorithm.propose = watch
        while evolution.evaluations < 60:
            evolution.advance()
        assert all((made.parents == NOBODY).all() == (id < 8) for id, made in proposals.items()), mode
        assert len(evolution.population) == 8
        there = Evolution(as_evaluator(Sphere(4)), GA(8), 1)
        there.advance()
        fresh = np.concatenate([evolution.algorithm.realise(proposals[id])["x"] for id in range(8)])
        order = np.argsort(there.population.ids)
        assert np.array_equal(fresh, there.population.genes["x"][order])


def test_steady_mode_selects_at_each_return():
    evolution, _ = driven(GA(6), "steady", 2, lambda id: 1.0 + id / 100, Sphere(3))
    for calls in range(1, 40):
        assert evolution.advance()
        assert evolution.generation == evolution.evaluations == calls
        assert len(evolution.population) == min(6, calls)


def test_more_workers_than_a_population_get_fresh_individuals():
    evolution, workers = driven(GA(4), "asynchronous", 20, lambda id: 1.0, Sphere(3))
    evolution.advance()
    assert len(workers.submitted) == 20
    assert len(np.unique(evolution.population.genes["x"], axis=0)) == 4
    advance(evolution, 4)
    assert len(np.unique(evolution.population.ids)) == 4


@pytest.mark.parametrize("mode", ["asynchronous", "steady"])
def test_without_generations_it_is_as_good(mode):
    evolution, _ = driven(NSGA2(40), mode, 7, problem=ZDT1(10))
    while evolution.evaluations < 4_000:
        evolution.advance()
    together = evolve(ZDT1(10), NSGA2(40), 4_000, 1).hypervolume([1.1, 1.1])
    assert hypervolume(front_of(evolution).raw, [1.1, 1.1]) == pytest.approx(together, rel=0.02) and together > 0.8


def test_the_best_individual_is_kept_even_where_the_algorithm_forgets_it():
    values = []

    class Seen:
        bounds = [-5.0] * 3, [5.0] * 3

        def evaluate(self, x):
            result = Sphere(3).evaluate(x)
            values.extend(result.ravel())
            return result

    for algorithm in (CMAES(), OpenAIES(8, deviation=0.2, table_size=1000), CSO(8)):
        values.clear()
        result = evolve(Seen(), algorithm, 300)
        assert result.best[1] == min(values) and result.front.shape == (1, 1)


class Trainer:
    """An evaluator that trains: it halves what it is given, and says so. All that it returned is in `returned`."""

    minimise = True
    objectives = 1

    def __init__(self, change=lambda genes: genes):
        self.returned = {}
        self.seen = {}
        self._change = change

    def describe(self):
        return as_evaluator(Sphere(4)).describe()

    def initialize(self, count, generator):
        return None

    def evaluate(self, ids, values):
        trained = values["x"] / 2
        self.seen |= dict(zip(ids.tolist(), values["x"].copy(), strict=True))
        self.returned |= dict(zip(ids.tolist(), trained.copy(), strict=True))
        return Evaluation((trained**2).sum(axis=1, keepdims=True), np.zeros(len(ids)), genes=self._change({"x": trained}))


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "steady"])
@pytest.mark.parametrize("count", [0, 3])
def test_children_inherit_what_their_parents_have_learnt(mode, count):
    evaluator = Trainer()
    copying = GA(6, operators={"x": Variation(None, None)})  # a child is its fitter parent
    workers = (lambda bench: Scripted(bench, count, uneven)) if count else None
    evolution = advance(Evolution(evaluator, copying, 1, mode, workers=workers), 12)
    population = evolution.population
    assert all(
        np.array_equal(genes, evaluator.returned[id]) for id, genes in zip(population.ids.tolist(), population.genes["x"], strict=True)
    )
    for id, a in zip(population.ids.tolist(), population.parents[:, 0].tolist(), strict=True):
        if a != NOBODY:
            assert np.array_equal(evaluator.seen[id], evaluator.returned[a])
    assert (population.parents != NOBODY).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda genes: {"y": genes["x"]}, "expected genes of the parts x, not y"),
        (lambda genes: {"x": genes["x"][:, :2]}, r"part 'x' must be of shape \[N, 4\]"),
        (lambda genes: {"x": genes["x"] + 99}, r"part 'x': gene 0 is .*, outside \[-5.12, 5.12\]"),
        (lambda genes: {"x": None}, "part 'x' must be of shape"),
    ],
)
def test_changed_genes_that_do_not_fit_are_an_error_that_names_the_candidates(change, message):
    with pytest.raises(EvaluationError, match=f"candidates 0 to 5: genes that the evaluator changed: {message}"):
        Evolution(Trainer(change), GA(6)).advance()


def test_a_run_does_not_grow():
    """Objects that the collector knows, and bytes of arrays, are as many after 40 generations as after 240."""
    for mode in ("synchronous", "asynchronous", "steady"):
        evolution, workers = driven(NSGA2(6), mode, 2, problem=DTLZ2(), failures=Failures(retries=1), faults={})
        sizes = []
        for generations in (40, 240):
            advance(evolution, generations)
            workers.busy.clear(), workers.submitted.clear(), workers.returned.clear()
            gc.collect()
            sizes.append((len(gc.get_objects()), sum(np.size(value) for value in _arrays(evolution.save()))))
        assert sizes[1][0] <= sizes[0][0] + 50 and sizes[1][1] <= sizes[0][1] + 200, sizes


def _arrays(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for branch in tree:
            yield from _arrays(branch)
    elif isinstance(tree, np.ndarray):
        yield tree


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "parallel"}, "mode must be synchronous, asynchronous or steady, not 'parallel'"),
        ({"algorithm": CMAES(), "mode": "asynchronous"}, "CMAES learns from whole generations of its own: use mode 'synchronous'"),
        ({"algorithm": CSO(), "mode": "steady"}, "CSO learns from whole generations"),
        ({"failures": Failures(timeout_s=1.0)}, "timeout_s needs workers in processes of their own"),
        ({"algorithm": NSGA2}, r"algorithm must be an object such as NSGA2\(\), not"),
        ({"algorithm": "nsga2"}, "algorithm must be an object such as .*, not 'nsga2'"),
        ({"algorithm": GA(), "problem": ZDT1()}, "GA takes problems of 1 objective, and this one has 2"),
    ],
)
def test_what_cannot_work_together_is_refused(settings, message):
    settings = {"problem": Sphere(), "algorithm": GA(), **settings}
    evaluator, algorithm = as_evaluator(settings.pop("problem")), settings.pop("algorithm")
    with pytest.raises(MisuseError, match=message):
        Evolution(evaluator, algorithm, **settings)
