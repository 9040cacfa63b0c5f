"""Operators: how each kind of part is crossed and mutated."""

from lamarckian.ec.operators.discrete import Creep, Points, Reset, UniformCrossover
from lamarckian.ec.operators.network import Best, ChannelCrossover, LayerCrossover, NetworkGaussian
from lamarckian.ec.operators.permutation import Insertion, OrderCrossover, Replace, SubsetCrossover, Swap
from lamarckian.ec.operators.real import SBX, Gaussian, Polynomial
from lamarckian.ec.operators.variation import Variation

__all__ = [
    "SBX",
    "Best",
    "ChannelCrossover",
    "Creep",
    "Gaussian",
    "Insertion",
    "LayerCrossover",
    "NetworkGaussian",
    "OrderCrossover",
    "Points",
    "Polynomial",
    "Replace",
    "Reset",
    "SubsetCrossover",
    "Swap",
    "UniformCrossover",
    "Variation",
]
