"""Fragments come into batches whole, in order, and their slots go back at the right time."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from lamarckian.data.fragment import gradient_layout, layout
from lamarckian.data.pool import LocalPool, MatchResult, Meta
from lamarckian.learner.batches import Arrivals, Assembler, Prefetcher
from lamarckian.mdp import ArraySpec, Discrete, Role, Vector
from tests.commands import wait_for

LAYOUT = layout(Role({"x": Vector(2)}, {"a": Discrete(3)}), 4, 3, {"h": ArraySpec((5,), np.dtype(np.float32))})


def submit(pool: LocalPool, value: int) -> None:
    slot, views = pool.claim(0.0)
    for array in views.values():
        array[...] = value
    pool.submit(slot, Meta(0, 0, 12, [MatchResult("left", float(value), None, 1, [0.0])], {"environment_s": 0.5}))


def assert_holds(batch, values: list[int]) -> None:
    for name, tensor in batch.tensors.items():
        columns = tensor.movedim(1, 0) if LAYOUT.fields[name].rows else tensor
        for index, value in enumerate(values):
            part = columns[3 * index : 3 * (index + 1)]
            assert (part == (bool(value) if part.dtype == torch.bool else value)).all(), name
    assert [result.score for result in batch.results] == values
    assert batch.samples == 12 * len(values)
    assert batch.seconds == {"environment_s": 0.5 * len(values)}


def test_serial_batches_ask_for_what_they_need():
    pool = LocalPool(LAYOUT, 3)
    made = iter(range(1, 100))
    batches = Assembler(pool, LAYOUT, 2, lambda: submit(pool, next(made)))
    assert_holds(batches.get(), [1, 2])
    assert_holds(batches.get(), [3, 4])
    assert pool.statistics().used == 4
    assert pool.statistics().free == 3


class SharedPool:
    """A pool that the test may use too, while the prefetcher's thread owns it."""

    def __init__(self) -> None:
        self._pool = LocalPool(LAYOUT, 4)
        self._lock = threading.Lock()

    def __getattr__(self, name):
        def locked(*arguments):
            with self._lock:
                return getattr(self._pool, name)(*arguments)

        return locked

    def get(self, timeout_s: float):
        time.sleep(0.001)
        with self._lock:
            return self._pool.get(timeout_s)


@pytest.fixture
def pool():
    return SharedPool()


@pytest.fixture
def batches(pool):
    batches = Prefetcher(pool, LAYOUT, 2)
    yield batches
    batches.close()


def test_parallel_batches_come_in_order(pool, batches):
    for first in (1, 3, 5):
        submit(pool, first)
        submit(pool, first + 1)
        batch = batches.get(5.0)
        assert_holds(batch, [first, first + 1])
        batches.recycle(batch)
    assert batches.get(0.05) is None


def test_slots_of_the_next_batch_wait_for_the_learner(pool, batches):
    submit(pool, 1)
    submit(pool, 2)
    batch = batches.get(5.0)
    wait_for(lambda: pool.statistics().free == 4, 5, "free slots")
    submit(pool, 3)
    submit(pool, 4)
    wait_for(lambda: pool.statistics().held == 2, 5, "next batch")
    time.sleep(0.1)
    assert pool.statistics().held == 2
    batches.recycle(batch)
    assert_holds(batches.get(5.0), [3, 4])
    wait_for(lambda: pool.statistics().free == 4, 5, "free slots")


def test_a_fault_of_the_thread_reaches_the_learner(pool, batches):
    submit(pool, 1)
    slot, _ = pool.claim(0.0)
    pool.submit(slot, Meta(0, 0, 12, None))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        batches.get(5.0)


def test_what_arrives_is_a_batch_whose_slot_the_learner_has_until_it_is_done():
    shape = gradient_layout(LAYOUT, 7)
    assert {name: view.shape for name, view in shape.empty().items()} == {
        "gradient": (1, 7),
        "version": (1,),
        "samples": (1,),
        "reward": (1, 4, 3, 1),
    }
    pool = LocalPool(shape, 2)
    batches = Arrivals(pool)
    assert batches.get(0.0) is None
    for value in (1, 2):
        slot, views = pool.claim(0.0)
        views["gradient"][...] = value
        pool.submit(slot, Meta(value, value, 11, [MatchResult("left", 0.5, None, 1, [0.0])], {"learning_s": 2.0}, {"kl": 0.25}))
    for value in (1, 2):
        batch = batches.get(0.0)
        assert batch.tensors["gradient"].tolist() == [[value] * 7]
        assert (batch.steps, batch.samples, batch.seconds, batch.metrics) == (12, 11, {"learning_s": 2.0}, {"kl": 0.25})
        assert [result.score for result in batch.results] == [0.5]
        assert batches.statistics().held == 1
        batches.recycle(batch)
    assert batches.statistics().free == 2
