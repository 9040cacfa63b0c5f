"""Where batches come from: one actor in this process, in turn with the learner, or many in processes of their own."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lamarckian.actor.actor import Actor
from lamarckian.actor.crew import Crew
from lamarckian.actor.process import build_actor, build_mdp
from lamarckian.cluster.interface import Process
from lamarckian.cluster.local import LocalCluster
from lamarckian.cluster.machine import cores
from lamarckian.data.pool import LocalPool, MemoryPool, PoolStatistics
from lamarckian.evaluate.gradients import GradientActor, build_algorithm, build_gradient_actor
from lamarckian.evaluate.plan import Plan, acting
from lamarckian.learner.batches import Arrivals, Assembler, Batch, Prefetcher
from lamarckian.record.status import MachineStatus, Processes
from lamarckian.transport.versions import VersionBoard

WATCH_S = 0.2


class SerialFleet:
    """One actor in this process, exactly reproducible."""

    actors = 1

    def __init__(self, plan: Plan, version: int, publication: np.ndarray, state: Mapping[str, Any] | None) -> None:
        self._processes = Processes()
        self._board = VersionBoard.create(len(publication))
        self._board.publish(version, publication)
        self._pool = LocalPool(plan.layout, plan.fragments + 1)
        mdp = build_mdp(plan.description)
        taped = not plan.description.batched
        self._actor: Actor | GradientActor
        if plan.learning:
            algorithm = build_algorithm(plan.description, mdp, plan.learning)
            self._actor = build_gradient_actor(plan.description, mdp, algorithm, self._pool, self._board, taped=taped)
        else:
            self._actor = build_actor(plan.description, mdp, self._pool, self._board, taped=taped)
        self._batches = Assembler(self._pool, plan.layout, plan.fragments, self._actor.turn)
        if state is None:
            self._actor.start()
        else:
            self._actor.load(state)

    def get(self) -> Batch:
        return self._batches.get()

    def recycle(self, batch: Batch) -> None:
        """Nothing to do: the next batch overwrites it."""

    def publish(self, version: int, publication: np.ndarray) -> None:
        self._pool.version = version
        self._board.publish(version, publication)

    def statistics(self) -> PoolStatistics:
        return self._pool.statistics()

    def metrics(self) -> dict[str, float]:
        return {}

    def machines(self, version: int) -> list[MachineStatus]:
        return [self._processes.machine("learner", platform.node(), cores(), {"learner": (os.getpid(), 0)}, version, self.actors)]

    def save(self) -> Any:
        return self._actor.save()

    def close(self) -> None:
        self._actor.close()
        self._board.close()


class ParallelFleet:
    """Actors in processes of this machine, which are replaced when they die.

    note: told when an actor died.
    """

    def __init__(self, plan: Plan, version: int, publication: np.ndarray, note: Callable[[str], None]) -> None:
        wanted = plan.recipe.learner.slots
        slots = max(plan.actors, plan.fragments) if wanted == "auto" else wanted  # what waits in more of them only grows old
        self._processes = Processes()
        self._stack = contextlib.ExitStack()
        try:
            self._board = VersionBoard.create(len(publication))
            self._stack.callback(self._board.close)
            self._board.publish(version, publication)
            self._pool = MemoryPool.create(plan.layout, slots, max_staleness(plan), lent=1)
            self._stack.callback(self._pool.close)
            self._batches = Arrivals(self._pool) if plan.learning else Prefetcher(self._pool, plan.layout, plan.fragments)
            self._stack.callback(self._batches.close)
            self._watch = Watch(plan, self._pool, self._board, version, self._batches.forget, note)
            self._stack.callback(self._watch.close)
        except BaseException:
            self._stack.close()
            raise

    @property
    def actors(self) -> int:
        return len(self._watch.processes)

    def get(self) -> Batch | None:
        self._watch.check()
        return self._batches.get(timeout_s=0.2)

    def recycle(self, batch: Batch) -> None:
        self._batches.recycle(batch)

    def publish(self, version: int, publication: np.ndarray) -> None:
        self._pool.version = version
        self._board.publish(version, publication)

    def statistics(self) -> PoolStatistics:
        return self._batches.statistics()

    def metrics(self) -> dict[str, float]:
        return {}

    def machines(self, version: int) -> list[MachineStatus]:
        own = {"learner": (os.getpid(), 0)} | {name: (actor.pid, actor.attempt) for name, actor in self._watch.processes.items()}
        queues = {"pool waiting": self.statistics().waiting}
        return [self._processes.machine("learner", platform.node(), cores(), own, version, self.actors, queues)]

    def save(self) -> None:
        """Processes cannot be saved where they stand: a resumed run starts new matches."""

    def close(self) -> None:
        self._stack.close()


class Watch:
    """Starts the actors, and replaces those that die, in a thread of its own: an update may take longer than they may be gone.

    forget: told whose slots to take back.
    """

    def __init__(
        self, plan: Plan, pool: MemoryPool, board: VersionBoard, version: int, forget: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self._forget = forget
        self._note = note
        self._faults: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._cluster = LocalCluster()
        self._crew = Crew(self._cluster, *acting(plan), (pool.address, pool.fd), board.fd, plan.actors)
        self._version = version
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    @property
    def processes(self) -> dict[str, Process]:
        """The actors that are there now, by name."""
        return dict(self._crew.processes)

    def check(self) -> None:
        """Raises what the run cannot go on after."""
        with contextlib.suppress(queue.Empty):
            raise self._faults.get_nowait()

    def close(self) -> None:
        """Ends all actors."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._cluster:
                self._crew.start([self._version])
                while not self._stop.wait(WATCH_S):
                    for end in self._cluster.poll():
                        self._crew.replace(end)
                        self._forget(end.name)
                        self._note(f"{end.describe()}; starting it anew")
        except BaseException as error:
            self._faults.put(error)


def max_staleness(plan: Plan) -> int | None:
    """How old gradients may be. Of fragments, samples are left out one by one, by the algorithm."""
    return plan.recipe.algorithm.settings.get("max_staleness") if plan.learning else None
