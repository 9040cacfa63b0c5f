"""The loop of evolution, synchronous or not: propose, evaluate, select; and all that has to be kept of it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from lamarckian.ec.algorithm import Algorithm, Proposals, algorithm_seed
from lamarckian.ec.evaluator import Evaluator, name_candidates
from lamarckian.ec.genome import Genes
from lamarckian.ec.offspring import PENALTY, gather, join_proposals
from lamarckian.ec.order import best_first
from lamarckian.ec.population import Evaluation, Fault, Population, join, no_population
from lamarckian.ec.workers import Bench, Here, Result, Workers, one_row
from lamarckian.errors import CheckpointError, EvaluationError, MisuseError
from lamarckian.seeding import generator

Mode: TypeAlias = Literal["synchronous", "asynchronous", "steady"]
"""When survivors are selected, and from whom offspring descend.

synchronous: a generation is proposed at once, and selection waits for all of it. asynchronous: every worker that is free gets a child of
the population as it is; selection happens when a generation's number has arrived, and stragglers join the next one (Lamarckian, Figure 1).
steady: selection at each return.
"""
COLLECT_S = 0.2
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failures:
    """What happens to a candidate that cannot be judged.

    timeout_s: after which a worker is taken for hung and replaced; None: never. retries: how often a candidate is tried again, whose
        evaluation raised or took too long. then: `skip`: it has failed; `penalise`: it counts as worse than anything that can be judged;
        `stop`: so does the run.
    A candidate whose worker died is tried again at least once. Objectives that are not finite are no accident: that candidate has failed.
    """

    timeout_s: float | None = None
    retries: int = 0
    then: Literal["skip", "penalise", "stop"] = "skip"

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not 0 < self.timeout_s < np.inf:
            raise MisuseError(f"failures: timeout_s must be above 0, not {self.timeout_s}")
        if self.retries < 0:
            raise MisuseError(f"failures: retries must be at least 0, not {self.retries}")
        if self.then not in ("skip", "penalise", "stop"):
            raise MisuseError(f"failures: then must be skip, penalise or stop, not {self.then!r}")


class Evolution:
    """One run of an algorithm on a problem.

    workers: makes the workers, given the bench that they would be in this process; None: here, a generation in one call, unless the
        evaluator says that it judges `singly`.
    each_fault: told of each candidate that has failed, by id.

    population: see `Algorithm`. best: the fittest individual so far where there is one objective, a population of at most one.
    evaluations: candidates that came back, of which `failed` failed. generation: selections so far.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        algorithm: Algorithm,
        seed: int = 0,
        mode: Mode = "synchronous",
        failures: Failures | None = None,
        workers: Callable[[Bench], Workers] | None = None,
        each_fault: Callable[[int, Fault], None] | None = None,
    ) -> None:
        failures = failures or Failures()
        if isinstance(algorithm, type) or not callable(getattr(algorithm, "propose", None)):
            example = f"{getattr(algorithm, '__name__', 'NSGA2')}()"
            raise MisuseError(f"algorithm must be an object such as {example}, not {algorithm!r}")
        if mode not in ("synchronous", "asynchronous", "steady"):
            raise MisuseError(f"mode must be synchronous, asynchronous or steady, not {mode!r}")
        if mode != "synchronous" and not algorithm.overlaps:
            raise MisuseError(f"{type(algorithm).__name__} learns from whole generations of its own: use mode 'synchronous'")
        if failures.timeout_s is not None and workers is None:
            raise MisuseError("failures: timeout_s needs workers in processes of their own; a call in this process cannot be ended")
        self.evaluator = evaluator
        self.algorithm = algorithm
        self.genome = evaluator.describe()
        self.mode = mode
        self.failures = failures
        self.objectives = evaluator.objectives
        self.generation = self.evaluations = self.failed = 0
        self._busy_s = 0.0
        self.faults: deque[tuple[int, Fault]] = deque(maxlen=100)
        first = evaluator.initialize(algorithm.starters, generator(seed, "initialize"))
        if first is not None:
            first = self.genome.check(first, "the first individuals")
        algorithm.begin(self.genome, self.objectives, algorithm_seed(seed), first)
        self.best = no_population(self.genome, self.objectives)
        self._bench = Bench(algorithm, evaluator, self.genome)
        singly = mode != "synchronous" or getattr(evaluator, "singly", False)
        self._workers = workers(self._bench) if workers else Here(self._bench) if singly else None
        self._waiting: list[Proposals] = []
        self._flying: dict[int, Proposals] = {}
        self._arrived: list[tuple[Proposals, Genes, Evaluation]] = []
        self._tries: dict[int, int] = {}
        self._each_fault = each_fault
        self._worst: np.ndarray | None = None

    @property
    def population(self) -> Population:
        """The algorithm's."""
        return self.algorithm.population

    @property
    def workers(self) -> int:
        """How many work at a time."""
        return self._workers.count if self._workers is not None else 1

    @property
    def busy_s(self) -> float:
        """Seconds that workers have worked, all together, also on what is still on its way."""
        return self._busy_s + (self._workers.running_s if self._workers is not None else 0.0)

    def advance(self) -> bool:
        """Goes on until some candidates have come back; True where survivors were selected."""
        if self._workers is None:
            if not (self._waiting or self._arrived):  # what workers began before a checkpoint comes first
                self._waiting = [self.algorithm.propose(self.algorithm.size)]
            while self._waiting:
                proposals = self._waiting[0]
                genes, evaluation = self._judge(proposals)
                self._check(proposals, evaluation)
                self._waiting.pop(0)
                self._take(proposals, genes, evaluation)
            self._tries = {}
            self._select()
            return True
        self._dispatch(self._workers)
        for result in self._workers.collect(COLLECT_S):
            self._receive(result)
        unfinished = self._flying or self._waiting if self.mode == "synchronous" else len(self._arrived) < self._expected()
        if unfinished:
            return False
        self._select()
        return True

    def close(self) -> None:
        """Ends the workers. Harmless when repeated."""
        if self._workers is not None:
            self._workers.close()

    def save(self) -> dict[str, Any]:
        """All that this run knows, also of candidates that are on their way: a tree of dicts, lists, numbers, texts and arrays."""
        pending = [*self._flying.values(), *self._waiting]
        return {
            "signature": self.signature(),
            "algorithm": self.algorithm.save(),
            "objectives": self.objectives,
            "generation": self.generation,
            "evaluations": self.evaluations,
            "failed": self.failed,
            "busy_s": self._busy_s,
            "best": self.best.rows(),
            "pending": [vars(group) for group in join_proposals(pending)],
            "arrived": [
                {"proposal": vars(proposal), "genes": genes, "raw": evaluation.raw, "violation": evaluation.violation,
                 "faults": {row: list(fault) for row, fault in evaluation.faults.items()}}
                for proposal, genes, evaluation in self._arrived
            ],
            "tries": dict(self._tries),
            "worst": self._worst,
            "faults": [[id, *fault] for id, fault in self.faults],
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `save` gave. Raises CheckpointError where that was another problem or another algorithm."""
        then, now = state["signature"], self.signature()
        for name in now:
            if then.get(name) != now[name]:
                raise CheckpointError(f"the checkpoint is of another run: its {name} is {then.get(name)}, here it is {now[name]}")
        objectives = state["objectives"]
        if None not in (objectives, self.objectives) and objectives != self.objectives:
            raise CheckpointError(f"the checkpoint is of another run: it has {objectives} objectives, here are {self.objectives}")
        self.objectives = self.objectives or objectives
        self.algorithm.load(state["algorithm"])
        self.generation, self.evaluations, self.failed = state["generation"], state["evaluations"], state["failed"]
        self._busy_s = state["busy_s"]
        self.best = Population(**state["best"])
        self._waiting = sorted(
            (row for group in state["pending"] for row in one_row(Proposals(**group))), key=lambda proposal: int(proposal.ids[0])
        )
        self._arrived = [
            (
                Proposals(**entry["proposal"]),
                entry["genes"],
                Evaluation(entry["raw"], entry["violation"], {row: Fault(*fault) for row, fault in entry["faults"].items()}),
            )
            for entry in state["arrived"]
        ]
        self._tries = dict(state["tries"])
        self._worst = state["worst"]
        self.faults.clear()
        self.faults.extend((id, Fault(kind, message)) for id, kind, message in state["faults"])

    def signature(self) -> dict[str, Any]:
        """What a checkpoint must agree with, in plain JSON."""
        return {
            "genome": self.genome.signature(),
            "minimise": self.evaluator.minimise,
            "algorithm": type(self.algorithm).__name__,
        }

    def _judge(self, proposals: Proposals) -> tuple[Genes, Evaluation]:
        """Makes and judges a generation here, and tries again what raised, as often as it may."""
        started = time.perf_counter()
        genes, evaluation = self._bench.work(proposals)
        for _ in range(self.failures.retries):
            rows = np.array([row for row, fault in evaluation.faults.items() if fault.kind != "numbers"], np.int64)
            if not len(rows):
                break
            again_genes, again = self._bench.work(proposals.take(rows))
            if evaluation.raw.shape[1] < again.raw.shape[1]:
                evaluation.raw = np.full((len(proposals), again.raw.shape[1]), np.nan)
            if again.raw.shape[1]:
                evaluation.raw[rows] = again.raw
            evaluation.violation[rows] = again.violation
            for name in genes:
                genes[name][rows] = again_genes[name]
            for row in rows.tolist():
                del evaluation.faults[row]
            evaluation.faults |= {int(rows[index]): fault for index, fault in again.faults.items()}
        self._busy_s += time.perf_counter() - started
        return genes, evaluation

    def _dispatch(self, workers: Workers) -> None:
        if self.mode == "synchronous" and not (self._waiting or self._flying or self._arrived):
            self._waiting = one_row(self.algorithm.propose(self.algorithm.size))
        while workers.free and (self._waiting or self.mode != "synchronous"):
            proposal = self._waiting.pop(0) if self._waiting else self.algorithm.propose(1)
            self._flying[int(proposal.ids[0])] = proposal
            workers.submit(proposal)

    def _receive(self, result: Result) -> None:
        proposal = self._flying[result.id]
        self._busy_s += result.seconds
        fault = result.evaluation.faults.get(0)
        if fault is not None and fault.kind != "numbers":
            tried = self._tries.get(result.id, 0)
            if tried < max(self.failures.retries, fault.kind == "died"):
                self._tries[result.id] = tried + 1
                self._waiting.insert(0, self._flying.pop(result.id))
                return
        self._tries.pop(result.id, None)
        self._check(proposal, result.evaluation)
        self._take(self._flying.pop(result.id), result.genes or self.algorithm.realise(proposal), result.evaluation)

    def _check(self, proposals: Proposals, evaluation: Evaluation) -> None:
        """Raises EvaluationError where these have another number of objectives than those before; they wait on, then."""
        found = evaluation.raw.shape[1]
        if found and self.objectives not in (None, found):
            raise EvaluationError(f"{name_candidates(proposals.ids)}: {found} objectives; expected are {self.objectives}")
        self.objectives = self.objectives or found or None

    def _take(self, proposals: Proposals, genes: Genes, evaluation: Evaluation) -> None:
        """Counts what came back for good. Where `stop` ends the run, the candidates at fault wait for whoever goes on from here."""
        fatal = [row for row, fault in sorted(evaluation.faults.items()) if self.failures.then == "stop" and fault.kind != "numbers"]
        if fatal:
            self._waiting[:0] = one_row(proposals.take(fatal))
            good = [row for row in range(len(proposals)) if row not in fatal]
            for row in good:  # one by one, since they are put in order with the others
                self._count(proposals.take([row]), {name: rows[[row]] for name, rows in genes.items()}, evaluation.take([row]))
            raise EvaluationError(f"candidate {proposals.ids[fatal[0]]} cannot be judged: {evaluation.faults[fatal[0]].message}")
        self._count(proposals, genes, evaluation)

    def _count(self, proposals: Proposals, genes: Genes, evaluation: Evaluation) -> None:
        self.evaluations += len(proposals)
        self.failed += len(evaluation.faults)
        for row, fault in sorted(evaluation.faults.items()):
            id = int(proposals.ids[row])
            if not self.faults:
                _LOG.warning("candidate %d has failed: %s", id, fault.message)
            self.faults.append((id, fault))
            if self._each_fault is not None:
                self._each_fault(id, fault)
        self._arrived.append((proposals, genes, evaluation))

    def _expected(self) -> int:
        if self.mode == "steady":
            return 1
        size = self.algorithm.size
        if not len(self.population):
            return max(2, size - self.workers + 1)  # as soon as the first generation is all on its way, children need parents
        return size

    def _select(self) -> None:
        arrived, self._arrived = self._arrived, []
        if len(arrived) > 1:
            arrived.sort(key=lambda entry: int(entry[0].ids[0]))
        offspring = gather(arrived, self.objectives or 0, self.evaluator.minimise)
        if self.failures.then == "penalise":
            self._penalise(offspring, arrived)
        self.algorithm.tell(offspring)
        if self.objectives == 1:
            candidates = join([self.best, offspring])
            self.best = candidates.take(best_first(candidates)[:1])
        self.generation += 1

    def _penalise(self, offspring: Population, arrived: list[tuple[Proposals, Genes, Evaluation]]) -> None:
        judged = offspring.fitness[offspring.evaluated]
        if len(judged):
            worst = judged.min(axis=0)
            self._worst = worst if self._worst is None else np.minimum(self._worst, worst)
        if self._worst is None:
            return
        faults = [fault for _, _, evaluation in arrived for _, fault in sorted(evaluation.faults.items())]
        for row, fault in zip(np.flatnonzero(~offspring.evaluated), faults, strict=True):
            if fault.kind != "numbers":
                offspring.punish(int(row), self._worst, PENALTY)
