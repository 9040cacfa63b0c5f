from math import erf, erfc, exp, pi, sqrt

import numpy as np

from lamarckian.ec.normals import _WIDTH, normals


def test_the_layers_have_one_area_and_meet_at_the_top():
    density = np.exp(-0.5 * _WIDTH**2)
    lowest = _WIDTH[1] * density[1] + sqrt(pi / 2) * erfc(_WIDTH[1] / sqrt(2))  # the strip below the tail, and the tail
    np.testing.assert_allclose(_WIDTH[0] * density[1], lowest, rtol=1e-14)
    np.testing.assert_allclose(_WIDTH[1:-1] * np.diff(density[1:]), lowest, rtol=1e-7)
    assert _WIDTH[-1] == 0.0 and len(_WIDTH) == 257


def test_numbers_are_distributed_normally_to_the_tail():
    count, edges = 2_000_000, np.linspace(-4.5, 4.5, 181)
    z = normals(3, np.arange(200), count // 200).ravel()
    cumulative = np.array([0.5 * (1 + erf(edge / sqrt(2))) for edge in edges])
    expected = count * np.diff(cumulative)
    chi_square = ((np.histogram(z, edges)[0] - expected) ** 2 / expected).sum()
    assert abs(chi_square - 180) < 4 * sqrt(2 * 180)
    beyond = z[np.abs(z) > 3.7]
    share = erfc(3.7 / sqrt(2))
    assert abs(len(beyond) - count * share) < 4 * sqrt(count * share)
    mean_beyond = sqrt(2 / pi) * exp(-0.5 * 3.7**2) / share
    assert abs(np.abs(beyond).mean() - mean_beyond) < 4 * 0.25 / sqrt(len(beyond))


def test_a_row_depends_on_its_id_alone():
    ids = np.array([5, 2, 9])
    together = normals(7, ids, 33)
    assert np.array_equal(together, np.concatenate([normals(7, ids[[row]], 33) for row in range(3)]))
    assert not np.array_equal(together, normals(8, ids, 33))


def test_neighbouring_rows_are_uncorrelated():
    z = normals(0, np.arange(50), 2_000)
    correlation = np.corrcoef(z)[np.triu_indices(50, 1)]
    assert np.abs(correlation).max() < 5 / sqrt(2_000)
