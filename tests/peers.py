"""Learners that learn together in threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor


class Companion:
    """One of them: a `lamarckian.learner.together.Companions`. Sums are in the order of ranks."""

    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self.calls = 0
        self._table, self._barrier = table, barrier

    def add(self, numbers: Tensor) -> None:
        given = self._gather(numbers.clone())
        assert len({(x.shape, x.dtype) for x in given}) == 1
        numbers.copy_(sum(given[1:], given[0]))

    def gather(self, data: bytes) -> list[bytes]:
        return self._gather(data)

    def spread(self, numbers: Tensor) -> None:
        given = self._gather(numbers.clone())
        assert len({(x.shape, x.dtype) for x in given}) == 1
        numbers.copy_(given[0])

    def take_seconds(self) -> float:
        return 0.5

    def _gather(self, given: Any) -> list[Any]:
        self.calls += 1
        self._table[self.rank] = given
        self._barrier.wait()
        found = list(self._table)
        self._barrier.wait()
        return found


def together(size: int, work: Callable[[Companion], Any]) -> list[Any]:
    """What `work` returns, or raises, at each of them, by rank; where only some raise, the others break off."""
    barrier, table, found = threading.Barrier(size, timeout=30.0), [None] * size, [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(Companion(rank, size, table, barrier))
        except BaseException as error:
            found[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
