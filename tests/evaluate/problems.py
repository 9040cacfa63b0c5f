"""A problem that goes wrong for chosen candidates, as programs of others do."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np

GRAIN = 1024
Fault = Literal["raise", "exit", "leave", "kill", "hang", "print", "nan"]


class Toy:
    """Two reals, of which the first tells a candidate of the first generation by its id, as id / GRAIN.

    faults: what goes wrong → the ids for which it does. once: with a folder, only at the first try of each id.
    seconds: that a candidate takes. log: a file that gets a line for each candidate, its id or `?`, and the process's id.
    start: how it fails to start, in worker processes only.
    """

    bounds = ([0.0, 0.0], [1.0, 1.0])

    def __init__(
        self,
        objectives: int = 2,
        faults: dict[Fault, list[int]] = {},  # noqa: B006
        once: str | None = None,
        seconds: float = 0.0,
        log: str | None = None,
        start: Literal["raise", "import"] | None = None,
    ) -> None:
        self.objectives = objectives
        self._faults = {id: fault for fault, ids in faults.items() for id in ids}
        self._once, self._seconds, self._log = once, seconds, log
        if start is not None and _in_worker():
            _fail_to_start(start)

    def initialize(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return np.stack([np.arange(count) / GRAIN, generator.random(count)], axis=1)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array([self._judge(row) for row in x])

    def _judge(self, x: np.ndarray) -> list[float]:
        id = int(x[0] * GRAIN) if float(x[0] * GRAIN).is_integer() else None
        if self._log is not None:
            with open(self._log, "a") as file:
                file.write(f"{'?' if id is None else id} {os.getpid()}\n")
        time.sleep(self._seconds)
        objectives = [float(x[0]), float(1 - x[0] + x[1])][: self.objectives]
        fault = self._faults.get(id) if id is not None and self._due(id) else None
        if fault == "raise":
            raise ValueError(f"no luck with {id}")
        if fault == "exit":
            sys.exit(3)
        if fault == "leave":
            print("I am leaving", flush=True)
            os._exit(3)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hang":
            time.sleep(3600)
        if fault == "print":
            print(f"candidate {id} says hello", flush=True)
        return [float("nan")] * self.objectives if fault == "nan" else objectives

    def _due(self, id: int) -> bool:
        if self._once is None:
            return True
        mark = Path(self._once) / str(id)
        if mark.exists():
            return False
        mark.touch()
        return True


class Undeclared:
    """One objective, as a problem that does not say so: only the first evaluation tells."""

    bounds = ([0.0, 0.0], [1.0, 1.0])

    def __init__(self, width: int = 1, broken: bool = False) -> None:
        self._width, self._broken = width, broken

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if self._broken:
            raise ValueError("nothing can be judged")
        return np.repeat((x**2).sum(axis=1)[:, None], self._width, axis=1)


def _in_worker() -> bool:
    spec = sys.modules["__main__"].__spec__
    return spec is not None and spec.name == "lamarckian.cluster.child"


def _fail_to_start(how: str) -> None:
    if how == "raise":
        raise RuntimeError("no simulator here")
    import a_simulator_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401
