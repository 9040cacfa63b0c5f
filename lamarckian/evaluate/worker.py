"""A worker process of an evolution: makes and judges one candidate after another."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lamarckian.ec.algorithm import Algorithm, algorithm_seed
from lamarckian.ec.evaluator import Evaluator, as_evaluator, finish
from lamarckian.ec.genome import Genes
from lamarckian.ec.population import Evaluation
from lamarckian.ec.workers import Bench, Result
from lamarckian.evaluate.candidates import Done, Judging, Ready, Task, done, proposal, unpack
from lamarckian.plugins import Section, build
from lamarckian.transport.channel import Outbox

IDLE_S = 60.0


def parts(problem: Section, algorithm: Section) -> tuple[Evaluator, Algorithm]:
    """The evaluator and the algorithm that sections of a recipe name. Raises RecipeError or MisuseError where that cannot be."""
    return as_evaluator(build("problem", problem)), build("evolution", algorithm)


def main(config: dict[str, Any]) -> None:
    """Works until the process is ended.

    config: `problem` and `algorithm`, sections of a recipe; `seed`, of the run; `address`, of who drives; `name`, of this worker;
        `attempt`; `timed`: whether judging is timed.
    """
    evaluator, algorithm = parts(Section(**config["problem"]), Section(**config["algorithm"]))
    genome = evaluator.describe()
    algorithm.begin(genome, evaluator.objectives, algorithm_seed(config["seed"]))
    outbox = Outbox([Task], config["address"], config["name"])
    bench = Bench(algorithm, _Announced(evaluator, outbox, config["attempt"]) if config["timed"] else evaluator, genome)
    finish(np.zeros((1, 1)), np.zeros(1), {})  # compiled now, not on a candidate's time
    outbox.send(Ready(config["attempt"]))
    shared: dict[str, np.ndarray] = {}
    while True:
        task = outbox.receive(IDLE_S)
        if task is None:
            continue
        if task.shared is not None:
            shared = unpack(task.shared)
        outbox.send(_work(bench, task, shared, config["attempt"]))


class _Announced:
    """An evaluator that says when it begins."""

    def __init__(self, evaluator: Evaluator, outbox: Outbox, attempt: int) -> None:
        self.minimise, self.objectives = evaluator.minimise, evaluator.objectives
        self.describe, self.initialize = evaluator.describe, evaluator.initialize
        self._judge, self._outbox, self._attempt = evaluator.evaluate, outbox, attempt

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """As `Evaluator.evaluate`."""
        self._outbox.send(Judging(self._attempt, int(ids[0])))
        return self._judge(ids, values)


def _work(bench: Bench, task: Task, shared: dict[str, np.ndarray], attempt: int) -> Done:
    started = time.perf_counter()
    genes, evaluation = bench.work(proposal(task, shared))
    inherited = evaluation.genes is not None
    return done(attempt, Result(task.id, genes, evaluation, time.perf_counter() - started), inherited)
