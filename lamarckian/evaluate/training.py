"""Trains what a recipe says, from the first sample to the last checkpoint; the same loop for both modes."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lamarckian.data.pool import MatchResult
from lamarckian.errors import CheckpointError, NumericsError
from lamarckian.evaluate.changes import Changes
from lamarckian.evaluate.distant import DistantFleet
from lamarckian.evaluate.fleet import ParallelFleet, SerialFleet
from lamarckian.evaluate.interrupts import interrupts
from lamarckian.evaluate.league import League
from lamarckian.evaluate.paid import Paid
from lamarckian.evaluate.plan import begin_from, build_learning, plan, restore
from lamarckian.evaluate.posts import Post, Summary
from lamarckian.evaluate.study import Study
from lamarckian.learner.learner import Learner, Meter
from lamarckian.learner.ring import Ring
from lamarckian.nets.policy import parameter_count
from lamarckian.recipe import Recipe
from lamarckian.record import checkpoint
from lamarckian.record.metrics import Metrics
from lamarckian.record.progress import Display, fraction
from lamarckian.record.run import Run, write, writing
from lamarckian.record.signature import check_signature, signature
from lamarckian.record.status import write_status
from lamarckian.rl.algorithm import opponent, publication

KEPT_OUTCOMES = 10_000

AnyFleet: TypeAlias = SerialFleet | ParallelFleet | DistantFleet | Study


@dataclass
class Totals:
    """What has been counted since the run began; all of it is in a checkpoint.

    outcomes: (score, return) of matches, the newest last; where nobody plays, of judgements by recorded matches, whose return is 0.
    """

    steps: int = 0
    version: int = 0
    seconds: float = 0.0
    matches: int = 0
    outcomes: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_OUTCOMES))

    def add(self, version: int, samples: int, results: list[MatchResult]) -> None:
        """Counts an update."""
        self.version = version
        self.steps += samples
        self.matches += len(results)
        self.outcomes.extend((result.score, sum(result.returns)) for result in results)

    def mean(self, window: int, whole: bool = False) -> tuple[float | None, float | None]:
        """Mean score and return of the last `window` matches; None where there was none, or `whole` and fewer."""
        newest = list(self.outcomes)[-window:]
        if not newest or (whole and len(newest) < window):
            return None, None
        score, total = np.mean(newest, axis=0).tolist()
        return score, total


def train(recipe: Recipe, run: Run, progress: Display, resume: bool = False, taken: int | None = None) -> Summary:
    """Trains until the recipe says stop, or Ctrl-C; goes on from the last checkpoint with `resume`.

    taken: how many requests of `lamarckian.evaluate.changes` the recipe has in it, where it was opened with them.
    Raises a `LamarckianError` where that cannot be done or go on. What was saved before is then intact.
    """
    return Training(recipe, run, progress, resume, taken).run()


class Training:
    """One training, in this process: algorithm, fleet, records.

    post: of its learner, where actors are on many machines.
    """

    def __init__(self, recipe: Recipe, run: Run, progress: Display, resume: bool, taken: int | None, post: Post | None = None) -> None:
        self._recipe = recipe
        self._post = post
        self._run = run
        self._progress = progress
        self._plan = plan(recipe, run)
        if recipe.start is not None and not resume:
            begin_from(recipe.start, recipe, self._plan.policy, self._plan.role)
        self._algorithm = build_learning(self._plan)
        self._totals = Totals()
        self._studies = hasattr(self._algorithm, "validate")
        self._saved = checkpoint.load(run) if resume else None
        self._state: Any = None
        if self._saved is not None:
            self._restore(self._saved)
        self._changes = Changes(run, recipe, self._totals.steps, taken)
        self._weigh()
        self._league = self._open_league()
        self._stopped = False

    def run(self) -> Summary:
        """Trains; see `train`."""
        with ExitStack() as stack:
            metrics = stack.enter_context(Metrics(self._run, self._saved.steps if self._saved else None))
            if self._changes.due:
                self._progress.note(f"from here on {_listed(self._changes.weights)}")
            ring = None if self._post is None else stack.enter_context(self._post.join(self._plan.device))
            fleet = self._fleet()
            stack.callback(fleet.close)
            self._progress.note(f"{parameter_count(self._plan.policy):,} parameters, {self._players()}")
            stack.enter_context(interrupts(self._interrupt))
            self._loop(fleet, metrics, ring)
            self._changes.keep(self._totals.steps, self._totals.version)
            folder = self._save(fleet)
        totals = self._totals
        score, _ = totals.mean(self._window)
        scored = "epoch" if self._studies else "match"
        return Summary(self._stopped, totals.steps, totals.version, score, scored, totals.seconds / 60, str(folder))

    def _loop(self, fleet: AnyFleet, metrics: Metrics, ring: Ring | None) -> None:
        totals, recipe = self._totals, self._recipe
        discounts = getattr(self._algorithm, "discounts", {})
        paid = Paid(recipe.learners, lambda: self._changes.weights, discounts, recipe.actor.matches)
        learner = Learner(self._algorithm, fleet, totals.version, paid, ring)
        every, every_s = self._recipe.checkpoint, self._recipe.record.every_s
        started = time.perf_counter() - totals.seconds
        saved_s, recorded_s = totals.seconds, totals.seconds
        line: dict[str, Any] = {}
        told_s = -math.inf
        while not (self._stopped or self._done()):
            self._look()
            with self._finite(learner.version + 1):
                learned = learner.update(self._share())
            totals.seconds = time.perf_counter() - started
            if totals.seconds - told_s >= every_s:  # whether anything is learned or not
                told_s = totals.seconds
                write_status(self._run, line, fleet.machines(totals.version))
            if learned is None:
                continue
            self._run.keep_resume()
            self._changes.keep(totals.steps, totals.version)
            totals.add(learner.version, *learned)
            with self._finite(learner.version):
                judged = self._judge(fleet, learner.meter)
            if self._league is not None:
                self._league.update(totals.steps, totals.version, learned[1])
            if totals.seconds - recorded_s >= every_s or self._done() or self._stopped:
                recorded_s = totals.seconds
                line = self._line(learner.meter) | fleet.metrics()
                metrics.write(line)
                self._progress.update(line)
            if (
                judged
                or (every.every_s and totals.seconds - saved_s >= every.every_s)
                or (every.every_updates and totals.version % every.every_updates == 0)
            ):
                saved_s = totals.seconds
                self._save(fleet)
        write_status(self._run, line, fleet.machines(totals.version))
        learner.end()

    def _judge(self, fleet: AnyFleet, meter: Meter) -> bool:
        """Whether the present version was judged by recorded matches, and no version before was better."""
        found = fleet.judge() if isinstance(fleet, Study) else None
        if found is None:
            return False
        meter.add(0, [], {}, found)
        self._totals.outcomes.append((-found["validation.loss.policy"], 0.0))
        return not found["validation.since_best"]

    @contextmanager
    def _finite(self, update: int) -> Iterator[None]:
        """Says of a number that is not finite in which update it came, and what is saved."""
        try:
            yield
        except NumericsError as error:
            saved = checkpoint.saved(self._run)
            kept = f"the last good checkpoint is {self._run.checkpoints_path / str(saved[-1])}" if saved else "there is no checkpoint yet"
            raise NumericsError(f"update {update}: {error}; {kept}") from error

    def _line(self, meter: Meter) -> dict[str, Any]:
        totals = self._totals
        score, total = totals.mean(self._window)
        return {
            "steps": totals.steps,
            "updates": totals.version,
            "minutes": totals.seconds / 60,
            **({"score": score} if self._studies else {"matches": totals.matches, "score": score, "return": total}),
            **meter.take(),
            **(self._league.metrics() if self._league is not None else {}),
            **({f"weight/{name}": weight for name, weight in self._changes.weights.items()} if self._weighed() else {}),
        }

    def _look(self) -> None:
        """Takes in what `lamarckian set` asks for."""
        changed = self._changes.look()
        if changed:
            self._weigh()
            self._progress.note(f"{_listed(changed)} from step {self._totals.steps:,} on")

    def _weigh(self) -> None:
        if hasattr(self._algorithm, "set_reward_weights"):
            self._algorithm.set_reward_weights(self._changes.weights)

    def _weighed(self) -> bool:
        return len(self._changes.weights) > 1 or any(weight != 1 for weight in self._changes.weights.values())

    def _done(self) -> bool:
        stop, totals = self._recipe.stop, self._totals
        limits = [(totals.steps, stop.steps), (totals.version, stop.updates), (totals.seconds / 60, stop.minutes)]
        if any(limit is not None and value >= limit for value, limit in limits):
            return True
        score, _ = totals.mean(1 if self._studies else stop.score_matches, whole=True)
        return stop.score is not None and score is not None and score >= stop.score

    def _share(self) -> float:
        """How much of the run is done, in [0, 1], for schedules; by the clock only where nothing else is given."""
        values = {"steps": self._totals.steps, "updates": self._totals.version}
        share = fraction(self._recipe.stop, values)
        return share if share is not None else fraction(self._recipe.stop, {"minutes": self._totals.seconds / 60}) or 0.0

    @property
    def _window(self) -> int:
        """How many outcomes make a score: of matches many, of judgements the last."""
        return 1 if self._studies else self._recipe.record.score_window

    def _players(self) -> str:
        if self._studies:
            return "learns from recorded matches"
        if self._post is None:
            return f"{self._plan.actors} actors"
        learners = len(self._post.addresses.pools)
        return f"{'a learner' if learners == 1 else f'{learners} learners'}, and actors on all machines that come"

    def _fleet(self) -> AnyFleet:
        if self._studies:
            return Study(self._plan, self._algorithm, self._state)
        version, shown = self._totals.version, publication(self._algorithm)
        if self._recipe.mode == "serial":
            return SerialFleet(self._plan, version, shown, self._state)
        if self._post is not None:
            return DistantFleet(self._plan, self._post, version, shown, self._progress.note)
        return ParallelFleet(self._plan, version, shown, self._progress.note)

    def _save(self, fleet: AnyFleet) -> Path:
        totals = self._totals
        arrays, state = checkpoint.pack(fleet.save())
        league = self._league
        score, measure = self._score(fleet)
        folder = checkpoint.save(
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
                    "acting": self._acting(),
                    **({} if league is None else {"league": league.save()}),
                },
                replay=self._algorithm.save_replay() if hasattr(self._algorithm, "save_replay") else {},
            ),
            self._recipe.checkpoint.keep,
            measure,
        )
        if league is not None:
            league.tidy(checkpoint.saved(self._run))
            with writing(self._run.standings_path):
                write(self._run.standings_path, json.dumps(league.standings(), indent=1))
        return folder

    def _score(self, fleet: AnyFleet) -> tuple[float | None, str]:
        """By which the best checkpoint is chosen, and what it is: a run that goes on may have a league, or none, that it had not before."""
        if self._league is not None:
            return self._league.rating(), self._league.measure
        if isinstance(fleet, Study):
            return fleet.score, "-validation/loss/policy"
        return self._totals.mean(self._window, whole=True)[0], "score"

    def _restore(self, saved: checkpoint.Checkpoint) -> None:
        where = f"checkpoint {saved.steps} of {self._run.folder}"
        check_signature(saved.signature, self._plan.role, where)
        restore(self._plan.policy, saved.policy, str(self._run.folder))
        self._algorithm.load_state_dict(checkpoint.as_tensors(saved.optimizer))
        self._refill(saved.steps, where)
        totals = self._totals
        totals.steps, totals.version = saved.steps, saved.version
        totals.seconds, totals.matches = saved.state["seconds"], saved.state["matches"]
        totals.outcomes.extend((score, total) for score, total in saved.state["outcomes"])
        state = checkpoint.unpack(saved.arrays, saved.state["fleet"])
        if self._studies:
            self._state = state
        elif self._recipe.mode == "serial" and state is not None:
            if saved.state["acting"] != self._acting():
                raise CheckpointError(
                    f"{where} holds matches in their middle, played with {saved.state['acting']}; with {self._acting()} they cannot go on. "
                    "Leave those settings, or resume with mode=parallel, which starts new matches"
                )
            self._state = state

    def _refill(self, steps: int, where: str) -> None:
        """Gives the algorithm back what the newest checkpoint alone holds."""
        if hasattr(self._algorithm, "load_replay"):
            replay = checkpoint.load_replay(self._run, steps)
            if replay:
                self._algorithm.load_replay(replay)
            elif replay is None:
                self._progress.note(f"{where} has lost its replay, which the newest alone keeps: it fills anew, and learning waits for it")

    def _open_league(self) -> League | None:
        if self._recipe.league is None or self._studies:
            return None
        totals, state = self._totals, None if self._saved is None else self._saved.state.get("league")
        return League(self._recipe.league, self._run.league_path, totals.steps, totals.version, lambda: opponent(self._algorithm), state)

    def _acting(self) -> dict[str, Any]:
        """What the saved matches of serial mode depend on."""
        description = self._plan.description
        league = self._recipe.league
        return {
            "roles": description.roles,
            "game": description.game,
            "matches": description.matches,
            "fragment": description.steps,
            "frame_skip": description.frame_skip,
            "batched": description.batched,
            **({"zero_sum": True} if description.zero_sum else {}),
            **({} if league is None else {"league": league.model_dump(include={"bots", "runs", "swap_sides", "distinct"})}),
        }

    def _interrupt(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self._progress.note("stopping after this update, to save; once more stops at once")


def _listed(weights: Mapping[str, float]) -> str:
    return ", ".join(f"rewards.{name} = {weight:g}" for name, weight in weights.items())
