"""Crossover and mutation of orders and of subsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Permutation, Subset
from lamarckian.ec.operators.interface import check_share
from lamarckian.ec.operators.real import log_of_rest, share, skip
from lamarckian.ec.stream import STATE_WORDS, below, open_stream, uniform
from lamarckian.errors import MisuseError


@dataclass(frozen=True)
class OrderCrossover:
    """Order crossover, OX (Davis 1985), one child of the two that it would give.

    A random stretch stays where it is in one parent; the other items follow behind it, round the end, in the order of the other parent.
    """

    name: Literal["order"] = "order"
    parts = (Permutation,)

    def cross(self, part: Permutation, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _order(a, b, child, seed, ids)
        return child


@dataclass(frozen=True)
class Swap:
    """Exchanges two items, `count` times."""

    count: int = 1
    name: Literal["swap"] = "swap"
    parts = (Permutation,)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise MisuseError(f"swap: count must be at least 1, not {self.count}")

    def mutate(self, part: Permutation, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _swap(genes, self.count, seed, ids)


@dataclass(frozen=True)
class Insertion:
    """Moves an item to another place; those between move up."""

    name: Literal["insertion"] = "insertion"
    parts = (Permutation,)

    def mutate(self, part: Permutation, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _insertion(genes, seed, ids)


@dataclass(frozen=True)
class SubsetCrossover:
    """Keeps what both parents have, and fills up with a random choice of what one of them has."""

    name: Literal["subset"] = "subset"
    parts = (Subset,)

    def cross(self, part: Subset, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _subset(a, b, child, seed, ids)
        return child


@dataclass(frozen=True)
class Replace:
    """Exchanges chosen items for others that were not chosen, as long as there are any.

    gene_probability: of an item to be replaced; None: one over their number.
    """

    gene_probability: float | None = None
    name: Literal["replace"] = "replace"
    parts = (Subset,)

    def __post_init__(self) -> None:
        check_share("replace: gene_probability", self.gene_probability)

    def mutate(self, part: Subset, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        _replace(genes, part.items, share(self.gene_probability, part.length), seed, ids)


@njit
def _two(state: np.ndarray, bound: int) -> tuple[int, int]:
    """Two different integers in [0, bound)."""
    first, second = below(state, bound), below(state, bound - 1)
    return first, second + 1 if second >= first else second


@njit
def _order(a: np.ndarray, b: np.ndarray, child: np.ndarray, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    items = a.shape[1]
    placed_in = np.full(items, -1)  # the last row in which an item was placed
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        stays, follows = (b[row], a[row]) if uniform(state) < 0.5 else (a[row], b[row])
        first, second = _two(state, items + 1)
        start, stop = min(first, second), max(first, second)
        for place in range(start, stop):
            child[row, place] = stays[place]
            placed_in[stays[place]] = row
        place = stop % items
        for offset in range(items):
            item = follows[(stop + offset) % items]
            if placed_in[item] != row:
                child[row, place] = item
                place = (place + 1) % items


@njit
def _swap(genes: np.ndarray, count: int, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        for _ in range(count):
            first, second = _two(state, genes.shape[1])
            genes[row, first], genes[row, second] = genes[row, second], genes[row, first]


@njit
def _insertion(genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        place, goal = _two(state, genes.shape[1])
        item = genes[row, place]
        towards = 1 if goal > place else -1
        while place != goal:
            genes[row, place] = genes[row, place + towards]
            place += towards
        genes[row, goal] = item


@njit
def _subset(a: np.ndarray, b: np.ndarray, child: np.ndarray, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    size = a.shape[1]
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        needed = size - _common(a[row], b[row])
        left = 2 * needed  # items of one parent alone that are still to come, of which so many are needed
        i = j = filled = 0
        while filled < size:
            shared = i < size and j < size and a[row, i] == b[row, j]
            from_a = i < size and (j == size or a[row, i] <= b[row, j])
            item = a[row, i] if from_a else b[row, j]
            i += from_a
            j += shared or not from_a
            if not shared:
                taken = below(state, left) < needed
                left -= 1
                needed -= taken
            if shared or taken:
                child[row, filled] = item
                filled += 1


@njit
def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many items two sorted subsets share."""
    i = j = common = 0
    while i < len(a) and j < len(b):
        x, y = a[i], b[j]
        common += x == y
        i += x <= y
        j += y <= x
    return common


@njit
def _replace(genes: np.ndarray, items: int, probability: float, seed: int, ids: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    rest = log_of_rest(probability)
    size = genes.shape[1]
    used = np.empty(min(2 * size, items), np.int64)  # the items before and those that come in, sorted
    gone_in = np.full(items, -1)  # the last row in which an item was replaced
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        for place in range(size):
            used[place] = genes[row, place]
        count = size
        start = below(state, size)  # so that every gene has the same chance, even where the others run out
        gene = skip(state, rest, size)
        while gene < size and count < items:
            gone_in[genes[row, (start + gene) % size]] = row
            item, place = below(state, items - count), 0
            while place < count and used[place] <= item:
                item, place = item + 1, place + 1
            for behind in range(count, place, -1):
                used[behind] = used[behind - 1]
            used[place] = item
            count += 1
            gene += 1 + skip(state, rest, size)
        filled = 0
        for place in range(count):
            if gone_in[used[place]] != row:
                genes[row, filled] = used[place]
                filled += 1
