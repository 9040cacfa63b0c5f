"""Mating: who is drawn how often, and who is whose neighbour."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.mating import check_mating, mate
from lamarckian.errors import MisuseError

METHODS = ["tournament", "random", "oldest", "nearest", "farthest"]


def pairs(mating="tournament", tournament=2, count=1000, seed=1, rank=None, crowding=None, age=None, fitness=None, size=10):
    size = next((len(given) for given in (rank, crowding, age, fitness) if given is not None), size)
    rank = np.arange(size) if rank is None else np.array(rank)
    crowding = np.zeros(size) if crowding is None else np.array(crowding, np.float64)
    age = np.zeros(size, np.int64) if age is None else np.array(age)
    fitness = -rank[:, None].astype(np.float64) if fitness is None else np.array(fitness, np.float64)
    return mate(mating, tournament, seed, np.arange(count), rank, crowding, age, fitness)


def expected(size, tournament):
    """The probability of each rank to win a tournament, entrants drawn with replacement."""
    above = 1 - np.arange(size + 1) / size
    return above[:-1] ** tournament - above[1:] ** tournament


def couples(single):
    """The probability `[N, N]` of each pair of first and second winner; the second is drawn again until it is another one."""
    both = np.outer(single / (1 - single), single)
    np.fill_diagonal(both, 0.0)
    return both


def near(seen, probability, count):
    """Within 4 standard errors, where at least 5 are expected."""
    probability = np.where(count * np.asarray(probability) >= 5, probability, seen / count)
    return (np.abs(seen - count * probability) <= 4 * np.sqrt(count * probability * (1 - probability)) + 1e-9).all()


@pytest.mark.parametrize("tournament", [1, 2, 3, 5])
def test_a_tournament_draws_each_rank_as_often_as_it_should(tournament):
    count, size = 40_000, 10
    drawn = pairs(tournament=tournament, count=count, size=size)
    both = couples(expected(size, tournament))
    together = np.triu(both + both.T)
    seen = np.zeros((size, size))
    np.add.at(seen, (drawn[:, 0], drawn[:, 1]), 1)
    assert near(seen, together, count)
    assert near((drawn == 0).any(axis=1).sum(), together[0].sum(), count)


def test_the_best_wins_a_binary_tournament_with_probability_nineteen_hundredths():
    assert expected(10, 2)[0] == pytest.approx(0.19)


@pytest.mark.parametrize("mating", METHODS)
@given(seed=st.integers(0, 99), size=st.integers(2, 12), data=st.data())
def test_parents_differ_and_the_fitter_is_first(mating, seed, size, data):
    generator = np.random.default_rng(seed)
    rank, crowding = generator.integers(0, 3, size), generator.integers(0, 3, size).astype(float)
    tournament = data.draw(st.integers(1, 20))
    drawn = pairs(mating, tournament, 50, seed, rank, crowding, generator.integers(0, 3, size), generator.random((size, 2)))
    a, b = drawn.T
    assert (a != b).all() and ((drawn >= 0) & (drawn < size)).all()
    assert ((rank[a] < rank[b]) | ((rank[a] == rank[b]) & (crowding[a] >= crowding[b]))).all()


@pytest.mark.parametrize("mating", METHODS)
def test_a_population_of_one_mates_with_itself(mating):
    assert pairs(mating, size=1, count=5).tolist() == [[0, 0]] * 5


@pytest.mark.parametrize("mating", METHODS)
def test_pairs_do_not_depend_on_how_many_are_made_at_once(mating):
    fitness = np.random.default_rng(0).random((10, 3))
    settings = {"rank": np.arange(10), "crowding": np.zeros(10), "age": np.arange(10), "fitness": fitness}
    together = mate(mating, 2, 7, np.arange(100), **settings)
    alone = [mate(mating, 2, 7, np.array([id]), **settings)[0] for id in range(100)]
    assert np.array_equal(together, alone)
    assert not np.array_equal(together, mate(mating, 2, 8, np.arange(100), **settings))


def test_among_equal_ranks_the_less_crowded_wins():
    drawn = pairs(rank=[1, 1, 1, 1], crowding=[0.0, np.inf, 2.0, 1.0], tournament=40)
    assert (drawn[:, 0] == 1).all() and len(set(drawn[:, 1].tolist())) == 3  # the winner is always the same; the other is anybody


def test_random_mating_is_even():
    drawn = pairs("random", tournament=5, count=20_000)
    assert near(np.bincount(drawn.ravel(), minlength=10), np.full(10, 0.2), 20_000)


def test_oldest_draws_by_age_only():
    drawn = pairs("oldest", tournament=2, count=40_000, age=[0, 1, 2, 3, 4], rank=[0, 1, 2, 3, 4])
    both = couples(expected(5, 2)[::-1])
    assert near((drawn == 4).any(axis=1).sum(), both[4].sum() + both[:, 4].sum(), 40_000)


def test_nearest_and_farthest_by_hand():
    """In units of their ranges, the points are (0, 0), (0.1, 0), (0.5, 0.5) and (1, 1)."""
    fitness = [[0, 0], [0.1, 0], [0.5, 500], [1, 1000]]
    rank = [0, 1, 2, 3]
    near = {tuple(sorted(pair)) for pair in pairs("nearest", rank=rank, fitness=fitness).tolist()}
    assert near == {(0, 1), (1, 2), (2, 3)}
    far = {tuple(sorted(pair)) for pair in pairs("farthest", rank=rank, fitness=fitness).tolist()}
    assert far == {(0, 3), (1, 3), (0, 2)}


def test_the_neighbour_is_that_of_a_tournament_s_winner():
    drawn = pairs("farthest", tournament=40, rank=[0, 1, 2], fitness=[[0.0], [1.0], [-3.0]])
    assert (drawn == [0, 2]).all()


@pytest.mark.parametrize("mating", ["nearest", "farthest"])
def test_an_objective_that_is_the_same_for_all_does_not_count(mating):
    with np.errstate(all="raise"):
        drawn = pairs(mating, rank=[0, 0, 0], fitness=[[5.0, 0.0], [5.0, 1.0], [5.0, 3.0]])
    wanted = {(0, 1), (1, 2)} if mating == "nearest" else {(0, 2), (1, 2)}
    assert {tuple(sorted(pair)) for pair in drawn.tolist()} == wanted


def test_wrong_settings_are_refused():
    with pytest.raises(MisuseError, match="mating must be one of tournament, random, oldest, nearest, farthest, not 'best'"):
        check_mating("best", 2)
    with pytest.raises(MisuseError, match="a tournament has at least 1 entrant, not 0"):
        check_mating("tournament", 0)
