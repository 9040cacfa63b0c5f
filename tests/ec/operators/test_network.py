"""Operators of networks' parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Network
from lamarckian.ec.operators import Best, ChannelCrossover, LayerCrossover, NetworkGaussian
from lamarckian.errors import MisuseError
from tests.ec.operators.properties import about, check_crossover, check_mutation, evenly

SMALL = Network([("weight", (3, 2)), ("bias", (3,)), ("scale", ()), ("kernel", (2, 2, 2))])
SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=4)
NETWORKS = SHAPES.map(lambda shapes: Network([(str(index), shape) for index, shape in enumerate(shapes)]))


def children(operator, rows: int) -> np.ndarray:
    """Of a parent of zeros and a parent of ones."""
    shape = rows, SMALL.length
    return operator.cross(SMALL, np.zeros(shape, np.float32), np.ones(shape, np.float32), 7, np.arange(rows))


def steps(operator, row: np.ndarray, rows: int, part: Network = SMALL) -> np.ndarray:
    genes = np.tile(row.astype(np.float32), (rows, 1))
    operator.mutate(part, genes, 11, np.arange(rows))
    return genes - row


@given(NETWORKS, st.sampled_from([Best(), LayerCrossover(), ChannelCrossover()]), st.integers(0, 99))
def test_crossover_gives_valid_children(part, operator, seed):
    check_crossover(operator, part, seed)


@given(NETWORKS, st.builds(NetworkGaussian, st.floats(0.001, 10.0), st.booleans(), st.floats(0.0, 1.0)), st.integers(0, 99))
def test_mutation_gives_valid_mutants(part, operator, seed):
    check_mutation(operator, part, seed)


def test_best_is_the_first_parent():
    assert not children(Best(), 5).any()


@pytest.mark.parametrize(
    "operator, blocks",
    [
        (LayerCrossover(), [range(6), range(6, 9), range(9, 10), range(10, 18)]),
        (ChannelCrossover(), [(0, 1), (2, 3), (4, 5), (6,), (7,), (8,), (9,), range(10, 14), range(14, 18)]),
    ],
)
def test_blocks_come_whole_from_either_parent_and_independently(operator, blocks):
    genes = children(operator, 3000)
    assert all((genes[:, list(block)] == genes[:, [block[0]]]).all() for block in blocks)
    choices = genes[:, [block[0] for block in blocks]]
    assert about(choices, 0.5) and evenly(choices.sum(axis=0))
    first_three = (choices[:, :3] @ [1, 2, 4]).astype(int)
    assert evenly(np.bincount(first_three, minlength=8))


def test_gaussian_steps_have_the_deviation_that_was_asked_for():
    change = steps(NetworkGaussian(0.05), np.zeros(18), 1000)
    assert about(change, 0.0) and about(change**2, 0.05**2)
    assert about(change[1:] * change[:-1], 0.0) and about(change[:, 1:] * change[:, :-1], 0.0)


def test_gaussian_steps_touch_the_share_that_was_asked_for():
    change = steps(NetworkGaussian(0.05, gene_probability=0.2), np.zeros(18), 1000)
    assert about(change != 0.0, 0.2) and evenly((change != 0.0).sum(axis=0))
    assert about(change[change != 0.0] ** 2, 0.05**2)
    assert not steps(NetworkGaussian(gene_probability=0.0), np.zeros(18), 10).any()


def test_relative_steps_follow_the_root_mean_square_of_their_layer():
    # Layers of root mean squares 2, 10 and 0; the last goes by that of all six parameters, √((2 · 4 + 2 · 100) / 6).
    part = Network([("a", (2,)), ("b", (2, 1)), ("c", (2,))])
    row = np.array([2.0, -2.0, 0.0, np.sqrt(200.0), 0.0, 0.0], np.float32)
    change = steps(NetworkGaussian(0.1, relative=True), row, 4000, part)
    for layer, scale in enumerate([2.0, 10.0, np.sqrt(208 / 6)]):
        assert about(change[:, 2 * layer : 2 * layer + 2] ** 2, (0.1 * scale) ** 2)


def test_relative_steps_go_by_each_individual_and_by_1_for_a_network_of_zeros():
    genes = np.stack([np.zeros(18), np.full(18, 1.0), np.full(18, 100.0)]).astype(np.float32)
    before = genes.copy()
    NetworkGaussian(0.1, relative=True).mutate(SMALL, genes, 5, np.array([3, 3, 3]))
    change = genes - before
    np.testing.assert_allclose(change[0], change[1], atol=1e-6)
    np.testing.assert_allclose(change[2], 100 * change[1], rtol=1e-3, atol=1e-4)


def test_settings_out_of_range_are_refused():
    with pytest.raises(MisuseError, match="network_gaussian: deviation must be above 0, not 0"):
        NetworkGaussian(0.0)
    with pytest.raises(MisuseError, match=r"network_gaussian: gene_probability must be in \[0, 1\], not 2"):
        NetworkGaussian(gene_probability=2.0)
