"""Our side of the optimisers' tasks: the arguments of peers/README.md, and answers like the peers'. On one thread, as they are."""

from __future__ import annotations

import os

from peers.optimiser import THREADS

os.environ.update(dict.fromkeys(THREADS, "1"))

import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from lamarckian.ec import CMAES, GA, NSGA2, Evolution, Genome, Real, Variation, evolve
from lamarckian.ec.algorithm import Algorithm
from lamarckian.ec.evaluator import as_evaluator
from lamarckian.ec.evolution import Mode
from lamarckian.ec.offspring import gather
from lamarckian.ec.operators.real import SBX, Polynomial
from lamarckian.ec.population import Evaluation
from lamarckian.ec.problems import DTLZ2, ZDT1, Ellipsoid, Rosenbrock, Sphere
from lamarckian.ec.result import front_of

FRONTS = {"zdt1": ZDT1, "dtlz2": DTLZ2}
VALUES: dict[str, type[Any]] = {"sphere": Sphere, "ellipsoid": Ellipsoid, "rosenbrock": Rosenbrock}
WIDE = 100.0  # bounds of the box that CMA-ES starts in the middle of, so far off that pycma, which has none, meets the same problem


NSGA2S: dict[str, dict[str, Any]] = {
    "crowding": {"truncation": "crowding", "operators": {"x": Variation(SBX(eta=15, probability=0.9), Polynomial(eta=20))}},
    "default": {},
}
"""Settings of NSGA-II: those that the peers have, and our own."""


def nsga2(problem: str, population: int, generations: int, seed: int, warm: int | None = None, settings: str = "default") -> dict[str, Any]:
    """As the peers'. settings: one of `NSGA2S`."""
    evaluator = as_evaluator(FRONTS[problem]())
    started = time.process_time()
    evolution = Evolution(evaluator, NSGA2(population, **NSGA2S[settings]), seed)
    if warm is not None:
        advance(evolution, 1 + warm)
        started = time.process_time()
    evaluated = evolution.evaluations
    advance(evolution, 1 + (warm or 0) + generations)
    cpu_s = time.process_time() - started
    return {"cpu_s": cpu_s, "evaluations": evolution.evaluations - evaluated, "front": front_of(evolution).raw}


def advance(evolution: Evolution, generations: int) -> None:
    while evolution.generation < generations:
        evolution.advance()


def minimise(problem: str, dimension: int, seed: int, low: float = -5, high: float = 5, sigma: float = 2, target: float = 1e-9) -> int:
    """The evaluations that CMA-ES needs to the target, from the start that pycma has."""
    solved = VALUES[problem](dimension)
    solved.bounds = np.full(dimension, -WIDE), np.full(dimension, WIDE)
    start = np.random.default_rng(seed).uniform(low, high, dimension).tolist()
    return evolve(solved, CMAES(sigma=sigma / (2 * WIDE), start=start), 1_000_000, seed, target=target).evaluations


def generations(
    algorithm: Algorithm, genome: Genome, judge: Callable[[dict[str, np.ndarray]], np.ndarray], generations: int, seed: int, warm: int
) -> dict[str, float]:
    """`propose`, and `tell` of what was gathered, are in `driving_s`, `realise` in `realising_s`; what `judge` takes is in neither.

    judge: genes to objectives `[N, 1]`.
    """
    algorithm.begin(genome, 1, seed)
    driving_s = realising_s = 0.0
    for generation in range(warm + generations):
        started = time.process_time()
        proposals = algorithm.propose(algorithm.size)
        proposed = time.process_time()
        genes = algorithm.realise(proposals)
        realised = time.process_time()
        raw = judge(genes)
        judged = time.process_time()
        algorithm.tell(gather([(proposals, genes, Evaluation(raw, np.zeros(len(raw))))], 1, minimise=True))
        if generation >= warm:
            driving_s += proposed - started + time.process_time() - judged
            realising_s += realised - proposed
    return {"driving_s": driving_s, "realising_s": realising_s}


ALGORITHMS: dict[str, tuple[type, list[float]]] = {"ga": (GA, [0.0]), "nsga2": (NSGA2, [0.0, 0.0])}


def overhead(algorithm: str, mode: Mode, evaluations: int) -> float:
    """CPU µs a candidate of 10 reals whose evaluation, a plain function, does nothing."""
    kind, nothing = ALGORITHMS[algorithm]
    started = time.process_time()
    done = evolve(lambda _: nothing, kind(100), evaluations, genome=Real(0, 1, length=10), mode=mode).evaluations
    return (time.process_time() - started) / done * 1e6


def memory(mode: Mode, at: list[int]) -> list[tuple[float, float]]:
    """KiB that Python and numpy hold, and KiB of the process, after so many generations of NSGA-II with 20 individuals."""
    held = []
    advance(Evolution(as_evaluator(ZDT1()), NSGA2(20), mode=mode), 3)
    gc.collect()
    tracemalloc.start()
    evolution = Evolution(as_evaluator(ZDT1()), NSGA2(20), mode=mode)
    for generation in at:
        advance(evolution, generation)
        gc.collect()
        held.append((tracemalloc.get_traced_memory()[0] / 1024, psutil.Process().memory_info().rss / 1024))
    tracemalloc.stop()
    return held
