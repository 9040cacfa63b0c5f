"""Recipes of evolution: a problem, and how it is optimised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from lamarckian.errors import RecipeError
from lamarckian.plugins import Section, build, validate
from lamarckian.recipe.document import Auto, Count, Finite, Keys, Seconds, complete

KINDS = ("problem", "evolution")


class Workers(Keys):
    count: Annotated[int, Field(ge=0)] | Auto = 0
    """Worker processes; 0: this process does it, many candidates in one call where the problem can; auto: one a core."""


class Failures(Keys):
    """What happens to a candidate that cannot be judged."""

    timeout_s: Seconds | None = None
    """After which a worker that judges a candidate is taken for hung, and replaced. What a problem compiles in its first call counts."""
    retries: Annotated[int, Field(ge=0)] = 0
    then: Literal["skip", "penalise", "stop"] = "skip"


class EvolutionStop(Keys):
    """When evolution ends: as soon as one of these is reached. With none it goes on until Ctrl-C."""

    evaluations: Count | None = None
    generations: Count | None = None
    minutes: Seconds | None = None
    target: Finite | None = None
    """The best objective, where there is one objective."""
    hypervolume: Finite | None = None
    """Of the front, where there are several, with respect to `record.reference`."""


class EvolutionCheckpoints(Keys):
    every_s: Seconds | None = 60.0
    every_generations: Count | None = None
    keep: Count = 3
    """The newest ones that stay."""


class EvolutionRecord(Keys):
    every_s: Seconds = 5.0
    """Time between two lines of metrics."""
    every_evaluations: Count | None = None
    """Candidates between two lines, where that is sooner."""
    reference: Finite | list[Finite] | None = None
    """The point that hypervolume is measured from, worse than the front in every objective; one number stands for all objectives."""


class EvolutionRecipe(Keys):
    """All about a run of evolution. Made by `load` or `resolve`, which also check and complete the plug-ins' settings."""

    problem: Section
    algorithm: Section
    mode: Literal["synchronous", "asynchronous", "steady"] = "synchronous"
    """synchronous: a generation at a time; asynchronous: no worker ever waits, stragglers join the next generation; steady: selection at
    each return."""
    workers: Workers = Workers()
    failures: Failures = Failures()
    stop: EvolutionStop = EvolutionStop()
    checkpoint: EvolutionCheckpoints = EvolutionCheckpoints()
    record: EvolutionRecord = EvolutionRecord()
    seed: Annotated[int, Field(ge=0)] = 0


def resolve(document: Mapping[str, Any]) -> EvolutionRecipe:
    """A checked recipe from its plain form; the settings of plug-ins are completed with their defaults.

    Raises RecipeError for any fault, MisuseError where problem or algorithm refuse their settings.
    """
    recipe = validate(EvolutionRecipe, document)
    recipe = recipe.model_copy(
        update={"problem": complete("problem", recipe.problem), "algorithm": complete("evolution", recipe.algorithm)}
    )
    problem, algorithm = build("problem", recipe.problem), build("evolution", recipe.algorithm)
    if recipe.mode != "synchronous" and not algorithm.overlaps:
        raise RecipeError(f"mode: given {recipe.mode!r}; {recipe.algorithm.name} learns from whole generations; allowed: synchronous")
    objectives, reference = getattr(problem, "objectives", None), recipe.record.reference
    if isinstance(reference, list) and objectives not in (None, len(reference)):
        raise RecipeError(
            f"record.reference: given {len(reference)} numbers; the problem has {objectives} objectives, or give one number for all"
        )
    if recipe.stop.target is not None and objectives not in (None, 1):
        raise RecipeError(f"stop.target: is for one objective; the problem has {objectives}: use stop.hypervolume and record.reference")
    if recipe.stop.hypervolume is not None and objectives == 1:
        raise RecipeError("stop.hypervolume: is for several objectives; the problem has 1: use stop.target")
    if recipe.stop.hypervolume is not None and reference is None:
        raise RecipeError("stop.hypervolume: needs record.reference, the point that hypervolume is measured from")
    if recipe.failures.timeout_s is not None and recipe.workers.count == 0:
        raise RecipeError("failures.timeout_s: needs workers in processes of their own: set workers.count to 1 or more")
    return recipe
