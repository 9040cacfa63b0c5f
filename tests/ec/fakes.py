"""Workers that work when a script says so, problems that misbehave, and a journey through a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from lamarckian.ec import CMAES, CSO, GA, NSGA2, PSO, OpenAIES, SepCMAES
from lamarckian.ec.evaluator import failed_evaluation
from lamarckian.ec.population import Fault
from lamarckian.ec.problems import ZDT1, Sphere
from lamarckian.ec.workers import Bench, Result
from lamarckian.record.checkpoint import pack, unpack

MANY = {"nsga2": lambda: NSGA2(8)}
SINGLE = {
    "ga": lambda: GA(8),
    "steady": lambda: GA(8, offspring=1),
    "cmaes": lambda: CMAES(6, restarts="bipop"),
    "sep-cmaes": lambda: SepCMAES(6),
    "openai-es": lambda: OpenAIES(8, table_size=10_000),
    "pso": lambda: PSO(8),
    "cso": lambda: CSO(8),
}
ALGORITHMS = {**MANY, **SINGLE}


def problem_for(name: str) -> Any:
    """A small problem that the algorithm can work on."""
    return ZDT1(5) if name in MANY else Sphere(5)


class Scripted:
    """Workers of which each candidate keeps one busy for as long as `duration` says, by a clock that only `collect` moves.

    faults: id → kinds of faults of its first tries. busy: how many worked whenever results were waited for. submitted, returned: ids.
    """

    def __init__(
        self, bench: Bench, count: int, duration: Callable[[int], float] = lambda id: 1.0, faults: Mapping[int, list] | None = None
    ) -> None:
        self.count = count
        self.running_s = 0.0
        self.now = 0.0
        self.busy: list[int] = []
        self.submitted: list[int] = []
        self.returned: list[int] = []
        self.proposals: dict[int, Any] = {}
        self._bench, self._duration = bench, duration
        self._faults = {id: list(kinds) for id, kinds in (faults or {}).items()}
        self._working: dict[int, float] = {}

    @property
    def free(self) -> int:
        return self.count - len(self._working)

    def submit(self, proposal) -> None:
        [id] = proposal.ids.tolist()
        assert self.free and id not in self._working
        self.submitted.append(id)
        self.proposals[id] = proposal
        self._working[id] = self.now + self._duration(id)

    def collect(self, timeout_s: float) -> list[Result]:
        """Whatever is ready next, the last one submitted first."""
        self.busy.append(len(self._working))
        self.now = min(self._working.values())
        ready = [id for id in reversed(self._working) if self._working[id] == self.now]
        return [self._result(id) for id in ready]

    def close(self) -> None: ...

    def _result(self, id: int) -> Result:
        del self._working[id]
        self.returned.append(id)
        if self._faults.get(id):
            fault = Fault(self._faults[id].pop(0), "as the script says")
            return Result(id, {}, failed_evaluation(1, None, {0: fault}), 1.0)
        genes, evaluation = self._bench.work(self.proposals.pop(id))
        return Result(id, genes, evaluation, 1.0)


def stored(tree: Any) -> Any:
    """A tree as it comes back from a checkpoint."""
    arrays, form = pack(tree)
    return unpack(load(save(arrays)), json.loads(json.dumps(form)))


def known(evolution: Any) -> dict[str, Any]:
    """All that a run knows, but for how long it took."""
    return {name: value for name, value in stored(evolution.save()).items() if name != "busy_s"}


class Broken:
    """ZDT1 or Sphere, but `values`: row of a generation → what is returned instead, a number or an exception."""

    def __init__(self, problem: Any, values: Mapping[int, Any], every: int = 1) -> None:
        self._problem, self._values, self._every = problem, values, every
        self.bounds, self.objectives = problem.bounds, problem.objectives
        self.calls = 0

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        objectives = self._problem.evaluate(x)
        self.calls += 1
        if self.calls % self._every == 0:
            for row, value in self._values.items():
                if row < len(objectives):
                    objectives[row, row % self.objectives] = value
        return objectives
