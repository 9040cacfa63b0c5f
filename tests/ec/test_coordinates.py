import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.coordinates import MARGIN, Coordinates

UNIT = Coordinates(np.zeros(1), np.ones(1))


def gene(value, box=UNIT):
    return box.genes(np.array([value]), np.ones(1), np.zeros((1, 1)))[0, 0]


def test_the_middle_of_a_range_is_plain_proportion():
    box = Coordinates(np.array([-10.0]), np.array([30.0]))
    for share in (MARGIN, 0.3, 0.5, 1 - MARGIN):
        np.testing.assert_allclose(gene(share, box), -10 + 40 * share, atol=1e-13)


def test_a_bound_is_the_vertex_of_a_parabola_and_beyond_it_all_is_mirrored():
    assert gene(-MARGIN) == 0.0 and gene(1 + MARGIN) == 1.0
    for away in (0.01, 0.05, 0.1, 0.4):
        np.testing.assert_allclose(gene(-MARGIN - away), gene(-MARGIN + away), atol=1e-14)
        np.testing.assert_allclose(gene(1 + MARGIN - away), 1 - gene(-MARGIN + away), atol=1e-14)
    np.testing.assert_allclose(gene(-MARGIN + 0.02), 0.02**2 / (4 * MARGIN))
    np.testing.assert_allclose(gene(0.37 + 6 * (1 + 2 * MARGIN)), 0.37)


@given(st.floats(-1e9, 1e9), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_genes_never_leave_their_bounds(value, low, width):
    box = Coordinates(np.array([low]), np.array([low + width]))
    assert low <= gene(value, box) <= low + width


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_every_gene_has_coordinates(shares):
    box = Coordinates(np.array([-2.0, 5.0, -np.inf]), np.array([3.0, 5.0, np.inf]))
    genes = np.array([-2 + 5 * shares[0], 5.0, 1e3 * shares[2] - 500])
    back = box.genes(box.of(genes), np.ones(3), np.zeros((1, 3)))[0]
    np.testing.assert_allclose(back, genes, rtol=1e-12, atol=1e-12)
