"""Operators of orders and subsets, against all outcomes that there can be."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.ec.genome import Permutation, Subset
from lamarckian.ec.operators import Insertion, OrderCrossover, Replace, SubsetCrossover, Swap
from lamarckian.errors import MisuseError
from tests.ec.operators.properties import about, check_crossover, check_mutation, evenly

PERMUTATIONS = st.integers(2, 15).map(Permutation)
SUBSETS = st.integers(1, 12).flatmap(lambda size: st.integers(size, 3 * size).map(lambda items: Subset(items, size)))


def order_crossover(stays: list[int], follows: list[int], start: int, stop: int) -> tuple[int, ...]:
    """OX as it is told: keep a stretch, strike its items from the other parent, fill from behind the stretch."""
    items = len(stays)
    child = [stays[place] if start <= place < stop else -1 for place in range(items)]
    rest = [item for item in follows[stop:] + follows[:stop] if item not in stays[start:stop]]
    for place in [*range(stop, items), *range(start)]:
        child[place] = rest.pop(0)
    return tuple(child)


def outcomes(rows: np.ndarray) -> Counter:
    return Counter(map(tuple, rows.tolist()))


def mutants(operator, part, row: list[int], rows: int) -> np.ndarray:
    genes = np.tile(np.array(row), (rows, 1))
    operator.mutate(part, genes, 11, np.arange(rows))
    return genes


@given(PERMUTATIONS, st.integers(0, 99))
def test_order_crossover_gives_valid_children(part, seed):
    check_crossover(OrderCrossover(), part, seed)


@given(PERMUTATIONS, st.builds(Swap, st.integers(1, 5)) | st.just(Insertion()), st.integers(0, 99))
def test_mutation_gives_permutations(part, operator, seed):
    check_mutation(operator, part, seed)


@given(SUBSETS, st.floats(0.0, 1.0) | st.none(), st.integers(0, 99))
def test_operators_of_subsets_give_subsets(part, probability, seed):
    check_crossover(SubsetCrossover(), part, seed)
    check_mutation(Replace(probability), part, seed)


def test_order_crossover_by_hand():
    # 3 4 5 stay. From place 6 on the other parent goes 2 8 1 4 3 7 0 6 5; without 3, 4 and 5 that is 2 8 1 and, round the end, 7 0 6.
    assert order_crossover([0, 1, 2, 3, 4, 5, 6, 7, 8], [4, 3, 7, 0, 6, 5, 2, 8, 1], 3, 6) == (7, 0, 6, 3, 4, 5, 2, 8, 1)


def test_order_crossover_takes_every_stretch_of_either_parent_equally_often():
    a, b = [0, 1, 2, 3, 4], [3, 1, 4, 0, 2]
    expected = Counter(order_crossover(*pair, start, stop) for pair in ((a, b), (b, a)) for start, stop in combinations(range(6), 2))
    rows = 30 * 400
    children = OrderCrossover().cross(Permutation(5), np.tile(a, (rows, 1)), np.tile(b, (rows, 1)), 3, np.arange(rows))
    seen = outcomes(children)
    assert set(seen) == set(expected)
    assert evenly([seen[child] / times for child, times in expected.items() for _ in range(times)])


def test_swap_exchanges_every_pair_equally_often():
    seen = outcomes(mutants(Swap(), Permutation(5), [0, 1, 2, 3, 4], 6000))
    assert len(seen) == 10 and evenly(list(seen.values()))
    assert all(sum(place != item for place, item in enumerate(row)) == 2 for row in seen)


def test_two_swaps_move_up_to_four_items():
    moved = (mutants(Swap(2), Permutation(8), list(range(8)), 500) != np.arange(8)).sum(axis=1)
    assert set(moved) == {0, 3, 4}


def test_insertion_moves_every_item_to_every_other_place_equally_often():
    expected = Counter()
    for place in range(4):
        for goal in range(4):
            row = [0, 1, 2, 3]
            row.insert(goal, row.pop(place))
            expected[tuple(row)] += place != goal
    seen = outcomes(mutants(Insertion(), Permutation(4), [0, 1, 2, 3], 6000))
    expected = +expected
    assert set(seen) == set(expected)
    assert evenly([seen[row] / times for row, times in expected.items() for _ in range(times)])


def test_subset_crossover_keeps_what_is_shared_and_takes_all_fillings_equally_often():
    a, b = [0, 2, 3, 7], [1, 2, 5, 7]
    expected = {tuple(sorted([2, 7, *pair])) for pair in combinations([0, 1, 3, 5], 2)}
    children = SubsetCrossover().cross(Subset(9, 4), np.tile(a, (6000, 1)), np.tile(b, (6000, 1)), 3, np.arange(6000))
    seen = outcomes(children)
    assert set(seen) == expected and evenly(list(seen.values()))


def test_replace_takes_every_item_that_was_not_chosen_equally_often():
    row = [1, 4, 5]
    genes = mutants(Replace(1.0), Subset(9, 3), row, 4000)
    seen = outcomes(genes)
    assert set(seen) == set(combinations([0, 2, 3, 6, 7, 8], 3)) and evenly(list(seen.values()))


def test_replace_touches_items_with_the_probability_that_was_asked_for():
    row = [1, 4, 5, 9]
    kept = np.array([np.isin(row, genes) for genes in mutants(Replace(0.3), Subset(40, 4), row, 3000)])
    assert about(kept, 0.7) and evenly((~kept).sum(axis=0))
    assert about([4 - np.isin(row, genes).sum() for genes in mutants(Replace(), Subset(40, 4), row, 3000)], 1.0)


def test_replace_ends_where_all_items_are_chosen():
    assert (mutants(Replace(1.0), Subset(4, 4), [0, 1, 2, 3], 20) == [0, 1, 2, 3]).all()
    seen = outcomes(mutants(Replace(1.0), Subset(5, 4), [0, 1, 3, 4], 4000))
    assert set(seen) == set(combinations(range(5), 4)) - {(0, 1, 3, 4)} and evenly(list(seen.values()))


def test_settings_out_of_range_are_refused():
    with pytest.raises(MisuseError, match="swap: count must be at least 1, not 0"):
        Swap(0)
    with pytest.raises(MisuseError, match=r"replace: gene_probability must be in \[0, 1\], not 2"):
        Replace(2.0)
