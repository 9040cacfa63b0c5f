"""The learner: batches in, versions out, and a meter of where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from statistics import fmean
from typing import Protocol

import numpy as np
import psutil

from lamarckian.cluster.machine import cores
from lamarckian.data.pool import MatchResult, PoolStatistics
from lamarckian.learner.batches import Batch
from lamarckian.rl.algorithm import Algorithm, publication


class Fleet(Protocol):
    """Actors, as the learner sees them."""

    @property
    def actors(self) -> int:
        """How many are alive."""
        ...

    def get(self) -> Batch | None:
        """The next batch, whole; None where there is none yet. Give it back with `recycle`."""
        ...

    def recycle(self, batch: Batch) -> None: ...

    def publish(self, version: int, publication: np.ndarray) -> None:
        """Shows a new version to the actors, as `lamarckian.rl.algorithm.publication` gives it."""
        ...

    def statistics(self) -> PoolStatistics:
        """What became of fragments so far; more than its common counts, where the pool counts more."""
        ...


class Learner:
    """Learns from what a fleet brings, one batch an update.

    version: of the parameters, one more after each update. meter: of everything since it was last read.
    measure: further metrics of a batch, named as an algorithm names its own.
    """

    def __init__(
        self, algorithm: Algorithm, fleet: Fleet, version: int, measure: Callable[[Batch], Mapping[str, float]] = lambda batch: {}
    ) -> None:
        self.version = version
        self.meter = Meter(fleet)
        self._algorithm = algorithm
        self._fleet = fleet
        self._measure = measure

    def update(self, share: float) -> tuple[int, list[MatchResult]] | None:
        """Learns from one batch and publishes; how many samples it had, and the matches that ended. None: no batch yet.

        share: how much of the run is done, in [0, 1]. Raises NumericsError where a loss is not finite.
        """
        with self.meter.timing("wait"):
            batch = self._fleet.get()
        if batch is None:
            return None
        values = self._algorithm.update(batch.tensors, self.version, share)
        self.version += 1
        with self.meter.timing("publish"):
            self._fleet.publish(self.version, publication(self._algorithm))
        samples, results = batch.steps, batch.results
        self.meter.add(samples, results, batch.seconds, {**batch.metrics, **values, **self._measure(batch)})
        self._fleet.recycle(batch)
        return samples, results


class Meter:
    """Averages what learner and actors measured since the last line."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._start()

    def add(self, samples: int, results: list[MatchResult], seconds: Mapping[str, float], values: Mapping[str, float]) -> None:
        """Counts an update and what it reported: of `values`, `time.*_s` are seconds, the rest is averaged, but for `staleness.max`."""
        self._samples += samples
        for name, value in values.items():
            if name.startswith("time.") and name.endswith("_s"):
                self._spend(name.removeprefix("time.").removesuffix("_s"), value)
            else:
                self._note(name.replace(".", "/"), value)
        for name, spent in seconds.items():
            self._acting[name] = self._acting.get(name, 0.0) + spent
        for result in results:
            self._note("match/length", result.length)
            for name, value in result.objectives.items():
                self._note(f"objective/{name}", value)
            if result.outcome is not None:
                self._note("match/won", result.outcome == "win")

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Counts the block's seconds as `time/<name>`."""
        start = time.perf_counter()
        yield
        self._spend(name, time.perf_counter() - start)

    def take(self) -> dict[str, float]:
        """The averages; starts anew."""
        wall = time.perf_counter() - self._began
        line: dict[str, float] = {"rate_hz": self._samples / wall, "actors": self._fleet.actors}
        line["cpu"] = max(0.0, _cpu_s() - self._cpu_s) / (wall * cores())
        line |= {name: max(values) if name == "staleness/max" else fmean(values) for name, values in self._values.items()}
        line["staleness"] = line.pop("staleness/mean", 0.0)
        line |= {f"time/{name}": seconds / wall for name, seconds in self._spent.items()}
        acting = sum(self._acting.values())
        line |= {f"actor/{name.removesuffix('_s')}": seconds / acting for name, seconds in self._acting.items() if acting}
        counts = self._fleet.statistics()
        line |= {f"pool/{name}": float(getattr(counts, name)) for name in ("produced", "used", "stale", "lost", "waiting")}
        self._start()
        return line

    def _note(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def _spend(self, name: str, seconds: float) -> None:
        self._spent[name] = self._spent.get(name, 0.0) + seconds

    def _start(self) -> None:
        self._began = time.perf_counter()
        self._cpu_s = _cpu_s()
        self._samples = 0
        self._values: dict[str, list[float]] = {}
        self._spent: dict[str, float] = {}
        self._acting: dict[str, float] = {}


def _cpu_s() -> float:
    """CPU seconds of this process and its living children so far."""
    this = psutil.Process()
    seconds = 0.0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds
