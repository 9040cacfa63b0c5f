import numpy as np

from lamarckian.ec.restarts import DOUBLINGS, Restarts, Watch

from .judging import same


def watched(values, length=10, population=10, worst=None):
    watch = Watch(length, population)
    for value in values:
        watch.note(np.array([value, value - 1.0, value - 2.0 if worst is None else worst]))
    return watch


def test_ipop_doubles_the_population_up_to_a_limit():
    restarts, generator = Restarts("ipop", 12), np.random.default_rng(0)
    populations = [restarts.next(100, generator).population for _ in range(DOUBLINGS + 2)]
    assert populations == [12 * 2**doubling for doubling in [*range(1, DOUBLINGS + 1), DOUBLINGS, DOUBLINGS]]


def test_bipop_goes_on_with_the_regime_that_used_less():
    restarts, generator = Restarts("bipop", 10), np.random.default_rng(0)
    first_large = restarts.next(500, generator)
    assert first_large == (20, 1.0, None)
    small = restarts.next(1_000, generator)  # large 1,000, small 0
    assert small.population == 10 and small.evaluations == 500 and 0.01 <= small.sigma <= 1
    assert restarts.next(500, generator).population == 10  # large 1,000, small 500
    assert restarts.next(500, generator) == (40, 1.0, None)  # both 1,000
    populations = []
    for _ in range(8):
        run = restarts.next(4_000 if not populations else 100, generator)  # large 5,000, small 1,000 and then 100 more each
        assert run.evaluations == 2_000
        populations.append(run.population)
    assert all(10 <= population <= 20 for population in populations) and len(set(populations)) > 3


def test_restarts_go_on_from_what_was_saved():
    a, b = Restarts("bipop", 10), Restarts("bipop", 10)
    generator = np.random.default_rng(0)
    a.next(500, generator), a.next(1_000, generator)
    b.load(a.save())
    assert a.next(300, np.random.default_rng(1)) == b.next(300, np.random.default_rng(1))
    assert same(a.save(), b.save())


def test_a_search_is_flat_where_all_values_of_forty_generations_are_the_same():
    """10 + 30 · 10 / 10 generations."""
    assert not watched([5.0] * 39, worst=5.0).flat()
    assert watched([5.0] * 40, worst=5.0).flat()
    assert watched([4.0] + [5.0 - 1e-13] * 40, worst=5.0).flat()
    assert not watched([5.0] * 40, worst=4.9).flat()
    assert not watched([4.9] + [5.0] * 39, worst=5.0).flat()
    assert not watched([-np.inf] * 40, worst=-np.inf).flat()


def test_a_search_stagnates_where_its_last_generations_are_no_better():
    """120 + 30 · 10 / 10 generations at least."""
    assert not watched([5.0] * 149).stagnates()
    assert watched([5.0] * 160).stagnates()
    assert not watched(np.linspace(0, 1, 160)).stagnates()
    assert watched(np.linspace(1, 0, 160)).stagnates()
    assert watched([*np.linspace(0, 1, 200), *[1.0] * 200]).stagnates()


def test_a_watch_goes_on_from_what_was_saved():
    a, b = watched([5.0] * 39, worst=5.0), Watch(10, 10)
    b.load(a.save())
    b.note(np.array([5.0, 5.0, 5.0]))
    assert b.flat() and b.generations == 40
