"""The evaluator: the one thing evolution knows of what it optimises. And how problems of one's own become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from lamarckian.ec.genome import Genes, Genome, Real
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.ec.ranking.survival import all_finite
from lamarckian.errors import EvaluationError, LamarckianError, MisuseError


class Evaluator(Protocol):
    """Describes genomes, makes first ones, and judges them.

    minimise: whether its objectives are to be minimised. objectives: how many (M), or None where only the first evaluation tells.
    It may have `singly = True`, where judging many in one call gains nothing, so that each counts as soon as it is judged.
    """

    minimise: bool
    objectives: int | None

    def describe(self) -> Genome:
        """What is to be evolved."""
        ...

    def initialize(self, count: int, generator: np.random.Generator) -> Genes | None:
        """The genes of `count` first individuals; None: let the genome be sampled."""
        ...

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """Judges candidates `ids`, whose genes stand for `values`, part → `[N, L]`.

        A candidate that cannot be judged is told in `Evaluation.faults`; one whose numbers are not finite fails without that.
        Raises EvaluationError where the evaluator itself is wrong.
        """
        ...


class Vectorised:
    """A problem that judges many candidates in one call.

    problem: has `bounds` (low, high: reals only) or `genome`; `evaluate(x)`, which takes `[N, L]` for bounds, and part → `[N, L]` for a
        genome, and returns objectives `[N, M]` (or `[N]`), or these and the violation of the constraints `[N]` (or `[N, K]`);
        what it takes cannot be written to: copy it to work in place;
        optionally `minimise` (default True), `objectives` (M) and `initialize(count, generator)`.
    """

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self.minimise = bool(getattr(problem, "minimise", True))
        self.objectives: int | None = getattr(problem, "objectives", None)
        if self.objectives is not None and not (isinstance(self.objectives, int | np.integer) and self.objectives >= 1):
            raise MisuseError(f"{type(problem).__name__}.objectives is how many there are, at least 1, not {self.objectives!r}")
        self._genome, self.flat = genome_of(problem)

    def describe(self) -> Genome:
        """As `Evaluator.describe`."""
        return self._genome

    def initialize(self, count: int, generator: np.random.Generator) -> Genes | None:
        """As `Evaluator.initialize`; the problem's own, where it has that."""
        own = getattr(self.problem, "initialize", None)
        made = own(count, generator) if own is not None else None
        if made is None:
            return None
        made = {"x": made} if self.flat else made
        if not isinstance(made, Mapping) or set(made) != set(self._genome.parts):
            raise MisuseError(f"the first individuals must be values of the parts {', '.join(self._genome.parts)}, not {made!r:.200}")
        with np.errstate(invalid="ignore", divide="ignore"):  # of logarithms, which whoever checks the genes finds
            return self._genome.encode(made)

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """As `Evaluator.evaluate`; where the whole call raises, each candidate is tried alone, to find whose fault it was."""
        try:
            result = self.problem.evaluate(values["x"] if self.flat else values)
        except LamarckianError:
            raise
        except (Exception, SystemExit) as error:
            if len(ids) == 1:
                return failed_evaluation(1, self.objectives, {0: Fault("raised", describe_error(error))})
            rows = [slice(row, row + 1) for row in range(len(ids))]
            return _join([self.evaluate(ids[row], {name: array[row] for name, array in values.items()}) for row in rows])
        evaluation = read_result(result, ids, self.objectives)
        self.objectives = evaluation.raw.shape[1]
        return evaluation


