"""Ranks against comparing all with all, kernel by kernel and as a whole."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.ec import ranking
from lamarckian.ec.ranking import UNRANKED, fronts, non_dominated_ranks, sorting
from lamarckian.errors import MisuseError
from tests.ec.ranking import reference

KERNELS = [
    (fronts.rank_one, [1]),
    (fronts.rank_two, [2]),
    (fronts.rank_three, [3]),
    (fronts.rank_by_bits, [1, 2, 3, 4, 5, 6]),
    (fronts.rank_by_search, [1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize(("kernel", "objectives"), [(kernel, m) for kernel, counts in KERNELS for m in counts])
def test_each_kernel_ranks_like_brute_force(kernel, objectives):
    for name, points in reference.sets(objectives):
        expected, ranks = reference.ranks(points), np.full(len(points), -1)
        count = kernel(points, sorting.sort_objectives(points), ranks)
        distinct = len(set(expected))
        if kernel is fronts.rank_by_bits and distinct > fronts.MANY_FRONTS:
            assert count == -1, name
        else:
            assert count == distinct, name
            np.testing.assert_array_equal(ranks, expected, name)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5, 6])
def test_ranks_are_those_of_brute_force(objectives):
    random = np.random.default_rng(0)
    for name, points in reference.sets(objectives):
        np.testing.assert_array_equal(non_dominated_ranks(points), reference.ranks(points), name)
        violation = np.maximum(random.integers(-3, 4, len(points)), 0).astype(float)
        np.testing.assert_array_equal(non_dominated_ranks(points, violation), reference.ranks(points, violation), name)
        spoilt = points.copy()
        for value in (np.nan, np.inf, -np.inf):
            spoilt[random.random(points.shape) < 0.05] = value
        violation[random.random(len(points)) < 0.05] = np.nan
        np.testing.assert_array_equal(non_dominated_ranks(spoilt), reference.ranks(spoilt), name)
        np.testing.assert_array_equal(non_dominated_ranks(spoilt, violation), reference.ranks(spoilt, violation), name)


def test_bits_in_several_blocks_are_those_of_one():
    points = np.random.default_rng(0).integers(0, 9, (5000, 4)).astype(float)  # a block holds 3355 rows
    order, bits, search = sorting.sort_objectives(points), np.full(5000, -1), np.full(5000, -2)
    assert fronts.rank_by_bits(points, order, bits) == fronts.rank_by_search(points, order, search)
    np.testing.assert_array_equal(bits, search)


def test_ranks_by_hand():
    fitness = [[1, 4], [2, 3], [1, 3], [0, 5], [1, 3], [0, 0], [2, 3]]
    assert non_dominated_ranks(fitness).tolist() == [0, 0, 1, 0, 1, 2, 0]


def test_the_feasible_come_first_and_then_the_smaller_violation():
    fitness = [[9, 9], [1, 1], [8, 0], [2, 2], [0, 8]]
    assert non_dominated_ranks(fitness, [0.5, 0, 0.25, 0, 0.5]).tolist() == [3, 1, 2, 0, 3]


def test_rows_that_are_not_finite_are_unranked_and_influence_nobody():
    fitness = [[np.inf, np.inf], [1, 1], [np.nan, 5], [0, 0], [-np.inf, 9], [7, 7]]
    assert non_dominated_ranks(fitness, [0, 0, 0, 0, 0, np.inf]).tolist() == [UNRANKED, 0, UNRANKED, 1, UNRANKED, UNRANKED]


def test_no_rows_give_no_ranks():
    assert non_dominated_ranks(np.empty((0, 3))).tolist() == []


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 5)), elements=st.integers(-3, 3).map(float)),
    st.randoms(use_true_random=False),
)
def test_ranks_follow_the_rows_when_these_are_permuted(fitness, random):
    order = random.sample(range(len(fitness)), len(fitness))
    assert non_dominated_ranks(fitness[order]).tolist() == non_dominated_ranks(fitness)[order].tolist()


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 20), st.integers(1, 4)), elements=st.floats()))
def test_any_numbers_rank_like_brute_force(fitness):
    assert non_dominated_ranks(fitness).tolist() == reference.ranks(fitness).tolist()


@pytest.mark.parametrize("rows", [100, 1000])
def test_rows_are_sorted_by_each_objective_then_by_the_next_ones_then_by_index(rows):
    points = np.random.default_rng(0).choice([-1e300, -2.5, -0.0, 0.0, 1e-300, 1.0, 1.0 + 2**-52, 7.0], (rows, 3))
    points[: rows // 2] += np.random.default_rng(1).normal(size=(rows // 2, 3))
    for j, order in enumerate(sorting.sort_objectives(points)):
        assert order.tolist() == np.lexsort([points[:, (j + step) % 3] for step in (2, 1, 0)]).tolist()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(MisuseError, match=r"but has \(3,\)"):
        non_dominated_ranks([1, 2, 3])
    with pytest.raises(MisuseError, match=r"but has \(2, 0\)"):
        non_dominated_ranks([[], []])
    with pytest.raises(MisuseError, match=r"shape \(1,\), but has \(2,\)"):
        non_dominated_ranks([[1, 2]], [0, 0])


def test_without_numba_the_results_are_the_same():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import warnings; warnings.simplefilter('error')\n"
        "import numpy as np\n"
        "from lamarckian.ec import ranking\n"
        "for m, size in ((1, 20), (2, 300), (3, 60), (4, 70)):\n"
        "    fitness = np.random.default_rng(m).integers(0, 9, (size, m)).astype(float)\n"
        "    for method in ranking.METHODS:\n"
        "        print([x.tolist() for x in ranking.survive(fitness, fitness[:, 0] - 7, size // 2, method)])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    for m, size in ((1, 20), (2, 300), (3, 60), (4, 70)):
        fitness = np.random.default_rng(m).integers(0, 9, (size, m)).astype(float)
        for method in ranking.METHODS:
            assert next(lines) == str([x.tolist() for x in ranking.survive(fitness, fitness[:, 0] - 7, size // 2, method)])
