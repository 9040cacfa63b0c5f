"""The DTLZ problems: any number of objectives, to be minimised, of variables in [0, 1].

Deb, Thiele, Laumanns & Zitzler 2005, "Scalable test problems for evolutionary multiobjective optimization",
https://doi.org/10.1007/1-84628-137-7_6, whose numbers are used. Of L variables the first M − 1 say where on the front a
solution lies, the other k = L − M + 1 how far off it lies: g, which is 0 on the front (1 for DTLZ7).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.problems.base import Reals, along, lattice, sine, whole
from lamarckian.errors import MisuseError

DTLZ7_PIECES = ((0.0, 0.2514118360889172), (0.6316265307000613, 0.8594008566447240))
"""Where x (1 + sin 3πx) is above all that lies to its left."""


class DTLZ1(Reals):
    """DTLZ1: M + 4 variables. The front is the simplex Σ f = ½; 11⁵ − 1 local fronts lie parallel to it."""

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 5))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        for n in range(len(x)):
            rest = 0.5 * (1 + _rugged(x[n, first:]))
            for i in range(first):
                out[n, first - i] = rest * (1 - x[n, i])
                rest *= x[n, i]
            out[n, 0] = rest

    def front(self, points: int = 500) -> np.ndarray:
        """At least `points` points `[P, M]` of the true front: a simplex lattice."""
        return lattice(self.objectives, points) / 2


class DTLZ2(Reals):
    """DTLZ2: M + 9 variables. The front is the part of the unit sphere where all objectives are 0 or more."""

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 10))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        for n in range(len(x)):
            _sphere(x[n, :first], 1 + _bowl(x[n, first:]), out[n])

    def front(self, points: int = 500) -> np.ndarray:
        """At least `points` points `[P, M]` of the true front: a simplex lattice, each point at length 1."""
        directions = lattice(self.objectives, points)
        return directions / np.linalg.norm(directions, axis=1, keepdims=True)


class DTLZ3(Reals):
    """DTLZ3: M + 9 variables. DTLZ2 with the g of DTLZ1: 3¹⁰ − 1 local fronts lie around the true one, that of DTLZ2."""

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 10))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        for n in range(len(x)):
            _sphere(x[n, :first], 1 + _rugged(x[n, first:]), out[n])

    front = DTLZ2.front


class DTLZ4(Reals):
    """DTLZ4: M + 9 variables. DTLZ2 with xᵢ¹⁰⁰ for the first M − 1 variables: most solutions lie at the sphere's edges."""

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 10))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        place = x[:, :first] ** 100
        for n in range(len(x)):
            _sphere(place[n], 1 + _bowl(x[n, first:]), out[n])

    front = DTLZ2.front


class DTLZ5(Reals):
    """DTLZ5: M + 9 variables. The front of 2 or 3 objectives is a quarter of a circle, f₁ = f₂ on it where there are 3.

    Of 4 and more it is not: solutions of g > 0 are then not dominated by that curve (Huband et al. 2006,
    https://doi.org/10.1109/TEVC.2005.861417), and no formula of the front is known.
    """

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 10))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        place = np.empty(first)
        for n in range(len(x)):
            g = _bowl(x[n, first:])
            _narrow(x[n, :first], g, place)
            _sphere(place, 1 + g, out[n])

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, M]` of the true front, evenly spread along the curve. Raises MisuseError for 4 objectives and more."""
        return _curve_front(self, points)


class DTLZ6(Reals):
    """DTLZ6: M + 9 variables. DTLZ5 with g = Σ xᵢ^0.1, which is hard to bring to 0. The front is that of DTLZ5, as far as known."""

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 10))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        place = np.empty(first)
        for n in range(len(x)):
            g = 0.0
            for i in range(first, x.shape[1]):
                g += x[n, i] ** 0.1
            _narrow(x[n, :first], g, place)
            _sphere(place, 1 + g, out[n])

    def front(self, points: int = 500) -> np.ndarray:
        """Points `[P, M]` of the true front, evenly spread along the curve. Raises MisuseError for 4 objectives and more."""
        return _curve_front(self, points)


class DTLZ7(Reals):
    """DTLZ7: M + 19 variables. The front is 2^(M − 1) separate pieces of f_M = 2M − Σ fᵢ (1 + sin 3πfᵢ).

    A sum of functions of one fᵢ each: a point is on the front if and only if every fᵢ of it has a larger fᵢ (1 + sin 3πfᵢ)
    than all smaller ones have.
    """

    def __init__(self, objectives: int = 3, variables: int | None = None) -> None:
        super().__init__(**_sizes(self, objectives, variables, 20))

    @staticmethod
    @njit
    def kernel(x, out):
        first = out.shape[1] - 1
        for n in range(len(x)):
            total = 0.0
            for i in range(first, x.shape[1]):
                total += x[n, i]
            g = 1 + 9 * total / (x.shape[1] - first)
            last = (1 + g) * out.shape[1]
            for i in range(first):
                out[n, i] = x[n, i]
                last -= x[n, i] * (1 + sine(3 * x[n, i]))
            out[n, first] = last

    def front(self, points: int = 500) -> np.ndarray:
        """At least `points` points `[P, M]` of the true front, a grid in the first M − 1 objectives."""
        axis = along(DTLZ7_PIECES, max(2, int(np.ceil(whole("a front's points", points, 2) ** (1 / (self.objectives - 1)) - 1e-9))))
        grid = np.array(list(product(axis, repeat=self.objectives - 1)))
        last = 2 * self.objectives - (grid * (1 + np.sin(3 * np.pi * grid))).sum(axis=1)
        return np.column_stack([grid, last])


@njit
def _bowl(row):
    g = 0.0
    for i in range(len(row)):
        g += (row[i] - 0.5) ** 2
    return g


@njit
def _rugged(row):
    g = 0.0
    for i in range(len(row)):
        off = row[i] - 0.5
        g += off * off + 2 * sine(10 * off) ** 2  # 1 − cos 20πx = 2 sin² 10πx
    return 100 * g


@njit
def _narrow(row, g, place):
    """Moves all places but the first towards ½, where g is small."""
    place[0] = row[0]
    for i in range(1, len(row)):
        place[i] = (1 + 2 * g * row[i]) / (2 * (1 + g))


@njit
def _sphere(place, radius, out):
    """The point of a sphere whose angles are `place`, in right angles; the first one says the last objective."""
    last = len(place)
    for i in range(last):
        out[last - i] = radius * sine(0.5 * place[i])
        radius *= sine(0.5 - 0.5 * place[i])
    out[0] = radius


def _sizes(problem: Reals, objectives: int, variables: int | None, distance: int) -> dict[str, Any]:
    whole(f"{type(problem).__name__}: objectives", objectives, 2)
    if variables is None:
        variables = objectives + distance - 1
    return {"objectives": objectives, "variables": variables, "least": objectives, "low": 0.0, "high": 1.0}


def _curve_front(problem: Reals, points: int) -> np.ndarray:
    if problem.objectives > 3:
        name = type(problem).__name__
        raise MisuseError(f"the true front of {name} is known for 2 and 3 objectives, not for {problem.objectives}; use another problem")
    angle = np.pi / 2 * along([(0.0, 1.0)], points)
    across = [np.cos(angle)] if problem.objectives == 2 else [np.cos(angle) * np.sqrt(0.5)] * 2
    return np.stack([*across, np.sin(angle)], axis=1)
