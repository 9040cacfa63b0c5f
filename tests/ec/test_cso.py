import pickle

import numpy as np
import pytest

from lamarckian.ec.cso import CSO
from lamarckian.ec.genome import Genome, Real
from lamarckian.ec.population import NOBODY
from lamarckian.errors import MisuseError

from .judging import judged, minimise, rastrigin, same, sphere
from .swarms import BOX, advance, begin


def begun(genome=BOX, **settings):
    return begin(CSO, genome, **settings)


@pytest.mark.parametrize("phi", [0.0, 0.1])
def test_it_finds_the_optimum_of_a_sphere(phi):
    assert minimise(begun(phi=phi), sphere, 20_000) < 1e-14


def test_it_comes_near_the_optimum_of_rastrigin():
    """A random search of as many points finds about 60; one of the local optima next to the best is worth 1 more a gene."""
    assert np.median([minimise(begun(seed=seed), rastrigin, 20_000) for seed in range(3)]) < 5


def test_many_genes_are_what_it_is_for():
    """A random search finds about 1,400."""
    genome = Genome({"x": Real(-5.12, 5.12, 200)})
    assert minimise(begun(genome), sphere, 40_000) < 1.0


def test_it_finds_an_optimum_in_a_corner():
    assert minimise(begun(), lambda x: (5.12 - x).sum(axis=1), 10_000) < 1e-6


@pytest.mark.parametrize(("population", "sizes"), [(10, [10, 5, 5]), (7, [7, 3, 3])])
def test_after_the_first_generation_half_of_the_swarm_is_evaluated(population, sizes):
    swarm = begun(population=population)
    assert [len(advance(swarm)[0]) for _ in range(3)] == sizes
    assert len(swarm.population) == population


def test_the_loser_of_each_pair_learns_from_the_winner_which_stays():
    swarm = begun(population=10)
    first, x = advance(swarm)
    assert (first.parents == NOBODY).all() and first.ids.tolist() == list(range(10))
    values = sphere(x)
    proposals, moved = advance(swarm)
    losers, winners = proposals.parents.T
    assert sorted([*losers, *winners]) == list(range(10))
    assert (values[winners] < values[losers]).all()
    share = (moved - x[losers]) / (x[winners] - x[losers])  # the velocity was 0
    assert ((share >= 0) & (share <= 1)).all() and np.ptp(share) > 0.8
    population = swarm.population
    assert population.ids[winners].tolist() == winners.tolist() and (population.age[winners] == 1).all()
    assert population.ids[losers].tolist() == proposals.ids.tolist() and (population.age[losers] == 0).all()
    assert np.array_equal(population.genes["x"][losers], moved)


def test_the_mean_of_the_swarm_draws_losers_as_much_as_phi_says():
    plain, drawn = begun(population=10), begun(population=10, phi=0.5)
    _, x = advance(plain)
    advance(drawn)
    first, second = plain.propose(5), drawn.propose(5)
    assert np.array_equal(first.parents, second.parents)
    x_loser, x_winner = x[second.parents[:, 0]], x[second.parents[:, 1]]
    extent = 0.5 * np.abs(x.mean(axis=0) - x_loser) + np.abs(x_winner - x_loser)
    assert (np.abs(second.arrays["x"] - x_loser) <= extent + 1e-12).all()
    assert not np.allclose(first.arrays["x"], second.arrays["x"])


def test_velocity_fades_by_a_random_share():
    """Where winner and loser are the same place, only the old velocity moves the loser."""
    swarm = begun(population=2)
    state = swarm.save()
    state["members"]["genes"]["x"][:] = 0.5
    swarm.load(state)
    advance(swarm, function=lambda x: np.arange(2.0))
    state = swarm.save()
    state["velocity"][:] = 0.25
    swarm.load(state)
    proposals = swarm.propose(1)
    share = (swarm.realise(proposals)["x"] - 0.5) / 0.25
    assert ((share >= 0) & (share < 1)).all() and np.ptp(share) > 0.3


def test_a_loser_whose_evaluation_failed_stays_where_it_was():
    swarm = begun(population=6)
    advance(swarm)
    before = swarm.population
    velocity = swarm.save()["velocity"]
    proposals, _ = advance(swarm, failed=[0, 2])
    kept, replaced = proposals.parents[[0, 2], 0], proposals.parents[1, 0]
    assert np.array_equal(swarm.population.genes["x"][kept], before.genes["x"][kept])
    assert np.array_equal(swarm.save()["velocity"][kept], velocity[kept])
    assert swarm.population.ids[replaced] == proposals.ids[1]
    assert np.isfinite(swarm.population.fitness).all()


def test_where_all_failed_nothing_is_learnt_and_it_goes_on():
    swarm = begun(population=6)
    _, first = advance(swarm, failed=range(6))
    assert len(swarm.population) == 0 and swarm.size == 6
    proposals, second = advance(swarm, failed=[1, 3])
    assert proposals.ids.tolist() == list(range(6, 12)) and not np.array_equal(first, second)
    assert swarm.population.ids.tolist() == [6, 8, 10, 11] and swarm.size == 3
    before = pickle.dumps(swarm.population.rows())
    advance(swarm, failed=range(3))
    assert same(swarm.population.rows(), pickle.loads(before))
    advance(swarm), advance(swarm)
    assert len(swarm.population) == 6
    assert minimise(begun(), sphere, 8_000, failed=[3, 9]) < 1e-3


def test_whoever_violates_less_wins():
    swarm = begun(population=4)
    advance(swarm, function=lambda x: np.zeros(4), violation=[3.0, 2.0, 1.0, 0.0])
    losers, winners = swarm.propose(2).parents.T
    assert (winners > losers).all()


def test_first_individuals_are_the_first_members():
    first = BOX.sample(3, np.random.default_rng(0))
    proposals = begun(population=5, first=first).propose(5)
    assert np.array_equal(proposals.arrays["x"][:3], first["x"])
    BOX.check(proposals.arrays, "members")


def test_several_parts_move_within_their_bounds():
    genome = Genome({"x": Real([-1.0, 2.0], [1.0, 2.0]), "rate": Real(0.001, 1.0, 1, "log")})
    swarm = begun(genome, population=20)
    for _ in range(30):
        proposals = swarm.propose(swarm.size)
        genes = swarm.realise(proposals)
        genome.check(genes, "members")
        swarm.tell(judged(proposals, genes, -np.abs(genes["x"][:, 0] - 0.7) - np.abs(genome.express(genes)["rate"][:, 0] - 0.1)))
    assert swarm.population.fitness.max() > -0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 1}, "population must be at least 2"),
        ({"phi": -0.1}, "phi must be above 0"),
        ({"phi": np.nan}, "phi must be above 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(MisuseError, match=message):
        CSO(**settings)
