"""Worker processes of an evolution: started, watched, replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamarckian.cluster.interface import Cluster, Exit
from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.evaluator import failed_evaluation
from lamarckian.ec.population import Fault
from lamarckian.ec.workers import Result
from lamarckian.errors import MisuseError, ProcessError
from lamarckian.evaluate.candidates import Done, Judging, Ready, result, task
from lamarckian.transport.channel import LIMIT_BYTES, Inbox, local_address

WATCH_S = 0.1
STILLBORN = 3
"""A worker that dies so often before it was ever ready to work will not do so the next time either."""


@dataclass
class _Worker:
    """attempt: of its process. job: what it works on, since when; it is judged since when. version: of the shared arrays that it has."""

    attempt: int
    pid: int
    ready: bool = False
    job: Proposals | None = None
    since: float = 0.0
    judged_since: float | None = None
    version: int | None = None
    overdue: bool = False
    stillborn: int = 0

    @property
    def free(self) -> bool:
        return self.ready and self.job is None and not self.overdue


class Processes:
    """`Workers` that are processes of a cluster, one candidate at a time each. One that dies or hangs is replaced at once.

    cluster: where they run; it is closed with this. config: what `lamarckian.evaluate.worker.main` needs, but address and name.
    timeout_s: after which a worker that still judges a candidate, having made it, is taken for hung; None: never.
    The worker's genes come back only where its evaluator changed them: whoever proposed a candidate can make it anew.
    """

    def __init__(self, cluster: Cluster, count: int, config: Mapping[str, Any], timeout_s: float | None = None) -> None:
        self.count = count
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._inbox = Inbox([Ready, Judging, Done], local_address())
        self._workers: dict[str, _Worker] = {}
        self._watched_s = 0.0
        environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        try:
            for index in range(count):
                name = f"worker-{index}"
                started = cluster.start(
                    name,
                    "lamarckian.evaluate.worker:main",
                    {**config, "address": self._inbox.address, "name": name, "timed": timeout_s is not None},
                    environment=environment,
                )
                self._workers[name] = _Worker(started.attempt, started.pid)
        except BaseException:
            self.close()
            raise

    @property
    def free(self) -> int:
        """Workers that are ready and have nothing to do."""
        return sum(worker.free for worker in self._workers.values())

    @property
    def running_s(self) -> float:
        """As `Workers.running_s`."""
        now = time.monotonic()
        return sum(now - worker.since for worker in self._workers.values() if worker.job is not None)

    def submit(self, proposal: Proposals) -> None:
        """As `Workers.submit`."""
        name, worker = next((name, worker) for name, worker in self._workers.items() if worker.free)
        try:
            self._inbox.send(name, task(proposal, shared=bool(proposal.shared) and worker.version != proposal.version))
        except ValueError as error:
            raise MisuseError(
                f"candidate {proposal.ids[0]} is too large for worker processes, which take {LIMIT_BYTES} bytes: {error}"
            ) from error
        worker.job, worker.since, worker.version = proposal, time.monotonic(), proposal.version

    def collect(self, timeout_s: float) -> list[Result]:
        """As `Workers.collect`."""
        results: list[Result] = []
        deadline = time.monotonic() + timeout_s
        while True:
            wait_s = 0.0 if results else min(WATCH_S, max(0.0, deadline - time.monotonic()))
            received = self._inbox.receive(wait_s)
            if received is not None:
                results += self._read(*received)
                if isinstance(received[1], Ready):
                    return results
                continue
            now = time.monotonic()
            if now - self._watched_s >= WATCH_S:  # with nothing left to read, so that nobody is late who has come
                self._watched_s = now
                results += self._watch(now)
            if results or now >= deadline:
                return results

    def close(self) -> None:
        """As `Workers.close`."""
        self._cluster.close()
        self._inbox.close()

    def _read(self, name: str, message: Ready | Judging | Done) -> list[Result]:
        worker = self._workers.get(name)
        if worker is None or message.attempt != worker.attempt:  # the last words of one that was replaced
            return []
        if isinstance(message, Ready):
            worker.ready, worker.stillborn = True, 0
            return []
        if worker.job is None or message.id != int(worker.job.ids[0]):
            return []
        if isinstance(message, Judging):
            worker.judged_since = time.monotonic()
            return []
        worker.job = worker.judged_since = None
        return [result(message)]

    def _watch(self, now: float) -> list[Result]:
        """Replaces who died; ends who took too long, to be replaced when the system says that it is gone."""
        results = []
        for end in self._cluster.poll():
            results += self._replace(end)
        if self._timeout_s is None:
            return results
        for worker in self._workers.values():
            if worker.judged_since is not None and now - worker.judged_since > self._timeout_s and not worker.overdue:
                worker.overdue = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
        return results

    def _replace(self, end: Exit) -> list[Result]:
        worker = self._workers[end.name]
        end.check()
        stillborn = 0 if worker.ready else worker.stillborn + 1
        if stillborn == STILLBORN:
            raise ProcessError(f"{end.name} died {STILLBORN} times before it could begin to work: {end.describe()}")
        started = self._cluster.restart(end.name)
        self._workers[end.name] = _Worker(started.attempt, started.pid, stillborn=stillborn)
        if worker.job is None:
            return []
        seconds = time.monotonic() - worker.since
        id = int(worker.job.ids[0])
        if worker.overdue:
            fault = Fault("timeout", f"took longer than {self._timeout_s:g} s; its worker was replaced")
        else:
            fault = Fault("died", end.describe())
        return [Result(id, {}, failed_evaluation(1, None, {0: fault}), seconds)]
