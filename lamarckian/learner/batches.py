"""Assembles fragments into batches, at once or ahead of the learner in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lamarckian.data.fragment import Layout
from lamarckian.data.pool import Filled, MatchResult, PoolStatistics, Source

POLL_S = 0.005
"""How often a thread that holds slots looks whether the learner is done."""


@dataclass(eq=False)
class Batch:
    """Fragments side by side along the batch axis, or a gradient.

    arrays: as `Layout` says, for all columns. results, seconds: what the fragments' actors counted.
    samples: steps to learn from. metrics: of the gradient. filled: `[T, B]`, the steps that are there; None for all.
    """

    arrays: Mapping[str, np.ndarray]
    tensors: Mapping[str, torch.Tensor]
    results: list[MatchResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    filled: np.ndarray | None = None

    @property
    def rewards(self) -> np.ndarray:
        """Of the steps that it has, or its gradient comes from, `[steps, R]`."""
        reward = self.arrays["reward"]
        return reward.reshape(-1, reward.shape[-1]) if self.filled is None else reward[self.filled]

    @property
    def steps(self) -> int:
        """How many steps it has, or its gradient comes from."""
        return len(self.rewards)

    def fill(self, index: int, layout: Layout, filled: Filled) -> None:
        """Copies a fragment of this layout to the `index`-th place."""
        place = slice(index * layout.columns, (index + 1) * layout.columns)
        for name, array in filled.views.items():
            if layout.fields[name].rows:
                self.arrays[name][:, place] = array
            else:
                self.arrays[name][place] = array
        self.count(filled)

    def count(self, filled: Filled) -> None:
        """Takes in what travels beside a fragment."""
        self.results.extend(filled.meta.results)
        self.samples += filled.meta.samples
        self.metrics.update(filled.meta.metrics)
        for name, value in filled.meta.statistics.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def clear(self) -> None:
        self.results, self.seconds, self.samples, self.metrics = [], {}, 0, {}


def empty_batch(layout: Layout, fragments: int) -> Batch:
    """A batch for that many fragments, in memory that is used again and again."""
    arrays = Layout(layout.steps, layout.columns * fragments, layout.fields).empty()
    return Batch(arrays, _tensors(arrays))


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class Assembler:
    """Serial mode: assembles a batch when it is asked for one, from what `collect` makes its actor produce."""

    def __init__(self, source: Source, layout: Layout, fragments: int, collect: Callable[[], None]) -> None:
        self._source = source
        self._layout = layout
        self._fragments = fragments
        self._batch = empty_batch(layout, fragments)
        self._collect = collect

    def get(self) -> Batch:
        """The next batch; the one before it is overwritten."""
        self._batch.clear()
        for index in range(self._fragments):
            while (filled := self._source.get(0.0)) is None:
                self._collect()
            self._batch.fill(index, self._layout, filled)
            self._source.release(filled.slot)
        return self._batch


class Arrivals:
    """Parallel mode, where a fragment makes a batch that is learned from at once, as a gradient is: nothing is copied or read ahead.

    A slot goes back when what was learned from it is published. So an actor that waits for its slot goes on with a version
    that its own gradient is in. There is one batch at a time. All but `forget` are called from one thread.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._slot = -1  # of the batch that the learner has
        self._dead: deque[str] = deque()

    def get(self, timeout_s: float) -> Batch | None:
        """The next batch; None when none comes within `timeout_s`. Give it back with `recycle`."""
        while self._dead:
            self._source.forget(self._dead.popleft())
        filled = self._source.get(timeout_s)
        if filled is None:
            return None
        batch = Batch(filled.views, _tensors(filled.views))
        batch.count(filled)
        self._slot = filled.slot
        return batch

    def recycle(self, batch: Batch) -> None:
        """The learner is done with `batch`, and has published what it learned; its arrays are no longer its own."""
        self._source.release(self._slot)

    def forget(self, actor: str) -> None:
        """Takes back the slots of an actor that died."""
        self._dead.append(actor)

    def statistics(self) -> PoolStatistics:
        """The pool's counts."""
        return self._source.statistics()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Nothing to do: the source is closed by whoever made it."""


class Prefetcher:
    """Parallel mode: assembles the next batch while the learner works on this one.

    Slots of the next batch go back to the actors when the learner is done with this one: given back sooner, they would
    fill with samples that only grow old. While the learner waits, each goes back at once.

    The thread owns the source from here on.
    """

    def __init__(self, source: Any, layout: Layout, fragments: int) -> None:
        self._source = source
        self._learning = False
        self._held: list[int] = []
        self._layout = layout
        self._fragments = fragments
        self._free: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        for _ in range(2):
            self._free.put(empty_batch(layout, fragments))
        self._full: queue.SimpleQueue[Batch | BaseException] = queue.SimpleQueue()
        self._dead: deque[str] = deque()
        self._statistics = source.statistics()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> Batch | None:
        """The next batch; None when it is not complete within `timeout_s`. Give it back with `recycle`."""
        try:
            batch = self._full.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(batch, BaseException):
            raise batch
        self._learning = True
        return batch

    def recycle(self, batch: Batch) -> None:
        """The learner is done with `batch`, and has published what it learned."""
        self._learning = False
        self._free.put(batch)

    def forget(self, actor: str) -> None:
        """Takes back the slots of an actor that died."""
        self._dead.append(actor)

    def statistics(self) -> PoolStatistics:
        """The pool's counts, as of the last whole batch."""
        return self._statistics

    def close(self) -> None:
        """Ends the thread; the source may be closed after that."""
        self._stopped = True
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        try:
            while not self._stopped:
                batch = self._next_free()
                self._bury()
                if batch is not None:
                    self._give_back()  # a batch that comes back: by now the learner has, or takes, what the held slots were for
                    batch.clear()
                    if self._assemble(batch):
                        self._full.put(batch)
        except BaseException as error:
            self._full.put(error)

    def _next_free(self) -> Batch | None:
        try:
            return self._free.get(timeout=0.1)
        except queue.Empty:
            return None

    def _assemble(self, batch: Batch) -> bool:
        for index in range(self._fragments):
            while (filled := self._source.get(POLL_S if self._held else 0.1)) is None:
                self._bury()
                if not self._learning:
                    self._give_back()
                if self._stopped:
                    return False
            batch.fill(index, self._layout, filled)
            self._held.append(filled.slot)
            if not self._learning:
                self._give_back()
        self._statistics = self._source.statistics()
        return True

    def _give_back(self) -> None:
        while self._held:
            self._source.release(self._held.pop())

    def _bury(self) -> None:
        while self._dead:
            self._source.forget(self._dead.popleft())
