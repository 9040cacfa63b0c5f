"""pycma's CMA-ES with its default settings."""

from __future__ import annotations

import math
import time

import cma
import numpy as np
from optimiser import serve


def sphere(points: np.ndarray) -> np.ndarray:
    return (points**2).sum(axis=1)


def ellipsoid(points: np.ndarray) -> np.ndarray:
    """Condition number 10^6."""
    return (points**2) @ 10 ** np.linspace(0, 6, points.shape[1])


def rosenbrock(points: np.ndarray) -> np.ndarray:
    head, tail = points[:, :-1], points[:, 1:]
    return (100 * (head**2 - tail) ** 2 + (1 - head) ** 2).sum(axis=1)


PROBLEMS = {"sphere": sphere, "ellipsoid": ellipsoid, "rosenbrock": rosenbrock}


def strategy(dimension: int, low: float, high: float, sigma: float, seed: int, **options) -> cma.CMAEvolutionStrategy:
    """Starts where `numpy.random.default_rng(seed).uniform(low, high, dimension)` says."""
    start = np.random.default_rng(seed).uniform(low, high, dimension)
    # pycma takes a seed of 0 for the time of day.
    return cma.CMAEvolutionStrategy(start, sigma, {"verbose": -9, "seed": seed + 1} | options)


def minimise(
    problem: str,
    dimension: int,
    seed: int,
    low: float = -5,
    high: float = 5,
    sigma: float = 2,
    target: float = 1e-9,
    evaluations: int = 1_000_000,
    diagonal: bool = False,
) -> dict:
    """Until the best is at most `target`, judged once a generation, or pycma stops; `stop` says why."""
    evaluate = PROBLEMS[problem]
    es = strategy(dimension, low, high, sigma, seed, ftarget=target, maxfevals=evaluations, CMA_diagonal=diagonal)
    started = time.process_time()
    while not es.stop():
        points = es.ask()
        es.tell(points, evaluate(np.asarray(points)).tolist())
    cpu_s = time.process_time() - started
    return {"cpu_s": cpu_s, "evaluations": es.result.evaluations, "best": es.result.fbest, "stop": sorted(es.stop())}


def generations(dimension: int, generations: int, seed: int, warm: int = 2, diagonal: bool = False, problem: str = "sphere") -> dict:
    """`ask` and `tell` alone. pycma decomposes the matrix in every `decomposes_every`-th `ask` only: `generations` should be
    a multiple of that."""
    evaluate = PROBLEMS[problem]
    es = strategy(dimension, -5, 5, 2, seed, CMA_diagonal=diagonal)
    cpu_s = 0.0
    for generation in range(warm + generations):
        started = time.process_time()
        points = es.ask()
        asked = time.process_time()
        fitness = evaluate(np.asarray(points)).tolist()
        evaluated = time.process_time()
        es.tell(points, fitness)
        if generation >= warm:
            cpu_s += asked - started + time.process_time() - evaluated
    every = None if diagonal else math.ceil(es.sm.lazy_update_gap)
    return {"cpu_s": cpu_s, "population": es.popsize, "decomposes_every": every}


if __name__ == "__main__":
    minimise("sphere", dimension=5, seed=0)
    serve({"version": cma.__version__}, {"minimise": minimise, "generations": generations})
