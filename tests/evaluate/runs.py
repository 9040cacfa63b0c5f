"""Evolves in this process what a document says, and reads what is left of it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from lamarckian.evaluate.evolution import Outcome, evolve
from lamarckian.recipe.evolution import EvolutionRecipe, resolve
from lamarckian.record import checkpoint
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen

TOY = "tests.evaluate.problems:Toy"


def begin(folder: Path, **document: Any) -> tuple[Outcome, str]:
    """A new run: how it ended, and what it said meanwhile."""
    recipe = resolve({"algorithm": {"name": "nsga2", "population": 8}, **document})
    with create(folder, recipe) as run:
        return _evolve(recipe, run, resume=False)


def go_on(folder: Path, *overrides: str) -> tuple[Outcome, str]:
    """The same, from the newest checkpoint."""
    run, recipe = reopen(folder, list(overrides))
    with run:
        return _evolve(recipe, run, resume=True)


def _evolve(recipe: EvolutionRecipe, run: Any, resume: bool) -> tuple[Outcome, str]:
    said = io.StringIO()
    with Progress("", recipe.stop, console=Console(file=said, width=200), unit="evaluations") as progress:
        outcome = evolve(recipe, run, progress, resume)
    return outcome, said.getvalue()


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def front(folder: Path) -> list[list[float]]:
    """The rows of front.csv: id, objectives, genes."""
    with (folder / "front.csv").open() as file:
        return [[float(value) for value in row] for row in list(csv.reader(file))[1:]]


def tree(folder: Path) -> dict[str, Any]:
    """What the evolution has saved in its newest checkpoint."""
    saved = checkpoint.load(open_run(folder))
    return checkpoint.unpack(saved.arrays, saved.state["tree"])["evolution"]  # type: ignore[no-any-return]
