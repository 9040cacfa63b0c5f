"""Populations: rows in, rows out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Genome, Network, Real
from lamarckian.ec.population import EVALUATED, FAILED, Population, choose, join, no_population

from .judging import same
from .test_order import population


def test_rows_that_are_taken_are_copies():
    all = population([1.0, 2.0, 3.0])
    some = all.take(np.array([2, 0]))
    assert some.ids.tolist() == [2, 0] and some.fitness.ravel().tolist() == [3.0, 1.0] and len(some) == 2 and some.objectives == 1
    some.fitness[:] = 9
    some.genes["x"][:] = 9
    assert all.fitness.max() == 3 and all.genes["x"].max() == 0


def test_a_mask_takes_its_rows():
    all = population([1.0, 2.0, 3.0])
    assert all.take(np.array([True, False, True])).ids.tolist() == [0, 2] and len(all.take(all.fitness[:, 0] > 9)) == 0


@given(seed=st.integers(0, 99), a=st.integers(1, 5), b=st.integers(1, 5))
def test_choosing_of_two_is_taking_of_both(seed, a, b):
    generator = np.random.default_rng(seed)
    first, second = population(generator.random(a)), population(generator.random(b), ids=np.arange(50, 50 + b))
    rows = generator.permutation(a + b)[: generator.integers(0, a + b + 1)]
    chosen = choose(first, second, rows)
    assert same(chosen.rows(), join([first, second]).take(rows).rows())
    assert not np.shares_memory(chosen.ids, first.ids)


def test_joined_they_are_in_their_order_and_empty_ones_do_not_matter():
    a, b = population([1.0, 2.0]), population([3.0], ids=[7])
    nobody = no_population(Genome({"x": Real(0, 1)}))
    assert nobody.objectives == 0 and len(nobody) == 0
    both = join([nobody, a, nobody, b])
    assert both.ids.tolist() == [0, 1, 7] and both.fitness.ravel().tolist() == [1.0, 2.0, 3.0]
    assert join([nobody, b]) is b and join([nobody, nobody]) is nobody


def test_nobody_has_columns_of_the_right_shapes():
    nobody = no_population(Genome({"x": Real(0, 1, 3), "net": Network([("w", (2, 2))])}), 2)
    assert nobody.genes["x"].shape == (0, 3) and nobody.genes["net"].shape == (0, 4) and nobody.genes["net"].dtype == np.float32
    assert nobody.fitness.shape == nobody.raw.shape == (0, 2) and nobody.parents.shape == (0, 2)


def test_rows_make_a_population_again():
    all = population([1.0, 2.0])
    assert same(Population(**all.rows()).rows(), all.rows())


def test_whoever_is_punished_counts_as_evaluated():
    all = population([np.nan, 1.0], state=[FAILED, EVALUATED])
    all.punish(0, np.array([-5.0]), 1e100)
    assert all.evaluated.all() and all.fitness[0, 0] == -5 and all.violation.tolist() == [1e100, 0]
