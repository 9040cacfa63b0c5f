"""Evolves what a recipe says, from the first candidate to the last checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.cluster.local import LocalCluster
from lamarckian.cluster.machine import cores
from lamarckian.ec.evaluator import Evaluator
from lamarckian.ec.evolution import Evolution, Failures
from lamarckian.ec.evolve import reached
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.ec.population import EVALUATED, Fault
from lamarckian.ec.result import best_value, dominated, front_of
from lamarckian.ec.workers import Bench, Workers
from lamarckian.errors import CheckpointError, LamarckianError, RecipeError
from lamarckian.evaluate.interrupts import interrupts
from lamarckian.evaluate.worker import parts
from lamarckian.evaluate.workers import Processes
from lamarckian.recipe import EvolutionRecipe
from lamarckian.record import checkpoint
from lamarckian.record.fronts import plot_front, write_front
from lamarckian.record.metrics import Metrics
from lamarckian.record.progress import Progress
from lamarckian.record.run import Run, writing

MOST_DEATHS = 1_000_000
"""Workers may die as often as their candidates kill them; the failure rule bounds that."""


@dataclass(frozen=True)
class Outcome:
    """How an evolution ended.

    measure: the name and the value of what it is judged by, `best` or `hypervolume`; None where nobody is feasible, or nothing measures it.
    """

    interrupted: bool
    evaluations: int
    failed: int
    generations: int
    measure: tuple[str, float] | None
    front: int
    minutes: float
    checkpoint: Path


def build_evolution(recipe: EvolutionRecipe, each_fault: Callable[[int, Fault], None] | None = None) -> Evolution:
    """The evolution that a recipe describes, with its workers. Close it after use. each_fault: as `Evolution`'s.

    Raises RecipeError or MisuseError where something does not fit.
    """
    evaluator, algorithm = parts(recipe.problem, recipe.algorithm)
    failures = Failures(**recipe.failures.model_dump())
    return Evolution(evaluator, algorithm, recipe.seed, recipe.mode, failures, _workers(recipe), each_fault)


def evolve(recipe: EvolutionRecipe, run: Run, progress: Progress, resume: bool = False) -> Outcome:
    """Evolves until the recipe says stop, or Ctrl-C; goes on from the last checkpoint with `resume`.

    Raises a `LamarckianError` where that cannot be done or go on. What was saved before is then intact.
    """
    with ExitStack() as stack:
        evolution = build_evolution(recipe, lambda id, fault: _record_fault(run, id, fault))
        stack.callback(evolution.close)
        return _Evolving(recipe, run, progress, evolution).run(resume)


class _Evolving:
    """One run: its clock, its records."""

    def __init__(self, recipe: EvolutionRecipe, run: Run, progress: Progress, evolution: Evolution) -> None:
        self._recipe = recipe
        self._run = run
        self._progress = progress
        self._evolution = evolution
        self._seconds = 0.0
        self._selected = True
        self._stopped = False
        self._rate: tuple[int, float, float] = (0, 0.0, 0.0)
        self._reference = _reference(recipe, evolution.objectives)

    def run(self, resume: bool) -> Outcome:
        """Evolves; see `evolve`."""
        saved = self._restore() if resume else None
        evolution = self._evolution
        self._rate = (evolution.evaluations, self._seconds, evolution.busy_s)
        with Metrics(self._run, saved) as metrics, interrupts(self._interrupt):
            try:
                self._loop(metrics)
            except LamarckianError:
                if evolution.evaluations:
                    self._save()  # the fault may be mended, and what came back before is good
                raise
            folder = self._save()
        front = front_of(evolution)
        self._write_front()
        return Outcome(
            self._stopped,
            evolution.evaluations,
            evolution.failed,
            evolution.generation,
            self._measure(),
            len(front),
            self._seconds / 60,
            folder,
        )

    def _loop(self, metrics: Metrics) -> None:
        evolution, record, every = self._evolution, self._recipe.record, self._recipe.checkpoint
        started = time.perf_counter() - self._seconds
        recorded_s = saved_s = self._seconds
        recorded, saved_generation = evolution.evaluations, evolution.generation
        done = self._done()
        while not (done or self._stopped):
            self._selected = evolution.advance()
            self._seconds = time.perf_counter() - started
            done = self._done()
            if evolution.evaluations > recorded and (
                done
                or self._stopped
                or self._seconds - recorded_s >= record.every_s
                or (record.every_evaluations is not None and evolution.evaluations - recorded >= record.every_evaluations)
            ):
                self._run.keep_resume()
                recorded_s, recorded = self._seconds, evolution.evaluations
                line = self._line()
                metrics.write(line)
                self._progress.update(line)
            due = every.every_generations is not None and evolution.generation - saved_generation >= every.every_generations
            if due or (every.every_s is not None and self._seconds - saved_s >= every.every_s):
                saved_s, saved_generation = self._seconds, evolution.generation
                self._save()

    def _done(self) -> bool:
        """Whether it is over: by the clock at any time, by all else when survivors were just selected."""
        stop, evolution = self._recipe.stop, self._evolution
        if stop.minutes is not None and self._seconds / 60 >= stop.minutes:
            return True
        if not self._selected:
            return False
        if stop.target is not None and evolution.objectives not in (None, 1):
            raise RecipeError(f"stop.target: the problem has {evolution.objectives} objectives; set stop.hypervolume, or null")
        if stop.hypervolume is not None and evolution.objectives == 1:
            raise RecipeError("stop.hypervolume: the problem has one objective; set stop.target, or null")
        limits = [(evolution.evaluations, stop.evaluations), (evolution.generation, stop.generations)]
        if any(limit is not None and value >= limit for value, limit in limits):
            return True
        if stop.target is not None and reached(best_value(evolution), stop.target, evolution.evaluator.minimise):
            return True
        if stop.hypervolume is None:
            return False
        measure = self._measure()
        return measure is not None and measure[0] == "hypervolume" and measure[1] >= stop.hypervolume

    def _line(self) -> dict[str, Any]:
        evolution = self._evolution
        count, seconds, busy_s = self._rate
        self._rate = (evolution.evaluations, self._seconds, evolution.busy_s)
        elapsed_s = max(self._seconds - seconds, 1e-9)
        population, measure = evolution.population, self._measure()
        feasible = (population.state == EVALUATED) & (population.violation == 0)
        return {
            "steps": evolution.evaluations,
            "generation": evolution.generation,
            "minutes": self._seconds / 60,
            "rate_hz": (evolution.evaluations - count) / elapsed_s,
            **({measure[0]: measure[1]} if measure is not None else {}),
            "front": len(front_of(evolution)),
            "feasible": float(feasible.mean()) if len(population) else None,
            "failed": evolution.failed,
            "utilisation": min(1.0, (evolution.busy_s - busy_s) / (elapsed_s * evolution.workers)),
        }

    def _measure(self) -> tuple[str, float] | None:
        evolution = self._evolution
        if evolution.objectives == 1:
            best = best_value(evolution)
            return None if best is None else ("best", best)
        if self._reference is None or evolution.objectives is None:
            return None
        reference = _of_all(self._reference, evolution.objectives)
        return "hypervolume", dominated(front_of(evolution).raw, reference, evolution.evaluator.minimise)

    def _write_front(self) -> None:
        evolution = self._evolution
        front = front_of(evolution)
        write_front(
            self._run,
            objective_names(evolution),
            front.raw,
            evolution.genome.express(front.genes),
            front.ids,
            minimise=evolution.evaluator.minimise,
        )

    def _save(self) -> Path:
        evolution = self._evolution
        arrays, state = checkpoint.pack({"evolution": evolution.save(), "seconds": self._seconds, "selected": self._selected})
        return checkpoint.save(
            self._run,
            checkpoint.Checkpoint(
                steps=evolution.evaluations,
                version=evolution.generation,
                score=None,
                signature=_signature(self._recipe),
                policy={},
                arrays=arrays,
                state={"tree": state},
            ),
            self._recipe.checkpoint.keep,
        )

    def _restore(self) -> int:
        saved = checkpoint.load(self._run)
        where = f"checkpoint {saved.steps} of {self._run.folder}"
        then, now = saved.signature, _signature(self._recipe)
        for key in {**now, **then}:
            if then.get(key) != now.get(key):
                raise CheckpointError(
                    f"{where} is of another run: {key} is {then.get(key)!r:.80} there, {now.get(key)!r:.80} in the recipe"
                )
        try:
            tree = checkpoint.unpack(saved.arrays, saved.state["tree"])
            self._evolution.load(tree["evolution"])
            self._seconds, self._selected = tree["seconds"], tree["selected"]
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{where} does not fit the recipe's algorithm and its settings ({error}); leave these as they were"
            ) from error
        return saved.steps

    def _interrupt(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self._progress.note("stopping as soon as this can be saved; once more stops at once")


def _record_fault(run: Run, id: int, fault: Fault) -> None:
    """A line in `failures.jsonl`; what is judged again after a run was killed may have two."""
    with writing(run.failures_path), run.failures_path.open("a") as file:
        file.write(json.dumps({"id": id, **fault._asdict()}) + "\n")


def _signature(recipe: EvolutionRecipe) -> dict[str, Any]:
    """The keys of a recipe that a run keeps for good."""
    sections = {"problem": recipe.problem, "algorithm": recipe.algorithm}
    settings = {f"{name}.{key}": value for name, part in sections.items() for key, value in part.model_dump(mode="json").items()}
    return {"seed": recipe.seed, **settings}


def objective_names(evolution: Evolution) -> list[str]:
    """What the evaluator calls its objectives; f1, f2 … where it does not say."""
    names = getattr(evolution.evaluator, "names", None) or getattr(getattr(evolution.evaluator, "problem", None), "names", None)
    count = evolution.objectives or 0
    return list(map(str, names)) if names and len(names) == count else [f"f{number}" for number in range(1, count + 1)]


def draw_front(recipe: EvolutionRecipe, run: Run) -> Path | None:
    """Draws the front that the run has written; None where there is nothing to draw."""
    document = json.loads((run.folder / "front.json").read_text())
    names = document["objectives"]
    objectives = np.array([[individual["objectives"][name] for name in names] for individual in document["individuals"]], np.float64)
    evaluator, _ = parts(recipe.problem, recipe.algorithm)
    return plot_front(run, names, objectives.reshape(-1, len(names)), _true_front(evaluator), document["minimise"])


def _true_front(evaluator: Evaluator) -> np.ndarray | None:
    front = getattr(getattr(evaluator, "problem", None), "front", None)
    try:
        return front() if callable(front) else None
    except LamarckianError:  # a problem that knows its front only for other numbers of objectives
        return None


def _reference(recipe: EvolutionRecipe, objectives: int | None) -> np.ndarray | None:
    if recipe.record.reference is None:
        return None
    reference = np.asarray(recipe.record.reference, np.float64)
    if objectives is not None:
        point = _of_all(reference, objectives)
        hypervolume(point[None] - 1, point)  # says now what it lacks, not after the first generation
    return reference


def _of_all(reference: np.ndarray, objectives: int) -> np.ndarray:
    """The reference point `[M]`."""
    if reference.ndim and len(reference) != objectives:
        raise RecipeError(
            f"record.reference: given {len(reference)} numbers; the problem has {objectives} objectives, or give one number for all"
        )
    return np.broadcast_to(reference, objectives)


def _workers(recipe: EvolutionRecipe) -> Callable[[Bench], Workers] | None:
    wanted = recipe.workers.count
    count = cores() if wanted == "auto" else wanted
    if count == 0:
        return None
    config = {
        "problem": recipe.problem.model_dump(mode="json"),
        "algorithm": recipe.algorithm.model_dump(mode="json"),
        "seed": recipe.seed,
    }
    return lambda _: Processes(LocalCluster(MOST_DEATHS), count, config, recipe.failures.timeout_s)
