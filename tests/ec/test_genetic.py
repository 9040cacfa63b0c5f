"""What GA and NSGA-II have in common: proposals, children, survival."""

import pickle

import numpy as np
import pytest

from lamarckian.ec import GA, NSGA2, Evolution, Genome, Integer, Real, Variation, evolve
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.population import NOBODY
from lamarckian.ec.problems import ZDT1, Sphere
from lamarckian.errors import MisuseError

from .judging import judged, same, sphere

BOX = Genome({"x": Real(-5.0, 5.0, 4), "n": Integer(0, 9, 2)})
METHODS = ["tournament", "random", "oldest", "nearest", "farthest"]


def begun(genome=BOX, seed=1, first=None, **settings):
    algorithm = GA(**{"population": 10, **settings})
    algorithm.begin(genome, 1, seed, first)
    return algorithm


def advance(algorithm, count=None, **judgement):
    proposals = algorithm.propose(count or algorithm.size)
    genes = algorithm.realise(proposals)
    algorithm.tell(judged(proposals, genes, -sphere(genes["x"]), **judgement))
    return proposals, genes


def test_the_first_generation_is_the_whole_population_and_the_next_as_many_as_the_offspring():
    algorithm = begun(offspring=3)
    assert algorithm.starters == algorithm.size == 10 and len(algorithm.population) == 0
    proposals, genes = advance(algorithm)
    assert proposals.ids.tolist() == list(range(10)) and (proposals.parents == NOBODY).all() and algorithm.size == 3
    BOX.check(genes, "the first generation")
    proposals, genes = advance(algorithm)
    assert proposals.ids.tolist() == [10, 11, 12] and np.isin(proposals.parents, np.arange(10)).all()
    BOX.check(genes, "children")
    assert len(algorithm.population) == 10


@pytest.mark.parametrize("count", [1, 3, 10, 14])
def test_first_individuals_are_used_and_completed_by_random_ones(count):
    first = BOX.sample(count, np.random.default_rng(9))
    proposals = begun(first=first).propose(10)
    genes = begun(first=first).realise(proposals)
    used = min(count, 10)
    assert all(np.array_equal(genes[name][:used], first[name][:used]) for name in BOX.parts)
    plain = begun()
    assert all(np.array_equal(genes[name][used:], rows[used:]) for name, rows in plain.realise(plain.propose(10)).items())
    assert len(np.unique(genes["x"], axis=0)) == 10


@pytest.mark.parametrize("algorithm", [NSGA2, GA])
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "steady"])
def test_a_problem_s_first_individuals_are_judged(algorithm, mode):
    class Knows(Sphere):
        seen = []

        def initialize(self, count, generator):
            return np.full((3, 4), [[1.0], [2.0], [3.0]])

        def evaluate(self, x):
            self.seen.extend(x.copy())
            return super().evaluate(x)

    problem = Knows(4)
    problem.seen.clear()
    evolve(problem, algorithm(6), 6, mode=mode)
    assert np.array_equal(problem.seen[:3], np.full((3, 4), [[1.0], [2.0], [3.0]])) and len(problem.seen) == 6


def test_where_all_of_the_first_generation_failed_new_random_individuals_follow():
    algorithm = begun()
    _, first = advance(algorithm, failed=range(10))
    assert len(algorithm.population) == 0 and algorithm.size == 10
    proposals, second = advance(algorithm, failed=[0, 3])
    assert proposals.ids.tolist() == list(range(10, 20)) and (proposals.parents == NOBODY).all()
    assert not np.isin(second["x"], first["x"]).any() and len(np.unique(second["x"], axis=0)) == 10
    assert len(algorithm.population) == 8
    BOX.check(second, "the second generation")
    assert same(advance(begun())[1], first)
    again = begun()
    again.propose(10)
    assert same(np.concatenate([again.realise(again.propose(1))["x"] for _ in range(10)]), second["x"])


def test_failed_ones_never_survive_and_the_population_fills_up_again():
    algorithm = begun()
    advance(algorithm, failed=range(9))
    assert algorithm.population.ids.tolist() == [9]
    advance(algorithm)
    assert len(algorithm.population) == 10
    before = pickle.dumps(algorithm.population.rows())
    advance(algorithm, failed=range(10))
    assert same(algorithm.population.rows(), pickle.loads(before))


