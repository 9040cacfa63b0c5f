"""Benchmark problems, most of them with known optima or true Pareto fronts."""

from lamarckian.ec.problems.combinatorial import TSP, Knapsack
from lamarckian.ec.problems.dtlz import DTLZ1, DTLZ2, DTLZ3, DTLZ4, DTLZ5, DTLZ6, DTLZ7
from lamarckian.ec.problems.single import Ackley, Ellipsoid, Griewank, Rastrigin, Rosenbrock, Shubert, Sphere
from lamarckian.ec.problems.zdt import ZDT1, ZDT2, ZDT3, ZDT4, ZDT5, ZDT6

__all__ = [
    "DTLZ1",
    "DTLZ2",
    "DTLZ3",
    "DTLZ4",
    "DTLZ5",
    "DTLZ6",
    "DTLZ7",
    "TSP",
    "ZDT1",
    "ZDT2",
    "ZDT3",
    "ZDT4",
    "ZDT5",
    "ZDT6",
    "Ackley",
    "Ellipsoid",
    "Griewank",
    "Knapsack",
    "Rastrigin",
    "Rosenbrock",
    "Shubert",
    "Sphere",
]
