"""Operators of real numbers: against plain formulas, and against the distributions that theory gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Real
from lamarckian.ec.operators import SBX, Gaussian, Polynomial
from lamarckian.ec.stream import STATE_WORDS, open_stream, uniform
from lamarckian.errors import MisuseError
from tests.ec.operators.properties import about, check_crossover, check_mutation, evenly

SHARES = st.floats(0.0, 1.0)
ETAS = st.floats(0.1, 100.0)
WIDE = Real(-1e6, 1e6, length=10)


@st.composite
def reals(draw) -> Real:
    bounds = draw(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6)), min_size=1, max_size=12))
    return Real([low for low, _ in bounds], [low + width for low, width in bounds])


def stream(seed: int, key: int):
    state = np.empty(STATE_WORDS, np.uint64)
    open_stream(state, seed, key)
    return lambda: uniform(state)


def sbx(x: float, y: float, low: float, high: float, eta: float, u: float) -> float:
    """A child by Deb's formulas; u in [0, 2): below 1 the child on the side of y, else the one on the side of x."""
    sign, u = (1, u) if u < 1.0 else (-1, u - 1.0)
    spread = (2 * u) ** (1 / (eta + 1)) if u <= 0.5 else (1 / (2 * (1 - u))) ** (1 / (eta + 1))
    return min(max(0.5 * (x + y + sign * spread * (y - x)), low), high)


def polynomial(x: float, low: float, high: float, eta: float, u: float) -> float:
    """A mutant by Deb's formulas."""
    width = high - low
    if u < 0.5:
        step = (2 * u + (1 - 2 * u) * (1 - (x - low) / width) ** (eta + 1)) ** (1 / (eta + 1)) - 1
    else:
        step = 1 - (2 * (1 - u) + 2 * (u - 0.5) * (1 - (high - x) / width) ** (eta + 1)) ** (1 / (eta + 1))
    return min(max(x + step * width, low), high)


def mutants(operator, part: Real, value: float, rows: int) -> np.ndarray:
    genes = np.full((rows, part.length), value)
    operator.mutate(part, genes, 11, np.arange(rows))
    return genes


@given(reals(), st.builds(SBX, ETAS, SHARES, SHARES), st.integers(0, 99))
def test_crossover_gives_valid_children(part, operator, seed):
    check_crossover(operator, part, seed)


@given(reals(), st.builds(Polynomial, ETAS, SHARES) | st.builds(Gaussian, st.floats(0.001, 10.0), SHARES), st.integers(0, 99))
def test_mutation_gives_valid_mutants(part, operator, seed):
    check_mutation(operator, part, seed)


@pytest.mark.parametrize("eta", [1.0, 7.3, 15.0, 20.0])
def test_sbx_equals_the_formulas_of_its_paper(eta):
    part = Real([0.0] * 20, [1.0] * 20)
    a, b = part.sample(1, np.random.default_rng(0)), part.sample(1, np.random.default_rng(1))
    child = SBX(eta, probability=1.0, gene_probability=0.6).cross(part, a, b, 8, np.array([9]))
    draw = stream(8, 9)
    first, second = (b, a) if draw() < 0.5 else (a, b)
    draw()
    for x, y, gene in zip(first[0], second[0], child[0], strict=True):
        u = draw()
        assert gene == pytest.approx(sbx(x, y, 0.0, 1.0, eta, 2 * u / 0.6) if u < 0.6 else x, abs=1e-12)


@pytest.mark.parametrize("eta", [2.0, 15.0])
def test_sbx_spreads_children_as_its_distribution_says(eta):
    # Parents at −1 and 1, bounds far away: a child lies at ±β, of density ½(η+1)β^η up to 1 and ½(η+1)β^−(η+2) beyond.
    a, b = np.full((2000, 10), -1.0), np.full((2000, 10), 1.0)
    child = SBX(eta, probability=1.0, gene_probability=1.0).cross(WIDE, a, b, 3, np.arange(2000))
    assert about(child, 0.0)
    assert about(abs(child), 0.5 * (eta + 1) / (eta + 2) + 0.5 * (eta + 1) / eta)
    assert about(abs(child) < 1.0, 0.5)
    assert about(abs(child) < 0.5 ** (1 / (eta + 1)), 0.25)


