"""Indicators against numbers worked out by hand."""

import numpy as np
import pytest

from lamarckian.ec import indicators
from lamarckian.ec.indicators import igd, igd_plus, spread
from lamarckian.errors import MisuseError


def test_igd_by_hand():
    # From [0, 2] the nearest is [0, 3], 1 away; from [2, 0] it is [5, 4], 5 away; a better point is away all the same.
    assert igd([[0, 3], [5, 4]], [[0, 2], [2, 0]]) == (1 + np.hypot(2, 3)) / 2
    assert igd([[0, 3], [5, 4], [2, 0.5]], [[0, 2], [2, 0]]) == 0.75
    assert igd([[0, 0]], [[3, 4]]) == 5.0


def test_igd_plus_counts_only_what_is_worse():
    assert igd_plus([[0, 0]], [[3, 4]]) == 0.0
    assert igd_plus([[6, 1]], [[3, 4], [2, 1]]) == (3 + 4) / 2
    assert igd_plus([[6, 1], [4, 5]], [[3, 4]]) == np.sqrt(2)


def test_a_set_is_at_no_distance_from_itself():
    front = np.random.default_rng(0).random((20, 3))
    assert igd(front[::-1], front) == igd_plus(front[::-1], front) == 0.0


def test_without_a_finite_point_the_distance_is_infinite():
    assert igd([[np.nan, 1]], [[0, 0]]) == igd_plus(np.empty((0, 2)), [[0, 0]]) == np.inf


def test_spread_of_two_objectives_by_hand():
    front = [[0, 12], [12, 0]]
    # Equidistant and from end to end; then gaps of 3, 9 of the diagonal: |3 − 6| + |9 − 6| over 12.
    assert spread([[6, 6], [0, 12], [12, 0]], front) == 0.0
    assert spread([[3, 9], [0, 12], [12, 0]], front) == pytest.approx(0.5, rel=1e-12)
    # Ends at 3 and 2 from those of the front, gaps of 1 and 6: (5 + 2.5 + 2.5) / (5 + 7).
    assert spread([[3, 9], [4, 8], [10, 2]], front) == pytest.approx(10 / 12, rel=1e-12)
    assert spread([[3, 9]], front) == 1.0
    assert spread([[3, 9], [np.nan, 0]], front) == 1.0


def test_generalised_spread_by_hand():
    front = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9], [3, 3, 3]])
    assert spread(front[:3], front) == pytest.approx(0.0, abs=1e-15)
    # Nearest others: 1, 1, 3 (mean 5/3); the ends are 0, 9√2 and 9√2 away from the nearest point, [9, 0, 0].
    points = [[9, 0, 0], [9, 0, -1], [9, 0, 3]]
    ends = np.sqrt(2) * 9 + np.sqrt(81 + 36)
    assert spread(points, front) == pytest.approx((ends + 8 / 3) / (ends + 5), rel=1e-12)
    assert spread([[9, 0, 0]], front) == 1.0


def test_points_that_are_all_at_the_only_end_are_evenly_spread():
    assert spread([[1, 1], [1, 1]], [[1, 1]]) == 0.0


@pytest.mark.parametrize("indicator", [igd, igd_plus, spread])
def test_misuse_is_refused(indicator):
    with pytest.raises(MisuseError, match=r"\(1, 2\) and \(1, 3\)"):
        indicator([[1, 2]], [[1, 2, 3]])
    with pytest.raises(MisuseError, match="the front not empty"):
        indicator([[1, 2]], np.empty((0, 2)))
    with pytest.raises(MisuseError, match="front must be finite"):
        indicator([[1, 2]], [[np.nan, 2]])


def test_the_spread_of_nothing_is_refused():
    with pytest.raises(MisuseError, match="at least one point"):
        spread([[np.nan, 1]], [[0, 0]])


def test_hypervolume_is_among_the_indicators():
    assert indicators.hypervolume([[0, 0]], [1, 2]) == 2.0
