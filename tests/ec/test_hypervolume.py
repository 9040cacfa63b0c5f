"""Hypervolumes against known values, and against inclusion and exclusion."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.ec.hypervolume import hypervolume
from lamarckian.errors import MisuseError


def by_inclusion_and_exclusion(points: np.ndarray, reference: np.ndarray) -> float:
    total = 0.0
    for count in range(1, len(points) + 1):
        for subset in itertools.combinations(points, count):
            total -= (-1) ** count * np.prod(np.maximum(reference - np.max(subset, axis=0), 0))
    return total


def needs_extra(objectives: int) -> None:
    if objectives > 4:
        pytest.importorskip("moocore")


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
def test_a_point_dominates_a_box(objectives):
    needs_extra(objectives)
    assert hypervolume(np.zeros((1, objectives)), np.full(objectives, 2.0)) == 2.0**objectives


@pytest.mark.parametrize("objectives", [2, 3, 4, 5])
def test_boxes_along_the_axes_share_a_corner(objectives):
    # Boxes of 3 × 1 × ... × 1, one along each axis, share the unit cube.
    needs_extra(objectives)
    assert hypervolume(2 - 2 * np.eye(objectives), np.full(objectives, 3.0)) == pytest.approx(2 * objectives + 1, abs=1e-12)


def test_two_objectives_by_hand():
    assert hypervolume([[1, 3], [2, 2], [3, 1]], [4, 4]) == 6.0


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("values", [3, 6, 1000])
def test_it_is_inclusion_and_exclusion(objectives, values):
    needs_extra(objectives)
    random = np.random.default_rng(values)
    for size in range(1, 10):
        points = random.integers(0, values, (size, objectives)) / values
        reference = random.uniform(0.7, 1.1, objectives)
        expected = by_inclusion_and_exclusion(points, reference)
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_large_sets_agree_with_the_volume_swept_point_by_point(objectives):
    # The hypervolume is the integral over the last objective of the hypervolumes of the others.
    random = np.random.default_rng(0)
    points = np.abs(random.normal(size=(200, objectives)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points, reference = points[np.argsort(points[:, -1])], np.full(objectives, 1.1)
    heights = np.diff(np.append(points[:, -1], 1.1))
    slices = [hypervolume(points[: i + 1, :-1], reference[:-1]) for i in range(len(points))]
    assert hypervolume(points, reference) == pytest.approx(np.dot(slices, heights), rel=1e-12)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_points_beyond_the_reference_and_points_that_are_not_finite_count_nothing(objectives):
    inside, reference = np.full(objectives, 0.5), np.ones(objectives)
    others = np.repeat(inside[None], 4, axis=0)
    others[:, -1] = [1.0, 2.0, np.nan, -np.inf]
    assert hypervolume(np.vstack([others, inside]), reference) == 0.5**objectives
    assert hypervolume(others, reference) == 0.0
    assert hypervolume(np.empty((0, objectives)), reference) == 0.0


@given(
    st.integers(1, 4).flatmap(
        lambda m: hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(m)), elements=st.integers(0, 4).map(float))
    ),
    st.randoms(use_true_random=False),
)
def test_order_copies_and_dominated_points_do_not_matter(points, random):
    reference = np.full(points.shape[1], 4.5)
    order = random.sample(range(len(points)), len(points))
    more = np.vstack([points[order], points[:3], points[:2] + 0.25])
    assert hypervolume(more, reference) == pytest.approx(hypervolume(points, reference), rel=1e-12)


def test_misuse_is_refused():
    with pytest.raises(MisuseError, match=r"\(3,\) and \(3,\)"):
        hypervolume([1, 2, 3], [4, 4, 4])
    with pytest.raises(MisuseError, match=r"\(1, 3\) and \(2,\)"):
        hypervolume([[1, 2, 3]], [4, 4])
    with pytest.raises(MisuseError, match="must be finite"):
        hypervolume([[1, 2]], [4, np.inf])


def test_without_moocore_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "moocore", None)
    with pytest.raises(MisuseError, match=r"pip install 'lamarckian\[ec\]'"):
        hypervolume(np.zeros((1, 5)), np.ones(5))
