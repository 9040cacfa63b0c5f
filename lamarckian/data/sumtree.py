"""A sum tree: priorities as leaves, from which entries are drawn in proportion to them.

Schaul et al. 2016, "Prioritized Experience Replay", https://arxiv.org/abs/1511.05952, §3.3 and appendix B.2.1.
"""

from __future__ import annotations

import numpy as np
from numba import njit


class SumTree:
    """Priorities of `size` entries, all 0 at first; an entry of priority 0 is never drawn.

    Every inner node is the exact sum of its two children, computed anew whenever one changes: rounding errors do not grow with time, and a
    tree that was saved and loaded is the same bit for bit.
    """

    def __init__(self, size: int) -> None:
        self._nodes = np.zeros(2 * size)  # node i has the children 2i and 2i + 1, and 1 is the root; leaves begin at `size`
        self.priorities = self._nodes[size:]

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def assign(self, start: int, priorities: np.ndarray) -> None:
        """Sets the priorities of consecutive entries from `start` on."""
        self.priorities[start : start + len(priorities)] = priorities
        _sum_range(self._nodes, len(self.priorities) + start, len(self.priorities) + start + len(priorities) - 1)

    def update(self, entries: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of `entries`, int `[K]`; of one that comes twice the last counts."""
        self.priorities[entries] = priorities
        _sum_above(self._nodes, entries)

    def draw(self, uniform: np.ndarray) -> np.ndarray:
        """An entry for each of K numbers in [0, 1): the k-th from the k-th of K equal parts of the total, int64 `[K]`.

        Of several rows of K numbers, `[…, K]`, each is drawn so.
        """
        entries = np.empty(uniform.shape, np.int64)
        _draw(self._nodes, uniform.reshape(-1), uniform.shape[-1], entries.reshape(-1))
        return entries


@njit(cache=True, nogil=True)
def _sum_range(nodes, low, high):  # type: ignore[no-untyped-def]
    """Sums up what is above the nodes from `low` to `high`."""
    while low > 1:
        low, high = max(low // 2, 1), high // 2
        for node in range(high, low - 1, -1):  # near the root a range may hold a node and its child: the child comes first
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]


@njit(cache=True, nogil=True)
def _sum_above(nodes, entries):  # type: ignore[no-untyped-def]
    for entry in entries:
        node = (nodes.size // 2 + entry) // 2
        while node:
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
            node //= 2


@njit(cache=True, nogil=True)
def _draw(nodes, uniform, count, entries):  # type: ignore[no-untyped-def]
    leaves = nodes.size // 2
    for k in range(uniform.size):
        rest = (k % count + uniform[k]) / count * nodes[1]
        node = 1
        while node < leaves:
            node *= 2
            if rest >= nodes[node] and nodes[node + 1] > 0.0:  # rounding never leads to where there is nothing
                rest -= nodes[node]
                node += 1
        entries[k] = node - leaves
