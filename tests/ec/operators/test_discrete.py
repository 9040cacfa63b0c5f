"""Operators of whole numbers and categories."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Categorical, Integer, Real
from lamarckian.ec.operators import Creep, Points, Reset, UniformCrossover
from lamarckian.errors import MisuseError
from tests.ec.operators.properties import about, check_crossover, check_mutation, evenly

SHARES = st.floats(0.0, 1.0)


@st.composite
def integers(draw) -> Integer:
    bounds = draw(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 5) | st.integers(0, 2**40)), min_size=1, max_size=12))
    return Integer([low for low, _ in bounds], [low + width for low, width in bounds])


CATEGORIES = st.lists(st.integers(1, 4), min_size=1, max_size=12).map(lambda sizes: Categorical([list("abcd"[:n]) for n in sizes]))
REALS = st.integers(1, 12).map(lambda length: Real(-1.0, 1.0, length=length))
CROSSOVERS = st.builds(UniformCrossover, SHARES) | st.builds(Points, st.integers(1, 5))


def children(operator, length: int, rows: int) -> np.ndarray:
    """Of a parent of zeros and a parent of ones."""
    shape = rows, length
    return operator.cross(Integer(0, 1, length), np.zeros(shape, np.int64), np.ones(shape, np.int64), 7, np.arange(rows))


def mutants(operator, part: Integer, value: int, rows: int) -> np.ndarray:
    genes = np.full((rows, part.length), value)
    operator.mutate(part, genes, 11, np.arange(rows))
    return genes


@given(integers() | CATEGORIES | REALS, CROSSOVERS, st.integers(0, 99))
def test_crossover_gives_valid_children(part, operator, seed):
    check_crossover(operator, part, seed)


@given(integers() | CATEGORIES, st.builds(Reset, SHARES), st.integers(0, 99))
def test_reset_gives_valid_mutants(part, operator, seed):
    check_mutation(operator, part, seed)


@given(integers(), st.builds(Creep, st.integers(1, 2**40), SHARES), st.integers(0, 99))
def test_creep_gives_valid_mutants(part, operator, seed):
    check_mutation(operator, part, seed)


@pytest.mark.parametrize("swap", [0.0, 0.2, 0.5, 1.0])
def test_uniform_crossover_swaps_every_gene_with_the_same_probability(swap):
    genes = children(UniformCrossover(swap), 10, 2000)
    assert about(genes, swap)
    if swap not in (0.0, 1.0):
        assert evenly(genes.sum(axis=0)) and about((genes[:, 0] == genes[:, 1]), swap**2 + (1 - swap) ** 2)


@pytest.mark.parametrize("points", [1, 2, 4])
def test_points_change_over_exactly_so_often_and_anywhere_equally(points):
    changes = np.diff(children(Points(points), 10, 4000), axis=1) != 0
    assert (changes.sum(axis=1) == points).all()
    assert evenly(changes.sum(axis=0))


def test_points_start_from_either_parent_and_never_exceed_the_gaps():
    genes = children(Points(2), 10, 4000)
    assert about(genes[:, 0], 0.5)
    assert (np.diff(children(Points(7), 3, 50), axis=1) != 0).all()
    assert about(children(Points(1), 1, 1000), 0.5)


def test_reset_makes_every_other_value_equally_likely():
    genes = mutants(Reset(1.0), Integer(-2, 3, length=10), 1, 1000)
    counts = np.bincount((genes + 2).ravel(), minlength=6)
    assert counts[3] == 0 and evenly(np.delete(counts, 3))


def test_reset_flips_bits_and_leaves_alone_what_has_one_value():
    assert (mutants(Reset(1.0), Integer(0, 1, length=10), 1, 20) == 0).all()
    assert (mutants(Reset(1.0), Categorical([["a"], ["a", "b"]]), 0, 20) == [0, 1]).all()


@pytest.mark.parametrize("kind", [Reset, Creep])
def test_every_gene_is_mutated_with_the_probability_that_was_asked_for(kind):
    part = Integer(-9, 9, length=10)
    mutated = mutants(kind(gene_probability=0.2), part, 0, 3000) != 0
    assert about(mutated, 0.2) and evenly(mutated.sum(axis=0))
    assert about((mutants(kind(), part, 0, 3000) != 0).sum(axis=1), 1.0)


def test_creep_steps_both_ways_equally_and_no_farther_than_its_step():
    steps = mutants(Creep(3, 1.0), Integer(-9, 9, length=10), 0, 1000)
    counts = np.bincount((steps + 3).ravel(), minlength=7)
    assert len(counts) == 7 and counts[3] == 0 and evenly(np.delete(counts, 3))


def test_creep_turns_back_at_the_bounds():
    assert (mutants(Creep(1, 1.0), Integer(0, 9, length=4), 9, 50) == 8).all()
    assert set(mutants(Creep(5, 1.0), Integer(0, 2, length=4), 1, 50).ravel()) == {0, 2}


def test_settings_out_of_range_are_refused():
    for build, message in [
        (lambda: UniformCrossover(1.1), r"uniform: swap must be in \[0, 1\], not 1.1"),
        (lambda: Points(0), "points must be at least 1, not 0"),
        (lambda: Reset(-0.1), r"reset: gene_probability must be in \[0, 1\]"),
        (lambda: Creep(0), "creep: step must be at least 1, not 0"),
    ]:
        with pytest.raises(MisuseError, match=message):
            build()