class OneByOne:
    """A plain function of one candidate.

    function: takes `[L]` where the genome is given as one `Real`, else part → `[L]`; returns an objective, or a list of them.
    genome: what it takes. minimise: whether its results are to be minimised.
    """

    def __init__(self, function: Callable[[Any], Any], genome: Genome | Real, minimise: bool = True) -> None:
        self.minimise = minimise
        self.objectives: int | None = None
        self._function = function
        self.flat = isinstance(genome, Real)
        self._genome = Genome({"x": genome}) if isinstance(genome, Real) else genome

    def describe(self) -> Genome:
        """As `Evaluator.describe`."""
        return self._genome

    def initialize(self, count: int, generator: np.random.Generator) -> Genes | None:
        """As `Evaluator.initialize`."""
        return None

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """As `Evaluator.evaluate`. A function that raises fails that candidate only."""
        faults: dict[int, Fault] = {}
        raw: np.ndarray | None = None
        for row in range(len(ids)):
            given = {name: array[row].copy() for name, array in values.items()}  # a function that works in place must not change genes
            try:
                result = self._function(given["x"] if self.flat else given)
            except LamarckianError:
                raise
            except (Exception, SystemExit) as error:
                faults[row] = Fault("raised", describe_error(error))
                continue
            expected = "the function must return a number, or a list of numbers"
            objectives = _numbers(result, ids[row : row + 1], expected)
            if objectives.ndim > 1 or not objectives.size:
                raise _broken(ids[row : row + 1], f"{expected}, not an array of shape {list(objectives.shape)}")
            if self.objectives is None:
                self.objectives = objectives.size
            if objectives.size != self.objectives:
                raise EvaluationError(f"candidate {ids[row]} has {objectives.size} objectives; those before it had {self.objectives}")
            if raw is None:
                raw = np.full((len(ids), self.objectives), np.nan)
            raw[row] = objectives
        if raw is None:
            return failed_evaluation(len(ids), self.objectives, faults)
        return finish(raw, np.zeros(len(ids)), faults)


def as_evaluator(problem: Any, genome: Genome | Real | None = None, minimise: bool | None = None) -> Evaluator:
    """What `evolve` was given, as an evaluator: an evaluator itself, a problem (see `Vectorised`), or a plain function and its genome.

    minimise: for a function; None: True. A problem says so itself. Raises MisuseError where it is none of these.
    """
    if isinstance(problem, type):
        raise MisuseError(f"problem must be an object, not the class itself: write {problem.__name__}()")
    if all(callable(getattr(problem, method, None)) for method in ("describe", "initialize", "evaluate")):
        _refuse_settings("an evaluator", genome, minimise)
        return problem  # type: ignore[no-any-return]
    if callable(getattr(problem, "evaluate", None)):
        _refuse_settings("a problem", genome, minimise)
        return Vectorised(problem)
    if callable(problem):
        if not isinstance(genome, Genome | Real):
            raise MisuseError("a plain function needs a genome: evolve(function, genome=Real(low, high, length=…), …)")
        return OneByOne(problem, genome, minimise is not False)
    raise MisuseError(f"problem must be an object with `evaluate` and `bounds` or `genome`, or a function, not {problem!r}")


def genome_of(problem: Any) -> tuple[Genome, bool]:
    """The genome of a problem, and whether it takes one array of reals (`bounds`) rather than an array a part."""
    genome, bounds = getattr(problem, "genome", None), getattr(problem, "bounds", None)
    who = type(problem).__name__
    if isinstance(genome, Mapping):
        genome = Genome(genome)
    if isinstance(genome, Genome):
        return genome, False
    if genome is not None:
        raise MisuseError(f"{who}.genome must be a Genome, not {genome!r}")
    try:
        low, high = bounds  # type: ignore[misc]
    except (TypeError, ValueError):
        raise MisuseError(f"{who} needs `bounds`, a pair of lists (low, high), or a `genome`; bounds is {bounds!r}") from None
    return Genome({"x": Real(low, high)}), True


def read_result(result: Any, ids: np.ndarray, expected: int | None) -> Evaluation:
    """An evaluation from what a vectorised problem returned for candidates `ids`. expected: objectives M, where known.

    Raises EvaluationError where it has not the shape that it must have.
    """
    objectives, violation = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    count = len(ids)
    if violation is not None and expected is None and np.ndim(objectives) == np.ndim(violation) == 1:
        raise _broken(
            ids,
            "evaluate returned two lists, which are an objective and the violation of the constraints, or else two objectives: "
            f"say which by `objectives = 1`, or return the two objectives as one array [{count}, 2], such as np.stack([f1, f2], axis=1)",
        )
    raw = _numbers(objectives, ids, "evaluate must return objectives")
    if raw.ndim == 1 and expected in (None, 1):
        raw = raw[:, None]
    if raw.ndim != 2 or len(raw) != count or not raw.shape[1]:
        raise _broken(ids, f"evaluate must return objectives [{count}, {expected or 'M'}], not an array of shape {list(raw.shape)}")
    if expected not in (None, raw.shape[1]):
        raise _broken(ids, f"evaluate returned {raw.shape[1]} objectives a candidate; expected are {expected}")
    if violation is None:
        return finish(raw, np.zeros(count), {})
    broken = _numbers(violation, ids, "evaluate must return a violation of each candidate")
    if broken.ndim not in (1, 2) or len(broken) != count:
        raise _broken(ids, f"evaluate must return a violation of each candidate [{count}], not of shape {list(broken.shape)}")
    broken = np.maximum(broken, 0.0)  # below 0 is how far a constraint is from being broken
    return finish(raw, broken.sum(axis=1) if broken.ndim == 2 else broken, {})


