"""pymoo's NSGA-II."""

from __future__ import annotations

import time

import pymoo
from optimiser import serve, shape
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.functions import is_compiled
from pymoo.problems import get_problem


def nsga2(problem: str, population: int, generations: int, seed: int, warm: int | None = None, eliminate_duplicates: bool = False) -> dict:
    """Defaults: SBX (probability 0.9, eta 15), PM (1 / variables in nine of ten, eta 20), crowding distance.

    With `warm`, that many generations go before the clock starts; without it the clock starts before the first population is made.
    """
    variables, objectives = shape(problem)
    sized = {} if problem.startswith("zdt") else {"n_obj": objectives}
    algorithm = NSGA2(pop_size=population, eliminate_duplicates=eliminate_duplicates)
    # pymoo counts the first population as a generation.
    total = 1 + (warm or 0) + generations
    algorithm.setup(get_problem(problem, n_var=variables, **sized), termination=("n_gen", total), seed=seed, verbose=False)
    for _ in range(0 if warm is None else 1 + warm):
        algorithm.next()
    evaluated = algorithm.evaluator.n_eval
    started = time.process_time()
    while algorithm.has_next():
        algorithm.next()
    cpu_s = time.process_time() - started
    return {"cpu_s": cpu_s, "evaluations": algorithm.evaluator.n_eval - evaluated, "front": algorithm.opt.get("F").tolist()}


if __name__ == "__main__":
    nsga2("zdt1", population=20, generations=5, seed=0)
    serve({"version": pymoo.__version__, "compiled": is_compiled()}, {"nsga2": nsga2})
