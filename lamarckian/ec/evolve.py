"""Evolution in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Algorithm
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.evolution import Evolution, Failures, Mode
from lamarckian.ec.genome import Genome, Real
from lamarckian.ec.result import Result, best_value, result_of
from lamarckian.errors import MisuseError


def evolve(
    problem: Any,
    algorithm: Algorithm,
    evaluations: int,
    seed: int = 0,
    *,
    genome: Genome | Real | None = None,
    minimise: bool | None = None,
    target: float | None = None,
    mode: Mode = "synchronous",
    failures: Failures | None = None,
    each_generation: Callable[[Evolution], Any] | None = None,
) -> Result:
    """Optimises a problem in this process.

    problem: an object with `bounds` or `genome` and a vectorised `evaluate` (see `lamarckian.ec.evaluator.Vectorised`), or a plain function
        of one candidate, which needs a `genome`; `minimise` says whether the function's results are to be minimised (default: yes).
    evaluations: ends with the generation that reaches them. target: ends as soon as the best objective is at least as good.
    failures: see `Failures`. each_generation: called after each selection; what is true ends the run.
    Raises MisuseError where the problem or the algorithm cannot be used so, EvaluationError where the problem breaks its contract.
    """
    for name, value, least in (("evaluations", evaluations, 1), ("seed", seed, 0)):
        if not isinstance(value, int | np.integer) or value < least:
            raise MisuseError(f"{name} must be a whole number of at least {least}, not {value!r}")
    evaluator = as_evaluator(problem, genome, minimise)
    started = time.perf_counter()
    evolution = Evolution(evaluator, algorithm, seed, mode, failures)
    while True:
        if not evolution.advance():
            continue
        if target is not None and evolution.objectives not in (None, 1):
            raise MisuseError(f"a target is for problems of 1 objective, and this one has {evolution.objectives}: leave it out")
        if each_generation is not None and each_generation(evolution):
            break
        if evolution.evaluations >= evaluations or (target is not None and reached(best_value(evolution), target, evaluator.minimise)):
            break
    return result_of(evolution, getattr(evaluator, "flat", False), time.perf_counter() - started)


def reached(best: float | None, target: float, minimise: bool) -> bool:
    """Whether the best objective is at least as good as the target."""
    return best is not None and (best <= target if minimise else best >= target)
