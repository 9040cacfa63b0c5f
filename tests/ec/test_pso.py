import numpy as np
import pytest

from lamarckian.ec.genome import Genome, Real
from lamarckian.ec.population import NOBODY
from lamarckian.ec.pso import PSO
from lamarckian.errors import MisuseError

from .judging import judged, minimise, rastrigin, sphere
from .swarms import BOX, advance, begin

TWO_PARTS = Genome({"x": Real([-1.0, 2.0], [1.0, 2.0]), "rate": Real(0.001, 1.0, 1, "log")})


def begun(genome=BOX, **settings):
    return begin(PSO, genome, **settings)


@pytest.mark.parametrize(("topology", "value"), [("global", 1e-20), ("ring", 1e-10)])
def test_it_finds_the_optimum_of_a_sphere(topology, value):
    assert minimise(begun(topology=topology), sphere, 20_000) < value


@pytest.mark.parametrize("topology", ["global", "ring"])
def test_it_comes_near_the_optimum_of_rastrigin(topology):
    """A random search of as many points finds about 60; one of the local optima next to the best is worth 1 more a gene."""
    assert np.median([minimise(begun(seed=seed, topology=topology), rastrigin, 20_000) for seed in range(3)]) < 8


def test_it_finds_an_optimum_in_a_corner():
    assert minimise(begun(), lambda x: (5.12 - x).sum(axis=1), 8_000) < 1e-12


def test_a_particle_moves_as_the_equation_says():
    """With one attraction of weight 1 and no neighbour's, x lands between where it was and its own best, plus inertia · velocity."""
    swarm = begun(population=4, inertia=0.5, cognitive=1.0, social=1e-300)
    _, first = advance(swarm)
    _, second = advance(swarm, function=lambda x: sphere(x) + 1e6)  # nobody remembers this one
    velocity = second - first
    _, third = advance(swarm)
    inside = np.abs(second) < 5.12
    drawn = third - second - 0.5 * velocity  # u · (first − second)
    share = drawn / (first - second)
    assert inside.any() and ((share >= -1e-9) & (share <= 1 + 1e-9))[inside & (np.abs(third) < 5.12)].all()
    assert np.ptp(share) > 0.5  # a random number for each gene


def test_a_particle_that_would_leave_stops_at_the_bound_and_half_its_velocity_is_turned():
    swarm = begun(population=2, inertia=0.9, cognitive=1e-300, social=1e-300)
    advance(swarm)
    before, velocity = swarm.save()["position"], swarm.save()["velocity"]
    for _ in range(20):
        proposals = swarm.propose(2)
        x = swarm.realise(proposals)["x"]
        target = before + 0.9 * velocity
        assert np.allclose(x, np.clip(target, -5.12, 5.12), rtol=1e-12)
        after = swarm.save()["velocity"]
        out = np.abs(target) > 5.12
        assert np.allclose(after, np.where(out, -0.45, 0.9) * velocity, rtol=1e-12)
        before, velocity = x, after
        swarm.tell(judged(proposals, {"x": x}, [0.0, 0.0]))


def test_no_step_is_longer_than_the_maximum():
    swarm = begun(Genome({"x": Real([-1.0, 0.0], [1.0, 100.0])}), max_velocity=0.05, population=10)
    _, before = advance(swarm)
    longest = np.zeros(2)
    for _ in range(10):
        _, after = advance(swarm)
        longest = np.maximum(longest, np.abs(after - before).max(axis=0))
        before = after
    assert (longest <= [0.1 * (1 + 1e-12), 5.0 * (1 + 1e-12)]).all() and (longest > [0.09, 4.5]).all()


def test_the_population_is_the_best_place_that_each_particle_has_seen():
    swarm = begun(population=6)
    seen, values = [], []
    for _ in range(8):
        _, x = advance(swarm)
        seen.append(x), values.append(sphere(x))
    best = np.argmin(values, axis=0)
    population = swarm.population
    assert np.array_equal(population.genes["x"], np.array(seen)[best, range(6)])
    assert np.array_equal(population.raw[:, 0], np.min(values, axis=0))
    assert population.ids.tolist() == (6 * best + range(6)).tolist()
    assert population.age.tolist() == (7 - best).tolist()


def test_a_feasible_place_is_remembered_before_any_other_and_then_the_one_that_violates_least():
    swarm = begun(population=4)
    advance(swarm, violation=[0.0, 1.0, 1.0, 3.0])
    first = swarm.population.ids.tolist()
    advance(swarm, function=lambda x: sphere(x) - 1000, violation=[0.5, 0.0, 1.0, 2.0])
    assert first == [0, 1, 2, 3]
    assert swarm.population.ids.tolist() == [0, 5, 2, 7]


@pytest.mark.parametrize("topology", ["global", "ring"])
def test_particles_know_the_best_of_their_neighbourhood(topology):
    swarm = begun(population=6, topology=topology)
    first = swarm.propose(6)
    assert (first.parents == NOBODY).all()
    swarm.tell(judged(first, swarm.realise(first), [5.0, 1.0, 2.0, 3.0, 4.0, 0.0]))
    informers = {"global": [0] * 6, "ring": [0, 0, 3, 4, 4, 0]}[topology]
    assert swarm.propose(6).parents.tolist() == [[own, other] for own, other in enumerate(informers)]


def test_first_individuals_are_the_first_particles():
    first = BOX.sample(3, np.random.default_rng(0))
    proposals = begun(population=5, first=first).propose(5)
    assert np.array_equal(proposals.arrays["x"][:3], first["x"])
    BOX.check(proposals.arrays, "particles")


def test_several_parts_move_within_their_bounds():
    swarm = begun(TWO_PARTS, population=8)
    for _ in range(10):
        proposals = swarm.propose(8)
        genes = swarm.realise(proposals)
        TWO_PARTS.check(genes, "particles")
        swarm.tell(judged(proposals, genes, -np.abs(genes["x"][:, 0] - 0.7) - np.abs(TWO_PARTS.express(genes)["rate"][:, 0] - 0.1)))
    assert swarm.population.fitness.max() > -0.3


def test_a_particle_that_failed_flies_on_and_remembers_nothing_of_it():
    swarm = begun(population=4, topology="ring")
    advance(swarm, failed=range(4))
    assert len(swarm.population) == 0
    _, x = advance(swarm, failed=[1, 2])
    assert swarm.population.ids.tolist() == [4, 7]
    assert np.isfinite(x).all()
    advance(swarm, failed=[0])
    assert set(swarm.population.ids.tolist()) >= {4, 9, 10}
    assert np.isfinite(swarm.population.fitness).all()
    assert minimise(begun(), sphere, 8_000, failed=[3, 9]) < 1e-6


def test_fewer_candidates_than_particles_take_turns():
    swarm = begun(population=5)
    ids = [advance(swarm, count)[0].ids for count in (3, 3, 4)]
    assert np.concatenate(ids).tolist() == list(range(10))
    assert minimise(swarm, sphere, 2_000) < 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 1}, "population must be at least 2"),
        ({"inertia": 1.0}, "inertia must be in"),
        ({"cognitive": 0.0}, "cognitive must be above 0"),
        ({"social": -1.0}, "social must be above 0"),
        ({"topology": "star"}, "'global' or 'ring', not 'star'"),
        ({"max_velocity": 0.0}, "max_velocity must be above 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(MisuseError, match=message):
        PSO(**settings)
