"""Where batches come from: one actor in this process, in turn with the learner, or many in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from lamarckian.actor.process import Wiring, build_actor, build_mdp
from lamarckian.cluster.local import LocalCluster
from lamarckian.data.pool import LocalPool, MemoryPool, PoolStatistics
from lamarckian.errors import ProcessError
from lamarckian.evaluate.plan import Plan
from lamarckian.learner.batches import Assembler, Batch, Prefetcher
from lamarckian.transport.versions import VersionBoard


class Fleet(Protocol):
    """Actors, and the way to the learner and back."""

    actors: int

    def get(self) -> Batch:
        """The next batch, whole; give it back with `recycle`."""
        ...

    def recycle(self, batch: Batch) -> None: ...

    def publish(self, version: int, parameters: np.ndarray) -> None:
        """Shows a new version to the actors."""
        ...

    def statistics(self) -> PoolStatistics: ...

    def save(self) -> Any:
        """What goes on exactly where it stands; None where that is not possible."""
        ...

    def close(self) -> None: ...


class SerialFleet:
    """One actor in this process, exactly reproducible."""

    actors = 1

    def __init__(self, plan: Plan, version: int, parameters: np.ndarray, state: Mapping[str, Any] | None) -> None:
        self._board = VersionBoard.create(plan.description.model.size)
        self._board.publish(version, parameters)
        self._pool = LocalPool(plan.layout, plan.fragments + 1)
        mdp = build_mdp(plan.description)
        self._actor = build_actor(plan.description, mdp, self._pool, self._board, taped=not plan.description.batched)
        self._batches = Assembler(self._pool, plan.layout, plan.fragments, self._actor.turn)
        if state is None:
            self._actor.start()
        else:
            self._actor.load(state)

    def get(self) -> Batch:
        return self._batches.get(0.0)

    def recycle(self, batch: Batch) -> None:
        self._batches.recycle(batch)

    def publish(self, version: int, parameters: np.ndarray) -> None:
        self._pool.version = version
        self._board.publish(version, parameters)

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    def save(self) -> Any:
        return self._actor.save()

    def close(self) -> None:
        self._actor.close()
        self._board.close()


class ParallelFleet:
    """Actors in processes of this machine, which are replaced when they die.

    note: told when an actor died.
    """

    def __init__(self, plan: Plan, version: int, parameters: np.ndarray, note: Callable[[str], None]) -> None:
        self.actors = plan.actors
        self._note = note
        slots = plan.recipe.learner.slots
        if slots == "auto":
            slots = max(plan.actors, plan.fragments)  # what waits in more of them only grows old
        self._stack = contextlib.ExitStack()
        try:
            self._board = VersionBoard.create(plan.description.model.size)
            self._stack.callback(self._board.close)
            self._board.publish(version, parameters)
            self._pool = MemoryPool.create(plan.layout, slots, lent=1)
            self._stack.callback(self._pool.close)
            self._batches = Prefetcher(self._pool, plan.layout, plan.fragments)
            self._stack.callback(self._batches.close)
            self._cluster = LocalCluster()
            self._stack.callback(self._cluster.close)
            description = msgspec.to_builtins(plan.description, builtin_types=(bytes,))
            for index in range(plan.actors):
                name = f"actor-{index}"
                wiring = Wiring(name, self._pool.address, self._pool.fd, self._board.fd)
                self._cluster.start(
                    name,
                    "lamarckian.actor.process:main",
                    {"description": description, "wiring": msgspec.to_builtins(wiring), "index": index},
                    fds=(self._pool.fd, self._board.fd),
                    environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
                )
        except BaseException:
            self._stack.close()
            raise

    def get(self) -> Batch:
        while True:
            self._watch()
            batch = self._batches.get(timeout_s=0.2)
            if batch is not None:
                return batch

    def recycle(self, batch: Batch) -> None:
        self._batches.recycle(batch)

    def publish(self, version: int, parameters: np.ndarray) -> None:
        self._pool.version = version
        self._board.publish(version, parameters)

    def statistics(self) -> PoolStatistics:
        return self._batches.statistics()

    def save(self) -> Any:
        return None

    def close(self) -> None:
        self._stack.close()

    def _watch(self) -> None:
        for end in self._cluster.poll():
            if end.failure is not None and end.failure.kind:
                raise end.error()
            self._batches.forget(end.name)
            self._note(f"{end.describe()}; starting it anew")
            try:
                self._cluster.restart(end.name)
            except ProcessError:
                raise end.error() from None
