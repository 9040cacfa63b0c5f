"""The ZDT problems: two objectives to be minimised (Zitzler, Deb & Thiele 2000, https://doi.org/10.1162/106365600568202).

f₁ depends on the first variable, g on all others; f₂ = g · h(f₁, g). The front is where g is least.
"""

from __future__ import annotations

from math import atan, exp, pi, sqrt

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Genes, Genome, Integer
from lamarckian.ec.problems.base import Reals, along, rows, sine

ZDT3_PIECES = (
    (0.0, 0.0830015349269116),
    (0.1822287280293998, 0.2577623633878302),
    (0.4093136748086569, 0.4538821040888302),
    (0.6183967944392659, 0.6525117038046626),
    (0.8233317983266328, 0.8518328654364138),
)
"""Where f₂ on the front of ZDT3 is below all that lies to its left: each piece ends at a minimum, and the next begins at its height."""

ZDT6_PEAK = atan(9 * pi) / (6 * pi)
ZDT6_LEAST = 1 - exp(-4 * ZDT6_PEAK) * (9 * pi) ** 6 / (1 + (9 * pi) ** 2) ** 3
"""The least f₁ of ZDT6, reached at x₁ = ZDT6_PEAK."""


class ZDT1(Reals):
    """ZDT1: 30 variables in [0, 1]. The front is convex: f₂ = 1 − √f₁."""

    def __init__(self, variables: int = 30) -> None:
        super().__init__(objectives=2, variables=variables, least=2, low=0.0, high=1.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            g = 1 + 9 * _mean(x[n])
            out[n, 0] = x[n, 0]
            out[n, 1] = g * (1 - sqrt(x[n, 0] / g))

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, 2]` of the true front, evenly spread over f₂."""
        return _convex(points)


class ZDT2(Reals):
    """ZDT2: 30 variables in [0, 1]. The front is concave: f₂ = 1 − f₁²."""

    def __init__(self, variables: int = 30) -> None:
        super().__init__(objectives=2, variables=variables, least=2, low=0.0, high=1.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            g = 1 + 9 * _mean(x[n])
            out[n, 0] = x[n, 0]
            out[n, 1] = g * (1 - (x[n, 0] / g) ** 2)

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, 2]` of the true front, evenly spread over f₁."""
        return _concave(0.0, points)


class ZDT3(Reals):
    """ZDT3: 30 variables in [0, 1]. The front is five separate pieces of f₂ = 1 − √f₁ − f₁ sin(10π f₁)."""

    def __init__(self, variables: int = 30) -> None:
        super().__init__(objectives=2, variables=variables, least=2, low=0.0, high=1.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            g = 1 + 9 * _mean(x[n])
            ratio = x[n, 0] / g
            out[n, 0] = x[n, 0]
            out[n, 1] = g * (1 - sqrt(ratio) - ratio * sine(10 * x[n, 0]))

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, 2]` of the true front, evenly spread over f₁."""
        f1 = along(ZDT3_PIECES, points)
        return np.stack([f1, 1 - np.sqrt(f1) - f1 * np.sin(10 * pi * f1)], axis=1)


class ZDT4(Reals):
    """ZDT4: 10 variables, x₁ in [0, 1], the others in [−5, 5], where 21⁹ local fronts lie. The front is that of ZDT1."""

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=2, variables=variables, least=2, low=-5.0, high=5.0)
        self.bounds[0][0], self.bounds[1][0] = 0.0, 1.0

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            g = 1.0
            for i in range(1, x.shape[1]):
                g += x[n, i] ** 2 + 20 * sine(2 * x[n, i]) ** 2  # 10 − 10 cos 4πx = 20 sin² 2πx
            out[n, 0] = x[n, 0]
            out[n, 1] = g * (1 - sqrt(x[n, 0] / g))

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, 2]` of the true front, evenly spread over f₂."""
        return _convex(points)


class ZDT5:
    """ZDT5: 80 bits, of which the first 30 make f₁ and every five of the others a deceptive term of g.

    With u(b) the ones among bits b: f₁ = 1 + u(b₁), g = Σ v(u(bᵢ)), v(5) = 1, otherwise v(u) = 2 + u; f₂ = g / f₁. The best
    front is 31 separate points (f₁, 10 / f₁); the best deceptive one has f₂ = 20 / f₁, where all other bits are 0.
    """

    objectives = 2
    minimise = True

    def __init__(self) -> None:
        self.genome = Genome({"bits": Integer(0, 1, length=80)})

    def evaluate(self, x: Genes) -> np.ndarray:
        """The objectives, float64 `[N, 2]`, of x["bits"], whole numbers `[N, 80]`."""
        bits = rows(self, x["bits"], 80, np.int64)
        objectives = np.empty((len(bits), 2))
        _zdt5(bits, objectives)
        return objectives

    def front(self, points: int = 500) -> np.ndarray:
        """The true front, all its points `[31, 2]` whatever `points` asks for."""
        f1 = np.arange(1.0, 32.0)
        return np.stack([f1, 10 / f1], axis=1)


class ZDT6(Reals):
    """ZDT6: 10 variables in [0, 1]. The front is concave, f₂ = 1 − f₁² from f₁ = 0.2807753 on, and thin at its left end."""

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=2, variables=variables, least=2, low=0.0, high=1.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            g = 1 + 9 * sqrt(sqrt(_mean(x[n])))
            out[n, 0] = 1 - exp(-4 * x[n, 0]) * sine(6 * x[n, 0]) ** 6
            out[n, 1] = g * (1 - (out[n, 0] / g) ** 2)

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, 2]` of the true front, evenly spread over f₁."""
        return _concave(ZDT6_LEAST, points)


@njit
def _mean(row):
    """The mean of all variables but the first."""
    total = 0.0
    for i in range(1, len(row)):
        total += row[i]
    return total / (len(row) - 1)


@njit
def _zdt5(bits, out):
    for n in range(len(bits)):
        f1 = 1.0
        for i in range(30):
            f1 += bits[n, i]
        g = 0.0
        for start in range(30, 80, 5):
            ones = 0
            for i in range(start, start + 5):
                ones += bits[n, i]
            g += 1 if ones == 5 else 2 + ones
        out[n, 0], out[n, 1] = f1, g / f1


def _convex(points: int) -> np.ndarray:
    root = along([(0.0, 1.0)], points)
    return np.stack([root**2, 1 - root], axis=1)


def _concave(least: float, points: int) -> np.ndarray:
    f1 = along([(least, 1.0)], points)
    return np.stack([f1, 1 - f1**2], axis=1)