def test_age_counts_the_selections_that_were_survived():
    algorithm = begun()
    birth = {}
    for generation in range(8):
        proposals, _ = advance(algorithm)
        birth |= dict.fromkeys(proposals.ids.tolist(), generation)
        population = algorithm.population
        assert population.age.tolist() == [generation - birth[id] for id in population.ids.tolist()]


def test_a_population_that_somebody_holds_does_not_change():
    algorithm = begun()
    advance(algorithm)
    held = algorithm.population
    before, saved = pickle.dumps(held.rows()), algorithm.save()
    copy = pickle.dumps(saved)
    for _ in range(5):
        advance(algorithm)
    assert same(held.rows(), pickle.loads(before)) and same(saved, pickle.loads(copy))


@pytest.mark.parametrize("mating", METHODS)
def test_children_are_the_same_in_whatever_portions(mating):
    whole, single, other = begun(mating=mating), begun(mating=mating), begun(mating=mating, seed=2)
    for algorithm in (whole, single, other):
        advance(algorithm)
    proposals = whole.propose(10)
    genes = whole.realise(proposals)
    portions = [single.realise(single.propose(1)) for _ in range(10)]
    assert all(np.array_equal(genes[name], np.concatenate([portion[name] for portion in portions])) for name in BOX.parts)
    rows = [whole.realise(proposals.take(rows)) for rows in ([0, 1, 2], range(3, 10))]
    assert all(np.array_equal(genes[name], np.concatenate([portion[name] for portion in rows])) for name in BOX.parts)
    assert not np.array_equal(genes["x"], other.realise(other.propose(10))["x"])


def test_a_worker_that_has_never_seen_a_population_makes_the_same_children():
    driver, worker = begun(), begun()
    for _ in range(3):
        advance(driver)
    proposals = pickle.loads(pickle.dumps(driver.propose(10)))
    assert same(driver.realise(proposals), worker.realise(proposals))


def test_parents_are_named_and_their_genes_travel_the_fitter_first():
    algorithm = begun(operators={"x": Variation(None, None), "n": Variation(None, None)})
    advance(algorithm)
    population = algorithm.population
    proposals = algorithm.propose(40)
    fitness = dict(zip(population.ids.tolist(), population.fitness[:, 0], strict=True))
    genes = dict(zip(population.ids.tolist(), population.genes["x"], strict=True))
    for row, (a, b) in enumerate(proposals.parents.tolist()):
        assert a != b and fitness[a] > fitness[b]
        assert np.array_equal(proposals.arrays["a.x"][row], genes[a]) and np.array_equal(proposals.arrays["b.x"][row], genes[b])
    children = algorithm.realise(proposals)
    assert np.array_equal(children["x"], proposals.arrays["a.x"]) and not np.shares_memory(children["x"], proposals.arrays["a.x"])


@pytest.mark.parametrize("mating", METHODS)
@pytest.mark.parametrize("algorithm", [NSGA2, GA])
def test_every_way_to_mate_gets_better(algorithm, mating):
    evolution = Evolution(as_evaluator(ZDT1(5) if algorithm is NSGA2 else Sphere(5)), algorithm(20, mating=mating), 1)
    evolution.advance()
    start = evolution.population.raw.mean(axis=0)
    while evolution.generation < 60:
        evolution.advance()
    assert evolution.population.raw.mean(axis=0)[-1] < 0.5 * start[-1] and len(evolution.population) == 20


@pytest.mark.parametrize("population", [2, 3])
def test_the_smallest_populations_work(population):
    result = evolve(ZDT1(4), NSGA2(population), 400, 1)
    assert len(result.population) == population and result.hypervolume([1.1, 7.0]) > 1.0


def test_more_offspring_than_parents_may_be_made():
    result = evolve(Sphere(4), GA(5, offspring=35), 5 + 35 * 20, 1)
    assert result.generations == 21 and len(result.population) == 5 and result.best[1] < 0.05


@pytest.mark.parametrize("kind", [GA, NSGA2])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 1}, "population must be at least 2, a pair to mate, not 1"),
        ({"population": -5}, "population must be at least 2"),
        ({"offspring": 0}, "offspring must be at least 1, not 0"),
        ({"offspring": -1}, "offspring must be at least 1, not -1"),
        ({"mating": "roulette"}, "mating must be one of tournament, random, oldest, nearest, farthest, not 'roulette'"),
        ({"tournament": 0}, "a tournament has at least 1 entrant, not 0"),
    ],
)
def test_wrong_settings_are_refused(kind, settings, message):
    with pytest.raises(MisuseError, match=message):
        kind(**settings)