def check_evaluation(evaluation: Any, ids: np.ndarray) -> Evaluation:
    """What an evaluator of one's own returned for candidates `ids`, of which those have failed whose numbers are not finite.

    Raises EvaluationError where it is not what `Evaluation` says.
    """
    count = len(ids)
    if not isinstance(evaluation, Evaluation):
        raise _broken(ids, f"an evaluator must return an Evaluation, not {evaluation!r:.200}")
    raw = _numbers(evaluation.raw, ids, "Evaluation.raw must be numbers")
    violation = _numbers(evaluation.violation, ids, "Evaluation.violation must be numbers")
    faults = dict(evaluation.faults)
    if raw.ndim != 2 or len(raw) != count or not (raw.shape[1] or len(faults) == count):
        raise _broken(ids, f"Evaluation.raw must be of shape [{count}, M], not {list(raw.shape)}")
    if violation.shape != (count,):
        raise _broken(ids, f"Evaluation.violation must be of shape [{count}], not {list(violation.shape)}")
    if faults and not set(faults) <= set(range(count)):
        raise _broken(ids, f"Evaluation.faults must be by row, from 0 to {count - 1}, not of {sorted(faults)}")
    finished = finish(raw, np.maximum(violation, 0.0), faults)
    finished.genes = evaluation.genes
    return finished


def finish(raw: np.ndarray, violation: np.ndarray, faults: dict[int, Fault]) -> Evaluation:
    """An evaluation in which candidates whose numbers are not finite have failed."""
    if not all_finite(raw, violation):
        for row in np.flatnonzero(~(np.isfinite(raw).all(axis=1) & np.isfinite(violation))).tolist():
            faults.setdefault(row, Fault("numbers", f"not finite: objectives {raw[row].tolist()}, violation {violation[row]:g}"))
    return Evaluation(raw, violation, faults)


def failed_evaluation(count: int, objectives: int | None, faults: dict[int, Fault]) -> Evaluation:
    """An evaluation of which nothing came."""
    return Evaluation(np.full((count, objectives or 0), np.nan), np.zeros(count), faults)


def name_candidates(ids: np.ndarray) -> str:
    """`candidate 7`, or `candidates 0 to 99`."""
    return f"candidate {ids[0]}" if len(ids) == 1 else f"candidates {min(ids)} to {max(ids)}"


def describe_error(error: BaseException) -> str:
    """An exception in a line, with the place in the user's code where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {error}{place}"


def _numbers(value: Any, ids: np.ndarray, expected: str) -> np.ndarray:
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        given = np.empty(0, object)
    if given.dtype.kind not in "biuf":  # such as None, which numpy takes for NaN
        raise _broken(ids, f"{expected}, not {value!r:.200}")
    return np.array(given, np.float64, order="C")  # a copy: it may be a buffer that is used again


def _broken(ids: np.ndarray, fault: str) -> EvaluationError:
    return EvaluationError(f"{name_candidates(ids)}: {fault}")


def _refuse_settings(what: str, genome: Any, minimise: bool | None) -> None:
    if genome is not None or minimise is not None:
        raise MisuseError(f"{what} has its own genome and `minimise`: leave these arguments to plain functions")


def _join(evaluations: list[Evaluation]) -> Evaluation:
    width = max(evaluation.raw.shape[1] for evaluation in evaluations)
    raw = [evaluation.raw if evaluation.raw.shape[1] == width else np.full((1, width), np.nan) for evaluation in evaluations]
    faults = {row: fault for row, evaluation in enumerate(evaluations) for fault in evaluation.faults.values()}
    return Evaluation(np.concatenate(raw), np.concatenate([evaluation.violation for evaluation in evaluations]), faults)
