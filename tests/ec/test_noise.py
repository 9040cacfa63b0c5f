import numpy as np
import pytest

from lamarckian.ec.noise import Memory, perturb, table, table_size, weighted_sum


def test_the_table_is_the_same_whenever_it_is_made_and_its_beginning_whatever_its_size():
    small = table(1000).copy()  # the table itself is gone after this line
    again = table(1000)
    assert np.array_equal(again, small) and again is not small
    assert np.array_equal(table(5000)[:1000], small)
    assert table(1000) is again
    assert not again.flags.writeable


def test_the_table_is_standard_normal():
    numbers = table(1 << 20).astype(np.float64)
    assert abs(numbers.mean()) < 4 / 1024  # standard error 1 / sqrt(N)
    assert abs(numbers.var() - 1) < 4 * np.sqrt(2) / 1024


@pytest.mark.parametrize(
    ("genes", "size"),
    [(1, 1 << 20), (16_384, 1 << 20), (100_000, 6_400_000), (1_000_000, 25_000_000), (20_000_000, 40_000_000)],
)
def test_a_table_has_64_numbers_a_gene_within_limits(genes, size):
    assert table_size(genes) == size


@pytest.mark.parametrize("rows", [1, 3, 4, 10])
def test_the_weighted_sum_is_that_of_the_rows_added_one_by_one(rows):
    generator = np.random.default_rng(rows)
    numbers, length = table(100_000), 20_000  # more than a block
    places = generator.integers(0, 80_000, rows)
    weights = generator.standard_normal(rows)
    expected = sum(weight * numbers[place : place + length].astype(np.float64) for weight, place in zip(weights, places, strict=True))
    total = np.full(length, np.nan, np.float32)
    weighted_sum(numbers, places, weights, total)
    assert np.allclose(total, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_perturbed_rows_are_the_centre_and_scaled_noise_within_bounds(dtype):
    generator = np.random.default_rng(0)
    numbers, length = table(100_000), 10_000
    places, signs = np.array([5, 5, 70_000]), np.array([1, -1, 1], dtype)
    centre, spread = (generator.random(length).astype(dtype) for _ in range(2))
    low, high = np.full(length, -0.5, dtype), np.full(length, 1.5, dtype)
    out = np.empty((3, length), dtype)
    perturb(numbers, places, signs, centre, spread, low, high, out)
    windows = np.stack([numbers[place : place + length] for place in places])
    assert np.array_equal(out, np.clip(centre + signs[:, None] * spread * windows, low, high))
    assert (out == 1.5).any() and (out == -0.5).any()


def test_memory_is_used_again_only_when_nobody_refers_to_it():
    memory = Memory()
    first = memory.take((3, 4), np.float32)
    place = first.ctypes.data
    view = first[1:, 2]
    del first
    second = memory.take((3, 4), np.float32)
    assert not np.shares_memory(second, view)
    del view
    third = memory.take((2, 3), np.float64)  # as many bytes
    assert third.ctypes.data == place and third.shape == (2, 3)
    del third
    assert memory.take((5,), np.float64).shape == (5,)
