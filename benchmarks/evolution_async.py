"""Worker processes whose evaluations sleep, some much longer than others: asynchronous evolution against a generation at a time, in turn.

NSGA-II on ZDT1, the candidates' times the same by id in both modes, from when all workers are ready until so many have come back.
Utilisation is the share of the workers' time that went into evaluations, those under way at the end too.

    python benchmarks/evolution_async.py [--only lognormal stragglers] [--runs 3] [--workers 16] [--evaluations 1200]
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from figures import figure

from lamarckian.ec.evolution import Mode
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.ec.result import front_of
from lamarckian.evaluate.evolution import build_evolution
from lamarckian.recipe import resolve_any

POPULATION = 40
OFFSPRING = {"synchronous": POPULATION, "asynchronous": POPULATION // 4}
"""Arrivals between two selections. Without a barrier a selection costs no waiting; with so few, children descend from newer parents,
which makes up for those that are on their way."""
REFERENCE = 1.1
STRAGGLERS = {"lognormal": 0.0, "stragglers": 0.02}


@dataclass
class Measured:
    """rate: evaluations/s. utilisation: share of the workers' time. hypervolume: of the front."""

    rate: float
    utilisation: float
    hypervolume: float


def measure(mode: Mode, stragglers: float, workers: int, evaluations: int, seed: int) -> Measured:
    document = {
        "problem": {"name": "problems:Sleeping", "stragglers": stragglers, "seed": seed},
        "algorithm": {"name": "nsga2", "population": POPULATION, "offspring": OFFSPRING[mode]},
        "mode": mode,
        "workers": {"count": workers},
        "seed": seed,
    }
    with closing(build_evolution(resolve_any(document))) as evolution:
        pool = evolution._workers
        while pool.free < pool.count:
            pool.collect(1.0)
        started = time.perf_counter()
        selected = False
        while evolution.evaluations < evaluations or not selected:
            selected = evolution.advance()
        elapsed_s = time.perf_counter() - started
        return Measured(
            evolution.evaluations / elapsed_s,
            evolution.busy_s / (workers * elapsed_s),
            hypervolume(front_of(evolution).raw, np.full(2, REFERENCE)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(STRAGGLERS), choices=list(STRAGGLERS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--evaluations", type=int, default=1200)
    arguments = parser.parse_args()
    for name in arguments.only:
        sides: tuple[list[Measured], list[Measured]] = ([], [])
        for seed in range(1, arguments.runs + 1):
            for mode, side in zip(("asynchronous", "synchronous"), sides, strict=True):
                side.append(measure(mode, STRAGGLERS[name], arguments.workers, arguments.evaluations, seed))
        for measured, unit, digits in (
            ("rate", "evaluations/s", 1),
            ("utilisation", "of the workers' time", 3),
            ("hypervolume", f"to {REFERENCE}", 4),
        ):
            mine, barrier = ([getattr(one, measured) for one in side] for side in sides)
            figure(f"evolution.asynchronous.{name}.{measured}", mine, unit, "synchronous", barrier, digits)


if __name__ == "__main__":
    main()
