import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.transport.layouts import ROOT, flat, parents, pipeline, pipeline_degree, tree


def depths(layout: list[int]) -> list[int]:
    """Links from the root to each; fails where there is a circle."""
    found: dict[int, int] = {ROOT: 0}

    def depth(place: int, seen: int = 0) -> int:
        assert seen <= len(layout), "a circle"
        if place not in found:
            found[place] = 1 + depth(layout[place], seen + 1)
        return found[place]

    return [depth(place) for place in range(len(layout))]


def test_shapes_by_hand():
    assert flat(3) == [ROOT] * 3
    assert tree(0) == [] and tree(1) == [ROOT] and tree(3) == [ROOT, 0, 0]
    assert tree(9) == [ROOT, ROOT, ROOT, 0, 1, 2, 0, 1, 2]
    assert tree(16) == [ROOT] * 4 + [0, 1, 2, 3] * 3
    assert pipeline(4, 1) == [ROOT, 0, 1, 2]
    assert pipeline(8, 2) == [ROOT, ROOT, 0, 0, 1, 1, 2, 2]


@given(st.integers(0, 3000))
def test_a_tree_has_three_layers_and_degrees_of_about_the_root_of_n(n):
    layout = tree(n)
    degrees = Counter(layout)
    assert len(layout) == n and max(depths(layout), default=0) <= 2
    assert all(degree <= math.isqrt(n) + 2 for degree in degrees.values())
    below = [degrees[head] for head in range(math.isqrt(n))]
    assert max(below, default=0) - min(below, default=0) <= 1


@given(st.integers(0, 500), st.integers(1, 3))
def test_a_pipeline_is_complete(n, degree):
    layout = pipeline(n, degree)
    assert all(count <= degree for count in Counter(layout).values())
    layer = Counter(depths(layout))
    assert all(layer[depth] == degree**depth for depth in range(1, max(layer, default=0))), "only the last layer may lack some"
    assert depths(layout) == sorted(depths(layout))


@pytest.mark.parametrize(("n", "chunks", "degree"), [(1, 10, 1), (4, 64, 1), (64, 64, 1), (64, 10, 2), (1000, 64, 2), (2, 1, 1)])
def test_a_long_pipeline_forks(n, chunks, degree):
    assert pipeline_degree(n, chunks) == degree


@given(st.sampled_from(["flat", "tree", "pipeline"]), st.integers(0, 80), st.integers(0, 80), st.sampled_from([1, 64]))
def test_everyone_has_a_parent_and_the_slow_have_no_children_but_slow_ones(layout, good, slow, chunks):
    names = [f"good-{index}" for index in range(good)], [f"slow-{index}" for index in range(slow)]
    found = parents(layout, *names, chunks)
    assert set(found) == {*names[0], *names[1]}
    order = [*names[0], *names[1]]
    depths([ROOT if found[name] is None else order.index(found[name]) for name in order])
    burdened = {parent for parent in found.values() if parent is not None and parent.startswith("slow")}
    if layout == "tree":
        assert not burdened or good < math.isqrt(good + slow)
    else:
        assert not burdened
