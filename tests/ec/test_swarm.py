"""What all swarms have in common."""

import pickle

import numpy as np
import pytest

from lamarckian.ec import CSO, PSO
from lamarckian.ec.genome import Genome, Integer, Network, Permutation, Real
from lamarckian.errors import MisuseError

from .judging import judged, same, sphere
from .swarms import BOX, advance, begin

KINDS = [PSO, CSO]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("generations", [0, 1, 3])
@pytest.mark.parametrize("between", [False, True])
def test_a_run_that_was_saved_goes_on_as_if_it_had_not_stopped(kind, generations, between):
    whole, rest = begin(kind, population=8), begin(kind, population=8)
    for _ in range(generations):
        advance(whole, failed=[2])
    proposals = whole.propose(whole.size) if between else None
    rest.load(pickle.loads(pickle.dumps(whole.save())))
    assert rest.size == whole.size and same(rest.population.rows(), whole.population.rows())
    if proposals is not None:
        for swarm in (whole, rest):
            genes = swarm.realise(proposals)
            swarm.tell(judged(proposals, genes, -sphere(genes["x"])))
    for _ in range(3):
        assert same(advance(whole)[1], advance(rest)[1])
    assert same(whole.save(), rest.save())


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_does_not_change_as_the_swarm_moves_on(kind):
    swarm = begin(kind, population=4)
    advance(swarm)
    state = swarm.save()
    copy, population, rows = pickle.loads(pickle.dumps(state)), swarm.population, pickle.dumps(swarm.population.rows())
    for _ in range(3):
        advance(swarm)
    assert same(state, copy) and same(population.rows(), pickle.loads(rows))
    rest = begin(kind, population=4)
    rest.load(state)
    advance(rest)
    assert same(state, copy)


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_are_the_same_in_portions_and_by_the_same_seed(kind):
    swarm, twin, other = begin(kind), begin(kind), begin(kind, seed=2)
    for each in (swarm, twin, other):
        advance(each)
    size = swarm.size
    proposals = swarm.propose(size)
    assert same(swarm.realise(proposals), twin.realise(twin.propose(size)))
    assert not same(swarm.realise(proposals), other.realise(other.propose(size)))
    portions = [twin.realise(proposals.take(rows))["x"] for rows in ([0], range(1, size))]
    assert np.array_equal(np.concatenate(portions), swarm.realise(proposals)["x"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("genome", "objectives", "message"),
    [
        (BOX, 3, "takes problems of 1 objective, and this one has 3"),
        (Genome({"order": Permutation(5)}), 1, "part 'order' is Permutation"),
        (Genome({"n": Integer(0, 5)}), 1, "part 'n' is Integer"),
        (Genome({"x": Real(0, 1), "net": Network([("w", (2,))])}), None, "part 'net', a Network, has none"),
    ],
)
def test_what_it_cannot_work_on_is_refused(kind, genome, objectives, message):
    with pytest.raises(MisuseError, match=f"^{kind.__name__} .*{message}"):
        kind().begin(genome, objectives, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_objectives_that_only_the_evaluation_tells_are_checked_then(kind):
    swarm = kind(population=2)
    swarm.begin(BOX, None, 1)
    proposals = swarm.propose(2)
    offspring = judged(proposals, swarm.realise(proposals), [1.0, 2.0])
    offspring.fitness = np.zeros((2, 3))
    with pytest.raises(MisuseError, match=f"{kind.__name__} takes problems of 1 objective, and this one has 3"):
        swarm.tell(offspring)
