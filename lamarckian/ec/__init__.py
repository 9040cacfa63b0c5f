"""Evolutionary computation, complete in itself: genomes, operators, algorithms, problems, indicators.

from lamarckian.ec import NSGA2, evolve
from lamarckian.ec.problems import ZDT1

result = evolve(problem=ZDT1(), algorithm=NSGA2(population=100), evaluations=25_000, seed=1)
"""

from lamarckian.ec.cmaes import CMAES
from lamarckian.ec.cso import CSO
from lamarckian.ec.es import OpenAIES
from lamarckian.ec.evolution import Evolution, Failures
from lamarckian.ec.evolve import evolve
from lamarckian.ec.ga import GA
from lamarckian.ec.genome import Categorical, Genome, Integer, Network, Permutation, Real, Subset
from lamarckian.ec.nsga2 import NSGA2
from lamarckian.ec.operators import Variation
from lamarckian.ec.pso import PSO
from lamarckian.ec.result import Result
from lamarckian.ec.sep_cmaes import SepCMAES

__all__ = [
    "CMAES",
    "CSO",
    "GA",
    "NSGA2",
    "PSO",
    "Categorical",
    "Evolution",
    "Failures",
    "Genome",
    "Integer",
    "Network",
    "OpenAIES",
    "Permutation",
    "Real",
    "Result",
    "SepCMAES",
    "Subset",
    "Variation",
    "evolve",
]
