"""Entries are drawn in proportion to their priorities, and the tree's sums are those of its leaves whatever is done to it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.data.sumtree import SumTree


def sums_hold(tree: SumTree) -> None:
    nodes = tree._nodes
    for node in range(1, len(tree.priorities)):
        assert nodes[node] == nodes[2 * node] + nodes[2 * node + 1]


def test_draws_by_hand():
    tree = SumTree(3)
    tree.assign(0, np.array([1.0, 0.0, 3.0]))
    assert tree.total == 4.0
    # Four equal parts of one unit each: entry 0 has the one unit, entry 2 the three others, in whichever order.
    assert sorted(tree.draw(np.full(4, 0.5)).tolist()) == [0, 2, 2, 2]


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_what_is_changed_is_summed_up(size, seed):
    random = np.random.default_rng(seed)
    tree, expected = SumTree(size), np.zeros(size)
    for _ in range(4):
        start = int(random.integers(size))
        part = random.random(int(random.integers(1, size - start + 1)))
        tree.assign(start, part)
        expected[start : start + len(part)] = part
        entries = np.unique(random.integers(size, size=3))
        tree.update(entries, part[0] * np.arange(len(entries)))
        expected[entries] = part[0] * np.arange(len(entries))
    assert np.array_equal(tree.priorities, expected)
    sums_hold(tree)
    if tree.total:
        drawn = tree.draw(random.random(200))
        assert (tree.priorities[drawn] > 0).all()
    twin = SumTree(size)
    twin.assign(0, expected)
    assert np.array_equal(twin._nodes[1:], tree._nodes[1:])


def test_frequencies_are_shares():
    tree, priorities = SumTree(37), np.random.default_rng(0).random(37) ** 3
    tree.assign(0, priorities)
    counts = np.bincount(tree.draw(np.random.default_rng(1).random(100_000)), minlength=37)
    np.testing.assert_allclose(counts / 100_000, priorities / priorities.sum(), atol=1e-4)  # strata leave no more chance than that


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_rounding_never_leads_to_an_entry_without_priority(uniform):
    for size in range(2, 30):
        for entry in range(size):
            tree = SumTree(size)
            tree.assign(entry, np.array([0.1 + 0.2]))
            assert (tree.draw(np.full(7, uniform)) == entry).all()


def test_an_entry_that_is_updated_twice_keeps_the_last():
    tree = SumTree(5)
    tree.update(np.array([3, 3]), np.array([1.0, 2.0]))
    assert tree.priorities[3] == tree.total == 2.0
