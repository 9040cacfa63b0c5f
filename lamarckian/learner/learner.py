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
from lamarckian.learner.staleness import Staleness
from lamarckian.learner.together import Companions, Intent, Report, begin, tell
from lamarckian.rl.algorithm import Algorithm, publication

COUNTS = ("produced", "used", "stale", "overwritten", "lost", "waiting", "held")
"""Of a pool, in a line of metrics: the first is the sum of the others."""


class Fleet(Protocol):
    """Actors, as the learner sees them."""

    @property
    def actors(self) -> int:
        """How many are alive."""
        ...

    def get(self) -> Batch | None:
        """The next batch, whole; None where there is none yet. Give it back with `recycle`.

        A learner among others asks again until all of them have one, and gets the same.
        """
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
    ring: the others that learn with this one, each from a fleet of its own, all from the state of rank 0 on. Rank 0 leads: its `share` and
        its reward weights hold for all, it counts for all, and it ends them by `end`. The others `follow`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        fleet: Fleet,
        version: int,
        measure: Callable[[Batch], Mapping[str, float]] = lambda batch: {},
        ring: Companions | None = None,
    ) -> None:
        self.version = version
        self.meter = Meter(fleet)
        self.ended = False
        """Whether rank 0 has ended the training."""
        self._algorithm = algorithm
        self._fleet = fleet
        self._measure = measure
        self._ring = ring
        if ring is not None:
            self.version = begin(algorithm, ring, version)

    def update(self, share: float) -> tuple[int, list[MatchResult]] | None:
        """Learns from one batch and publishes; how many samples it had, and the matches that ended. None: no batch yet.

        With others: from one batch of each, once all have one; the samples and matches of all.
        share: how much of the run is done, in [0, 1]. Raises NumericsError where a loss is not finite, with others at all of them, and
        RingError where one of them is lost.
        """
        with self.meter.timing("wait"):
            batch = self._fleet.get()
        agreed = self._agree(batch is not None, share)
        if batch is None or agreed is None:
            return None
        if "version" in batch.arrays:  # of recorded matches there is none
            self.meter.staleness.add(batch.arrays["version"], self.version)
        values = self._algorithm.update(batch.tensors, self.version, agreed)
        self.version += 1
        with self.meter.timing("publish"):
            self._fleet.publish(self.version, publication(self._algorithm))
        report = Report(batch.steps, batch.results, batch.seconds, {**batch.metrics, **values, **self._measure(batch)})
        self._fleet.recycle(batch)
        reports = [report] if self._ring is None else self._reports(self._ring, report)
        for one in reports:
            self.meter.add(one.steps, one.results, one.seconds, one.metrics)
        return sum(one.steps for one in reports), [result for one in reports for result in one.results]

    def end(self) -> None:
        """Ends the training at the others, if there are any; not after an error, which has ended it."""
        if self._ring is not None:
            tell(self._ring, Intent(ends=True))

    def _agree(self, ready: bool, share: float) -> float | None:
        """The share of rank 0, once everybody has a batch; None until then, and at the end."""
        if self._ring is None:
            return share
        weights = getattr(self._algorithm, "reward_weights", {})
        intents = tell(self._ring, Intent(ready, False, share, weights))
        first, self.ended = intents[0], intents[0].ends
        if not all(intent.ready for intent in intents):
            return None
        if first.weights != weights:
            self._algorithm.set_reward_weights(first.weights)  # type: ignore[attr-defined]
        return first.share

    def _reports(self, ring: Companions, report: Report) -> list[Report]:
        """What rank 0 counts: all learners' reports, times only its own; the others count nothing."""
        reports = tell(ring, report)
        if ring.rank:
            return []
        for other in reports[1:]:
            for name in [name for name in other.metrics if name.startswith("time.")]:
                del other.metrics[name]
        reports[0].metrics["time.ring_s"] = ring.take_seconds()
        return reports


def follow(algorithm: Algorithm, fleet: Fleet, ring: Companions) -> None:
    """Learns with rank 0, from its version on, until that ends it; raises as `Learner.update`.

    What a follower publishes, its fleet need not show anybody.
    """
    learner = Learner(algorithm, fleet, 0, ring=ring)
    while not learner.ended:
        learner.update(0.0)


class Meter:
    """Averages what learner and actors measured since the last line."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.staleness = Staleness()
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
        line |= self.staleness.take()
        line |= {f"time/{name}": seconds / wall for name, seconds in self._spent.items()}
        acting = sum(self._acting.values())
        line |= {f"actor/{name.removesuffix('_s')}": seconds / acting for name, seconds in self._acting.items() if acting}
        counts = self._fleet.statistics()
        line |= {f"pool/{name}": float(getattr(counts, name)) for name in COUNTS if hasattr(counts, name)}
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
