"""Crowding distances and truncation against numbers worked out by hand, and against their plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.ec.ranking import METHODS, UNRANKED, crowding_distance, default_method, non_dominated_ranks, survive, truncate
from lamarckian.errors import MisuseError
from tests.ec.ranking import reference

INF = np.inf


def test_crowding_by_hand():
    # Ranges 4 and 8: the second has (3 − 0)/4 + (8 − 2)/8, the third (4 − 1)/4 + (6 − 0)/8.
    fitness = [[0, 8], [1, 6], [3, 2], [4, 0]]
    assert crowding_distance(fitness, [0, 0, 0, 0]).tolist() == [INF, 1.5, 1.5, INF]


def test_fronts_have_crowding_of_their_own():
    fitness = [[0, 8], [0, 4], [1, 6], [1, 3], [4, 0], [2, 0]]
    # The second front: (2 − 0)/2 + (4 − 0)/4.
    assert crowding_distance(fitness, [0, 1, 0, 1, 0, 1]).tolist() == [INF, INF, 2.0, 2.0, INF, INF]


def test_copies_have_no_distance_and_are_nobodys_neighbours():
    fitness = [[0, 8], [1, 6], [1, 6], [3, 2], [4, 0], [0, 8]]
    assert crowding_distance(fitness, [0] * 6).tolist() == [INF, 1.5, 0, 1.5, INF, 0]
    assert crowding_distance([[2, 2], [2, 2]], [0, 0]).tolist() == [INF, 0]


def test_a_constant_objective_adds_nothing_and_has_no_ends():
    fitness = [[0, 8, 5], [1, 6, 5], [3, 2, 5], [4, 0, 5]]
    assert crowding_distance(fitness, [0] * 4).tolist() == [INF, 1.5, 1.5, INF]


def test_unranked_rows_have_no_distance():
    assert crowding_distance([[0, 1], [np.nan, 1], [1, 0]], [0, UNRANKED, 0]).tolist() == [INF, 0, INF]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
def test_crowding_is_as_defined(objectives):
    for name, points in reference.sets(objectives):
        ranks = non_dominated_ranks(points)
        expected = np.zeros(len(points))
        for rank in set(ranks):
            rows = np.flatnonzero(ranks == rank)
            rows = rows[~reference.copies(points[rows])]
            expected[rows] = reference.crowding(points[rows])
        np.testing.assert_allclose(crowding_distance(points, ranks), expected, rtol=1e-12, err_msg=name)


def test_crowding_is_computed_once_and_pcd_anew():
    x = np.array([0, 8, 12, 17, 28, 34, 41])
    fitness = np.stack([x, 41 - x], axis=1)
    # The gaps around the inner rows are 12, 9, 16, 17, 13: once, 9 and 12 go. After the 9 they are 17, 20, 17, 13.
    assert truncate(fitness, [0] * 7, 6, "crowding").tolist() == truncate(fitness, [0] * 7, 6, "pcd").tolist() == [0, 1, 3, 4, 5, 6]
    assert truncate(fitness, [0] * 7, 5, "crowding").tolist() == [0, 3, 4, 5, 6]
    assert truncate(fitness, [0] * 7, 5, "pcd").tolist() == [0, 1, 3, 4, 6]
    assert truncate(fitness, [0] * 7, 2, "pcd").tolist() == [0, 6]


def test_mnn_by_hand():
    # Along the line the products of the two nearest are 1·1, 1·2, 2·3 for the inner rows; with the first gone, 2·2, 2·4.
    fitness = [[1, 9], [2, 8], [3, 7], [5, 5], [9, 1]]
    assert truncate(fitness, [0] * 5, 3, "mnn").tolist() == [0, 3, 4]
    assert truncate(fitness, [0] * 5, 4, "mnn").tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
def test_one_front_is_pruned_as_defined(method, objectives):
    for name, points in reference.sets(objectives):
        points = points[non_dominated_ranks(points) == 0]
        for size in {0, len(points) // 4, len(points) // 2, max(0, len(points) - 1), len(points)}:
            kept = truncate(points, np.zeros(len(points), int), size, method)
            assert kept.tolist() == reference.prune(points, size, method), (name, size)


@pytest.mark.parametrize("method", METHODS)
def test_a_set_that_is_no_front_is_pruned_as_defined(method):
    points = np.random.default_rng(0).random((80, 3))  # as among the infeasible of one violation
    for size in (10, 40, 79):
        assert truncate(points, np.zeros(80, int), size, method).tolist() == reference.prune(points, size, method)


@pytest.mark.parametrize("method", METHODS)
def test_whole_fronts_are_kept_while_they_fit(method):
    points = np.random.default_rng(0).random((100, 2))
    ranks = non_dominated_ranks(points)
    for size in range(0, 101, 10):
        kept = truncate(points, ranks, size, method)
        assert len(set(kept)) == size
        last = np.sort(ranks)[size - 1] if size else -1
        assert set(np.flatnonzero(ranks < last)) <= set(kept)
        assert (ranks[kept] <= last).all()
        front = np.flatnonzero(ranks == last)
        part = reference.prune(points[front], size - np.sum(ranks < last), method) if size else []
        assert set(kept) == set(np.flatnonzero(ranks < last)) | set(front[part])


def test_copies_go_first():
    fitness = [[0, 2], [1, 1], [1, 1], [2, 0], [1, 1]]
    for method in METHODS:
        assert truncate(fitness, [0] * 5, 3, method).tolist() == [0, 1, 3]
        assert truncate(fitness, [0] * 5, 4, method).tolist() == [0, 1, 2, 3]


def test_unranked_rows_are_taken_last_and_the_earliest_of_them():
    fitness = [[np.nan, 0], [0, 1], [np.inf, 0], [1, 0], [0, 0]]
    ranks = non_dominated_ranks(fitness)
    assert [truncate(fitness, ranks, size, "pcd").tolist() for size in (3, 4, 5)] == [[1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("method", METHODS)
def test_survival_is_ranking_then_truncation_then_crowding_of_the_kept(objectives, method):
    random = np.random.default_rng(0)
    for name, points in reference.sets(objectives):
        violation = np.maximum(random.integers(-3, 3, len(points)), 0).astype(float)
        points[random.random(len(points)) < 0.1, 0] = np.nan
        for v in (None, violation):
            for size in {0, len(points) // 2, len(points)}:
                ranks = non_dominated_ranks(points, v)
                kept, kept_ranks, crowding = survive(points, v, size, method)
                np.testing.assert_array_equal(kept, truncate(points, ranks, size, method), name)
                np.testing.assert_array_equal(kept_ranks, ranks[kept], name)
                np.testing.assert_array_equal(crowding, crowding_distance(points[kept], ranks[kept]), name)


distinct_numbers = st.lists(st.integers(-1000, 1000), min_size=40, max_size=40, unique=True)


@given(distinct_numbers, st.sampled_from([2, 4]), st.randoms(use_true_random=False))
def test_crowding_follows_the_rows_when_these_are_permuted(numbers, objectives, random):
    points = np.array(numbers, float).reshape(-1, objectives)
    order, ranks = random.sample(range(len(points)), len(points)), non_dominated_ranks(points)
    assert crowding_distance(points[order], ranks[order]).tolist() == crowding_distance(points, ranks)[order].tolist()


@given(hnp.arrays(np.float64, (24, 3), elements=st.floats(0, 1), unique=True), st.sampled_from(list(METHODS)), st.randoms())
def test_what_is_kept_does_not_depend_on_the_order_of_rows_unless_there_is_a_tie(points, method, random):
    order = random.sample(range(24), 24)
    first, second = survive(points, None, 12, method), survive(points[order], None, 12, method)
    assert sorted(first[1]) == sorted(second[1])
    assert non_dominated_ranks(points)[np.sort(np.array(order)[second[0]])].max() == first[1].max()


def test_misuse_is_refused():
    fitness = np.zeros((3, 2))
    with pytest.raises(MisuseError, match="4 rows are to be kept, but there are 3"):
        truncate(fitness, [0, 0, 0], 4, "pcd")
    with pytest.raises(MisuseError, match="-1 rows"):
        survive(fitness, None, -1, "pcd")
    with pytest.raises(MisuseError, match="one of crowding, pcd, mnn, but is 'best'"):
        survive(fitness, None, 1, "best")
    with pytest.raises(MisuseError, match=r"shape \(3,\), but have \(2,\)"):
        crowding_distance(fitness, [0, 0])
    with pytest.raises(MisuseError, match="go from -1 to 7"):
        truncate(fitness, [0, -1, 7], 1, "pcd")


def test_defaults_by_objectives_and_size():
    assert [default_method(objectives, 100) for objectives in (1, 2, 3, 8)] == ["pcd", "pcd", "mnn", "mnn"]
    assert [default_method(objectives, 10_000) for objectives in (1, 2, 3, 8)] == ["pcd", "pcd", "pcd", "pcd"]