def test_sbx_crosses_the_share_of_genes_that_it_is_told():
    a, b = np.full((4000, 10), -1.0), np.full((4000, 10), 1.0)
    child = SBX(probability=0.8, gene_probability=0.3).cross(WIDE, a, b, 3, np.arange(4000))
    changed = abs(child) != 1.0
    assert about(changed.any(axis=1), 0.8 * (1 - 0.7**10))
    assert evenly(changed.sum(axis=0))
    assert changed.mean() == pytest.approx(0.24, abs=0.01)
    copies = child[~changed.any(axis=1)]
    assert (copies == copies[:, :1]).all() and about(copies[:, 0], 0.0)  # of one parent each, of either equally often


def test_sbx_is_symmetric_in_symmetric_bounds():
    part = Real(0.0, 1.0, length=10)
    a, b = np.full((2000, 10), 0.1), np.full((2000, 10), 0.9)
    child = SBX(eta=2.0, probability=1.0, gene_probability=1.0).cross(part, a, b, 5, np.arange(2000))
    assert about(child, 0.5)
    assert child.min() >= 0.0 and child.min() < 0.02


@pytest.mark.parametrize("eta", [1.0, 7.3, 20.0])
def test_polynomial_mutation_equals_its_formulas(eta):
    part = Real(-2.0, 3.0, length=20)
    genes = part.sample(1, np.random.default_rng(0))
    mutant = genes.copy()
    Polynomial(eta, gene_probability=1.0).mutate(part, mutant, 8, np.array([9]))
    draw = stream(8, 9)
    draw()
    for old, new in zip(genes[0], mutant[0], strict=True):
        assert new == pytest.approx(polynomial(old, -2.0, 3.0, eta, draw()), abs=1e-12)
        draw()


def test_polynomial_steps_are_symmetric_and_of_the_size_that_eta_gives():
    # Far from the bounds |δ| = 1 − u^(1/(η+1)), whose mean is 1 / (η + 2), of a range of 10 here.
    steps = mutants(Polynomial(20.0, 1.0), Real(-5.0, 5.0, length=10), 0.0, 2000)
    assert about(steps, 0.0) and about(abs(steps), 10 / 22)


@pytest.mark.parametrize("kind", [Polynomial, Gaussian])
@pytest.mark.parametrize("probability", [0.02, 0.3, 1.0])
def test_each_gene_is_mutated_with_the_probability_that_was_asked_for(kind, probability):
    mutated = mutants(kind(gene_probability=probability), Real(-5.0, 5.0, length=10), 0.0, 3000) != 0.0
    assert about(mutated, probability) and evenly(mutated.sum(axis=0))


@pytest.mark.parametrize("kind", [Polynomial, Gaussian])
def test_one_gene_an_individual_is_mutated_by_default_and_none_at_probability_zero(kind):
    part = Real(-5.0, 5.0, length=10)
    assert about((mutants(kind(), part, 0.0, 3000) != 0.0).sum(axis=1), 1.0)
    assert not mutants(kind(gene_probability=0.0), part, 0.0, 100).any()
    assert not mutants(kind(gene_probability=1e-300), part, 0.0, 100).any()


def test_gaussian_steps_have_the_deviation_that_was_asked_for():
    steps = mutants(Gaussian(0.01, 1.0), Real(-5.0, 5.0, length=10), 0.0, 2000)
    assert about(steps, 0.0) and about(steps**2, 0.1**2)


def test_gaussian_mutation_stops_at_the_bounds():
    part = Real(-5.0, 5.0, length=10)
    genes = mutants(Gaussian(10.0, 1.0), part, 5.0, 1000)
    assert about(genes == 5.0, 0.5) and part.fault(genes) is None


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan])
def test_settings_out_of_range_are_refused(wrong):
    for build in (lambda: SBX(eta=wrong), lambda: Polynomial(eta=wrong), lambda: Gaussian(deviation=wrong)):
        with pytest.raises(MisuseError, match="must be above 0"):
            build()
    with pytest.raises(MisuseError, match=r"sbx: gene_probability must be in \[0, 1\], not 1.5"):
        SBX(gene_probability=1.5)
