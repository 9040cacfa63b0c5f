"""Who turns proposals into evaluated candidates: here, or in other processes behind the same interface."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lamarckian.ec.algorithm import Algorithm, Proposals
from lamarckian.ec.evaluator import Evaluator, OneByOne, Vectorised, check_evaluation, name_candidates
from lamarckian.ec.genome import Genes, Genome
from lamarckian.ec.population import Evaluation
from lamarckian.errors import EvaluationError, MisuseError


@dataclass
class Result:
    """What became of one candidate.

    genes: part → `[1, L]`; empty where nothing was made. evaluation: of one row. seconds: that it took.
    """

    id: int
    genes: Genes
    evaluation: Evaluation
    seconds: float


class Workers(Protocol):
    """Workers that make and judge one candidate at a time each.

    count: how many there are. free: how many have nothing to do. running_s: seconds that the others have spent so far on what they do now.
    """

    count: int

    @property
    def free(self) -> int: ...

    @property
    def running_s(self) -> float: ...

    def submit(self, proposal: Proposals) -> None:
        """Gives one candidate to a free worker."""
        ...

    def collect(self, timeout_s: float) -> list[Result]:
        """What has come back; waits up to `timeout_s` for the first.

        A candidate that was submitted comes back once, whatever happens to it. Raises a LamarckianError where no work can be done any more.
        """
        ...

    def close(self) -> None:
        """Ends the workers. Harmless when repeated."""
        ...


class Bench:
    """Makes and judges candidates in this process: what every worker does."""

    def __init__(self, algorithm: Algorithm, evaluator: Evaluator, genome: Genome) -> None:
        self._algorithm = algorithm
        self._evaluator = evaluator
        self._genome = genome
        self._checked = type(evaluator) in (Vectorised, OneByOne)  # by themselves

    def work(self, proposals: Proposals) -> tuple[Genes, Evaluation]:
        """The candidates' genes, and what they are worth; genes that the evaluator changed are taken over, but for failed ones.

        Raises EvaluationError where the evaluator broke its contract.
        """
        genes = self._algorithm.realise(proposals)
        values = {name: _read_only(array) for name, array in self._genome.express(genes).items()}
        evaluation = self._evaluator.evaluate(proposals.ids, values)
        if not self._checked:
            evaluation = check_evaluation(evaluation, proposals.ids)
        if evaluation.genes is None:
            return genes, evaluation
        try:
            changed = dict(evaluation.genes)
            if evaluation.faults:
                judged = np.ones(len(proposals), bool)
                judged[list(evaluation.faults)] = False
                changed = {name: np.where(judged[:, None], rows, genes.get(name, 0)) for name, rows in changed.items()}
            return self._genome.check(changed, f"{name_candidates(proposals.ids)}: genes that the evaluator changed"), evaluation
        except (MisuseError, TypeError, ValueError) as error:
            raise EvaluationError(str(error)) from error


class Here:
    """One worker, in this process."""

    count = 1
    running_s = 0.0

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._done: list[Result] = []

    @property
    def free(self) -> int:
        """1 where the last result was collected."""
        return 1 - len(self._done)

    def submit(self, proposal: Proposals) -> None:
        """As `Workers.submit`; works at once."""
        started = time.perf_counter()
        genes, evaluation = self._bench.work(proposal)
        self._done.append(Result(int(proposal.ids[0]), genes, evaluation, time.perf_counter() - started))

    def collect(self, timeout_s: float) -> list[Result]:
        """As `Workers.collect`."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """As `Workers.close`."""


def one_row(rows: Proposals) -> list[Proposals]:
    """The candidates one by one."""
    return [rows.take(np.array([row])) for row in range(len(rows))]


def _read_only(array: np.ndarray) -> np.ndarray:
    """The same numbers, which are genes, so that nobody changes those unawares."""
    view = array.view()
    view.flags.writeable = False
    return view
