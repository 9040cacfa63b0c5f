import pickle

import numpy as np
import pytest

from lamarckian.ec.cmaes import CONDITION, rates
from lamarckian.ec.genome import Genome, Network, Real
from lamarckian.ec.sep_cmaes import SepCMAES
from lamarckian.errors import MisuseError

from .judging import judged, minimise, same, sphere

BOX = Genome({"x": Real(-100, 100, 20)})


def ellipsoid(x):
    return x**2 @ 10 ** np.linspace(0, 6, x.shape[1])


def begun(genome=BOX, seed=1, **settings):
    search = SepCMAES(**settings)
    search.begin(genome, 1, seed)
    return search


def advance(search, function=sphere):
    proposals = search.propose(search.size)
    genes = search.realise(proposals)
    search.tell(judged(proposals, genes, -function(genes["x"])))
    return genes["x"]


def test_one_generation_is_that_of_the_equations():
    n, rate = 5, rates(5, 6, speed=7 / 3)
    search = begun(Genome({"x": Real(0, 1, n)}), sigma=0.05, population=6)
    x = advance(search)
    y = ((x - 0.5) / 0.05)[np.argsort(sphere(x))]
    step = rate.weights[:3] @ y[:3]
    np.testing.assert_allclose(search._mean, 0.5 + 0.05 * step, rtol=1e-10)
    path = np.sqrt(rate.c_sigma * (2 - rate.c_sigma) * rate.mu_eff) * step
    halted = np.linalg.norm(path) / np.sqrt(1 - (1 - rate.c_sigma) ** 2) >= (1.4 + 2 / (n + 1)) * rate.chi
    shape_path = np.zeros(n) if halted else np.sqrt(rate.c_c * (2 - rate.c_c) * rate.mu_eff) * step
    scaled = np.where(rate.weights >= 0, rate.weights, rate.weights * n / (y**2).sum(axis=1))
    decay = 1 - rate.c_1 - rate.c_mu * rate.weights.sum() + halted * rate.c_1 * rate.c_c * (2 - rate.c_c)
    np.testing.assert_allclose(search._variances, decay + rate.c_1 * shape_path**2 + rate.c_mu * scaled @ y**2, rtol=1e-9)


def test_it_learns_the_scales_of_an_ellipsoid():
    """In half the 13,000 evaluations that a full covariance takes."""
    start = np.random.default_rng(0).uniform(-5, 5, 20).tolist()
    search = begun(sigma=0.01, start=start)
    assert minimise(search, ellipsoid, 6_500) < 1e-9
    scales = np.log10(search._variances / search._variances.max())
    np.testing.assert_allclose(scales, np.linspace(0, -6, 20), atol=1.5)


def test_a_thousand_genes_are_learnt_in_a_few_hundred_generations():
    search = begun(Genome({"x": Real(-100, 100, 1_000)}), sigma=0.01, start=[1.0] * 1_000)
    assert minimise(search, sphere, 30_000) < 10  # from 1,000


def test_it_converges_into_a_corner():
    assert minimise(begun(Genome({"x": Real([0] * 5, [1, 2, 3, 4, 50])})), lambda x: x.sum(axis=1), 2_000) < 1e-9


@pytest.mark.parametrize("function", [sphere, lambda x: 0 * x[:, 0], lambda x: x[:, 0]])
@pytest.mark.parametrize("part", [Real(-1, 1, 4), Network([("w", (4,))])])
@pytest.mark.filterwarnings("error")
def test_numbers_stay_finite_long_after_it_has_converged_or_diverged(function, part):
    search = begun(Genome({"x": part}))
    for _ in range(2_000):
        assert np.isfinite(advance(search, function)).all()
    assert 0 < search._sigma < np.inf
    assert search._variances.max() <= 1.01 * CONDITION * search._variances.min()


def test_a_saved_search_goes_on_bit_for_bit():
    search = begun()
    for _ in range(30):
        advance(search)
    proposals, twin = search.propose(search.size), begun()
    twin.load(pickle.loads(pickle.dumps(search.save())))
    for one in (search, twin):
        genes = one.realise(proposals)
        one.tell(judged(proposals, genes, -sphere(genes["x"])))
    for _ in range(30):
        assert np.array_equal(advance(search), advance(twin))
    assert same(search.save(), twin.save())


def test_where_all_failed_nothing_is_learnt():
    search = begun()
    advance(search)
    mean, variances = search._mean.copy(), search._variances.copy()
    proposals = search.propose(search.size)
    search.tell(judged(proposals, search.realise(proposals), np.zeros(search.size), failed=range(search.size)))
    assert same(search._mean, mean) and same(search._variances, variances)


def test_wrong_settings_are_refused_in_its_own_name():
    with pytest.raises(MisuseError, match="SepCMAES: population must be at least 4"):
        SepCMAES(population=2)
    with pytest.raises(MisuseError, match="SepCMAES takes problems of 1 objective"):
        SepCMAES().begin(BOX, 3, 0)
