"""Trains what a recipe says, from the first sample to the last checkpoint; the same loop for both modes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from lamarckian import plugins
from lamarckian.errors import NumericsError
from lamarckian.evaluate.fleet import Fleet, ParallelFleet, SerialFleet
from lamarckian.evaluate.plan import Plan, plan, restore
from lamarckian.learner.batches import Batch
from lamarckian.recipe import Recipe
from lamarckian.record import checkpoint
from lamarckian.record.metrics import Metrics
from lamarckian.record.progress import Progress, fraction
from lamarckian.record.run import Run
from lamarckian.record.signature import check_signature, signature

KEPT_OUTCOMES = 10_000


@dataclass(frozen=True)
class Summary:
    """How a training ended."""

    interrupted: bool
    steps: int
    version: int
    score: float | None
    minutes: float
    checkpoint: Path


@dataclass
class Totals:
    """What has been counted since the run began; all of it is in a checkpoint.

    outcomes: (score, return) of matches, the newest last.
    """

    steps: int = 0
    version: int = 0
    seconds: float = 0.0
    matches: int = 0
    outcomes: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_OUTCOMES))

    def add(self, batch: Batch, samples: int) -> None:
        self.steps += samples
        self.matches += len(batch.results)
        self.outcomes.extend((result.score, sum(result.returns)) for result in batch.results)

    def mean(self, window: int, whole: bool = False) -> tuple[float | None, float | None]:
        """Mean score and return of the last `window` matches; None where there was none, or `whole` and fewer."""
        newest = list(self.outcomes)[-window:]
        if not newest or (whole and len(newest) < window):
            return None, None
        score, total = np.mean(newest, axis=0).tolist()
        return score, total


def train(recipe: Recipe, run: Run, progress: Progress, resume: bool = False) -> Summary:
    """Trains until the recipe says stop, or Ctrl-C; goes on from the last checkpoint with `resume`.

    Raises a `LamarckianError` where that cannot be done or go on. What was saved before is then intact.
    """
    return Training(recipe, run, progress, resume).run()


class Training:
    """One training, in this process: algorithm, fleet, records."""

    def __init__(self, recipe: Recipe, run: Run, progress: Progress, resume: bool) -> None:
        self._recipe = recipe
        self._run = run
        self._progress = progress
        self._plan = plan(recipe)
        self._algorithm = plugins.build(
            "algorithm", recipe.algorithm, self._plan.policy, self._plan.role,
            device=self._plan.device, dtype=recipe.learner.dtype, seed=recipe.seed,
        )  # fmt: skip
        self._totals = Totals()
        self._saved = checkpoint.load(run) if resume else None
        self._state: Any = None
        if self._saved is not None:
            self._restore(self._saved)
        self._folder = run.checkpoints_path
        self._stopped = False

    def run(self) -> Summary:
        """Trains; see `train`."""
        with ExitStack() as stack:
            metrics = stack.enter_context(Metrics(self._run, self._saved.steps if self._saved else None))
            fleet = self._fleet()
            stack.callback(fleet.close)
            stack.enter_context(_interrupts(self._interrupt))
            self._loop(fleet, metrics)
            folder = self._save(fleet)
        totals = self._totals
        score, _ = totals.mean(self._recipe.record.score_window)
        return Summary(self._stopped, totals.steps, totals.version, score, totals.seconds / 60, folder)

    def _loop(self, fleet: Fleet, metrics: Metrics) -> None:
        totals, meter = self._totals, Meter(self._plan, fleet)
        every = self._recipe.checkpoint
        started = time.perf_counter() - totals.seconds
        saved_s, recorded_s = totals.seconds, totals.seconds
        while not (self._stopped or self._done()):
            with meter.timing("wait"):
                batch = fleet.get()
            samples = batch.arrays["reward"].shape[0] * batch.arrays["reward"].shape[1]
            try:
                values = self._algorithm.update(batch.tensors, totals.version, self._share())
            except NumericsError as error:
                last = checkpoint.saved(self._run)
                kept = f"the last good checkpoint is {self._folder / str(last[-1])}" if last else "there is no checkpoint yet"
                raise NumericsError(f"update {totals.version + 1}: {error}; {kept}") from error
            totals.add(batch, samples)
            meter.add(batch, samples, values)
            totals.version += 1
            with meter.timing("publish"):
                fleet.publish(totals.version, self._algorithm.parameters.array())
            fleet.recycle(batch)
            totals.seconds = time.perf_counter() - started
            if totals.seconds - recorded_s >= self._recipe.record.every_s or self._done() or self._stopped:
                recorded_s = totals.seconds
                line = self._line(meter)
                metrics.write(line)
                self._progress.update(line)
            if (every.every_s and totals.seconds - saved_s >= every.every_s) or (
                every.every_updates and totals.version % every.every_updates == 0
            ):
                saved_s = totals.seconds
                self._save(fleet)

    def _line(self, meter: Meter) -> dict[str, Any]:
        totals = self._totals
        score, total = totals.mean(self._recipe.record.score_window)
        return {
            "steps": totals.steps,
            "updates": totals.version,
            "minutes": totals.seconds / 60,
            "matches": totals.matches,
            "score": score,
            "return": total,
            **meter.take(),
        }

    def _done(self) -> bool:
        stop, totals = self._recipe.stop, self._totals
        limits = [(totals.steps, stop.steps), (totals.version, stop.updates), (totals.seconds / 60, stop.minutes)]
        if any(limit is not None and value >= limit for value, limit in limits):
            return True
        score, _ = totals.mean(stop.score_matches, whole=True)
        return stop.score is not None and score is not None and score >= stop.score

    def _share(self) -> float:
        """How much of the run is done, in [0, 1], for schedules; by the clock only where nothing else is given."""
        values = {"steps": self._totals.steps, "updates": self._totals.version}
        share = fraction(self._recipe.stop, values)
        return share if share is not None else fraction(self._recipe.stop, {"minutes": self._totals.seconds / 60}) or 0.0

    def _fleet(self) -> Fleet:
        version, parameters = self._totals.version, self._algorithm.parameters.array()
        if self._recipe.mode == "serial":
            return SerialFleet(self._plan, version, parameters, self._state)
        return ParallelFleet(self._plan, version, parameters, self._progress.note)

    def _save(self, fleet: Fleet) -> Path:
        totals = self._totals
        arrays, state = checkpoint.pack(fleet.save())
        score, _ = totals.mean(self._recipe.record.score_window, whole=True)
        return checkpoint.save(
            self._run,
            checkpoint.Checkpoint(
                steps=totals.steps,
                version=totals.version,
                score=score,
                signature=signature(self._plan.role),
                policy=self._plan.policy.state_dict(),
                optimizer=self._algorithm.state_dict(),
                arrays=arrays,
                state={
                    "seconds": totals.seconds,
                    "matches": totals.matches,
                    "outcomes": list(totals.outcomes),
                    "fleet": state,
                },
            ),
            self._recipe.checkpoint.keep,
        )

    def _restore(self, saved: checkpoint.Checkpoint) -> None:
        where = f"checkpoint {saved.steps} of {self._run.folder}"
        check_signature(saved.signature, self._plan.role, where)
        restore(self._plan.policy, saved.policy, str(self._run.folder))
        self._algorithm.load_state_dict(checkpoint.as_tensors(saved.optimizer))
        totals = self._totals
        totals.steps, totals.version = saved.steps, saved.version
        totals.seconds, totals.matches = saved.state["seconds"], saved.state["matches"]
        totals.outcomes.extend((score, total) for score, total in saved.state["outcomes"])
        if self._recipe.mode == "serial":
            self._state = checkpoint.unpack(saved.arrays, saved.state["fleet"])

    def _interrupt(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self._progress.note("stopping after this update, to save; once more stops at once")


class Meter:
    """Averages what the learner and the actors measured since the last line."""

    def __init__(self, plan: Plan, fleet: Fleet) -> None:
        self._fleet = fleet
        self._actors = fleet.actors
        self._start()

    def add(self, batch: Batch, samples: int, values: dict[str, float]) -> None:
        """Counts an update and what it reported; `time.*_s` are seconds, the rest is averaged."""
        self._samples += samples
        for name, value in values.items():
            if name.startswith("time.") and name.endswith("_s"):
                self._spend(name.removeprefix("time.").removesuffix("_s"), value)
            else:
                self._values.setdefault(name, []).append(value)
        for name, seconds in batch.seconds.items():
            self._acting[name] = self._acting.get(name, 0.0) + seconds

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Counts the block's seconds as `time/<name>`."""
        start = time.perf_counter()
        yield
        self._spend(name, time.perf_counter() - start)

    def take(self) -> dict[str, float]:
        """The averages; starts anew."""
        wall = time.perf_counter() - self._began
        cpu = max(0.0, _cpu_s() - self._cpu_s) / (wall * (os.cpu_count() or 1))
        line: dict[str, float] = {"rate_hz": self._samples / wall, "actors": self._actors, "cpu": cpu}
        line |= {name.replace(".", "/"): float(np.mean(values)) for name, values in self._values.items()}
        line["staleness"] = line.pop("staleness/mean", 0.0)
        line |= {f"time/{name}": seconds / wall for name, seconds in self._spent.items()}
        acting = sum(self._acting.values())
        line |= {f"actor/{name.removesuffix('_s')}": seconds / acting for name, seconds in self._acting.items() if acting}
        counts = self._fleet.statistics()
        line |= {f"pool/{name}": float(getattr(counts, name)) for name in ("produced", "used", "stale", "lost", "waiting")}
        self._start()
        return line

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


@contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `stop` within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
