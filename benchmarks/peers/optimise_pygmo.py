"""pygmo's NSGA-II on its own compiled problems."""

from __future__ import annotations

import time

import pygmo
from optimiser import serve, shape


def nsga2(problem: str, population: int, generations: int, seed: int, warm: int | None = None) -> dict:
    """SBX (probability 0.9, eta 15) and PM (1 / variables, eta 20), close to pymoo.

    With `warm`, that many generations go before the clock starts; without it the clock starts before the first population is made.
    """
    variables, objectives = shape(problem)
    number = int(problem[-1])
    if problem.startswith("zdt"):
        solved = pygmo.problem(pygmo.zdt(prob_id=number, param=variables))
    else:
        solved = pygmo.problem(pygmo.dtlz(prob_id=number, dim=variables, fdim=objectives))

    def algorithm(generations: int):
        return pygmo.algorithm(pygmo.nsga2(gen=generations, cr=0.9, eta_c=15, m=1 / variables, eta_m=20, seed=seed))

    if warm is not None:
        current = algorithm(warm).evolve(pygmo.population(solved, population, seed=seed))
        evaluated = current.problem.get_fevals()
    measured = algorithm(generations)
    started = time.process_time()
    if warm is None:
        current = pygmo.population(solved, population, seed=seed)
        evaluated = 0
    current = measured.evolve(current)
    cpu_s = time.process_time() - started
    points = current.get_f()
    front = points[pygmo.fast_non_dominated_sorting(points)[0][0]]
    return {"cpu_s": cpu_s, "evaluations": current.problem.get_fevals() - evaluated, "front": front.tolist()}


if __name__ == "__main__":
    nsga2("zdt1", population=20, generations=5, seed=0)
    serve({"version": pygmo.__version__}, {"nsga2": nsga2})
