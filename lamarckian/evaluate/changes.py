"""Changes of a run's reward weights: `lamarckian set` asks for them, the training takes them between two updates.

Both append to `changes.jsonl` in the run's folder, one JSON object a line. A request has `time` and `set`, new weights by reward. What
took effect has `time`, `steps` and `updates` (from when on), `weights` (all of them), and `taken`: how many requests of the file are in
them. Where a run went on from an earlier checkpoint, `steps` is less than in the line before.
"""

from __future__ import annotations

import fcntl
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lamarckian.errors import RecipeError, RunFolderError
from lamarckian.recipe import Recipe
from lamarckian.recipe.document import parse
from lamarckian.record.run import Run, open_run, write, writing

LOOK_EVERY_S = 1.0
PREFIX = "rewards."


def ask(folder: str | Path, changes: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Asks a run for `rewards.NAME=NUMBER`, each; the new weights, and whether the run is going on now.

    A run that is not takes them when it is resumed. Raises RunFolderError where there is no such run, it is an evolution, or it cannot be
    written to; RecipeError where a change does not fit the run.
    """
    run = open_run(folder)
    if "problem" in parse(run.recipe_path.read_text()):
        raise RunFolderError(f"run {folder} is an evolution, which has no rewards to weigh")
    weights = dict(map(_parse, changes))
    run.recipe(_overrides(run, weights))
    _append(run, {"set": weights})
    return weights, run.at_work()


def waiting(folder: str | Path) -> tuple[list[str], int]:
    """What a run was asked for and has not taken yet, as overrides of its recipe; and how many requests there are."""
    run = open_run(folder)
    requests, effects = _read(run)
    weights = _joined(requests[_taken(effects) :])
    return _overrides(run, weights) if weights else [], len(requests)


class Changes:
    """A training's side: `look` between two updates, `keep` after the first update with what it gave.

    taken: the requests that the recipe has in it already, where a resumed run was opened with them; None for those that it took before.
    weights: of all rewards, now. due: whether that is new and not written down.
    """

    def __init__(self, run: Run, recipe: Recipe, steps: int, taken: int | None = None) -> None:
        _, effects = _read(run)
        self.weights = dict(recipe.rewards.weights)
        self._run = run
        self._recipe = recipe
        self._taken = _taken(effects) if taken is None else taken
        self._size = -1
        self._next_s = 0.0
        self.due = self._taken > _taken(effects) or any(last["weights"] != self.weights or last["steps"] > steps for last in effects[-1:])

    def look(self) -> dict[str, float] | None:
        """The weights from the next update on, where they have changed; looks at the file once in a while only."""
        now = time.monotonic()
        if now < self._next_s:
            return None
        self._next_s = now + LOOK_EVERY_S
        try:
            size = self._run.changes_path.stat().st_size
        except FileNotFoundError:
            return None
        if size == self._size:
            return None
        self._size = size
        requests, _ = _read(self._run)
        new = {name: value for name, value in _joined(requests[self._taken :]).items() if name in self.weights}
        self.due = self.due or len(requests) > self._taken
        self._taken = len(requests)
        if not new:
            return None
        self.weights |= new
        return new

    def keep(self, steps: int, updates: int) -> None:
        """Writes down that the present weights hold from there on, where that is new: in the recipe, for resumes, and in the file."""
        if not self.due:
            return
        rewards = self._recipe.rewards.model_copy(update={"weights": self.weights})
        with writing(self._run.recipe_path):
            write(self._run.recipe_path, self._recipe.model_copy(update={"rewards": rewards}).dump())
        _append(self._run, {"steps": steps, "updates": updates, "weights": self.weights, "taken": self._taken})
        self.due = False


def _parse(change: str) -> tuple[str, float]:
    path, _, value = change.partition("=")
    name = path.removeprefix(PREFIX)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if path == name or not name or not math.isfinite(number):
        raise RecipeError(f"cannot set {change!r}; a change reads rewards.NAME=NUMBER, such as rewards.score=2.0")
    return name, number


def _overrides(run: Run, weights: Mapping[str, float]) -> list[str]:
    """The run's weights with some changed, as an override of its recipe; whole, for a reward's name may have dots in it."""
    document = parse(run.recipe_path.read_text())
    known = document.get("rewards", {}).get("weights", {})
    return [f"rewards.weights={json.dumps({**known, **weights})}"]


def _joined(requests: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: value for request in requests for name, value in request["set"].items()}


def _taken(effects: Sequence[Mapping[str, Any]]) -> int:
    return effects[-1]["taken"] if effects else 0


def _append(run: Run, event: Mapping[str, Any]) -> None:
    line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **event}) + "\n"
    with writing(run.changes_path), run.changes_path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, 2)
        file.seek(max(0, end - 1))
        cut_off = file.read(1) not in (b"\n", b"")
        file.write(b"\n" * cut_off + line.encode())


def _read(run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The requests, and what took effect; without lines that were cut off."""
    events = []
    for line in run.changes_path.read_text().splitlines() if run.changes_path.exists() else []:
        with suppress(ValueError):
            events.append(json.loads(line))
    return [event for event in events if "set" in event], [event for event in events if "taken" in event]
