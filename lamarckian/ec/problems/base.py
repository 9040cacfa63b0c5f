"""What the problems share: checks of settings, points along a front, and a sine that is exact where the optima lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations
from math import comb, factorial, pi
from typing import Any, ClassVar

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.errors import MisuseError

TAYLOR = tuple((-1) ** k * pi ** (2 * k + 1) / factorial(2 * k + 1) for k in range(11))
"""Coefficients of sin(π t) / t as a polynomial in t², lowest power first; good to the last digit for |t| ≤ ½."""


class Reals(ABC):
    """A problem of real numbers between bounds.

    bounds: (low `[L]`, high `[L]`), float64.
    """

    minimise: ClassVar[bool] = True

    def __init__(self, objectives: int, variables: int, least: int, low: float, high: float) -> None:
        whole(f"{type(self).__name__}: variables", variables, least)
        self.objectives = objectives
        self.bounds = np.full(variables, low, np.float64), np.full(variables, high, np.float64)

    @staticmethod
    @abstractmethod
    def kernel(x: np.ndarray, out: np.ndarray) -> None:
        """Writes the objectives of x `[N, L]` into `out` `[N, M]`."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """The objectives, float64 `[N, M]`, of x `[N, L]`."""
        x = rows(self, x, len(self.bounds[0]), np.float64)
        objectives = np.empty((len(x), self.objectives))
        self.kernel(x, objectives)
        return objectives


def rows(problem: object, x: Any, length: int, dtype: type) -> np.ndarray:
    """`x` as a contiguous array `[N, length]`. Raises MisuseError where it is of another shape."""
    x = np.ascontiguousarray(x, dtype)
    if x.ndim != 2 or x.shape[1] != length:
        raise MisuseError(f"{type(problem).__name__} evaluates arrays of shape [N, {length}], not {list(x.shape)}")
    return x


def whole(what: str, value: Any, least: int) -> int:
    """`value`. Raises MisuseError unless it is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise MisuseError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def along(pieces: Sequence[tuple[float, float]], points: int) -> np.ndarray:
    """`points` numbers, evenly spread over the intervals (low, high] of `pieces`; only the first one's low end is included."""
    low, high = np.array(pieces).T
    ends = np.cumsum(high - low)
    at = np.linspace(0, ends[-1], whole("a front's points", points, 2))
    piece = np.searchsorted(ends, at)
    return high[piece] - (ends[piece] - at)


def lattice(objectives: int, points: int) -> np.ndarray:
    """The coarsest simplex lattice `[P, M]` with at least `points` points: all that are multiples of 1 / h and sum to 1.

    Das & Dennis 1998, https://doi.org/10.1137/S1052623496307510.
    """
    whole("a front's points", points, 2)
    divisions = 1
    while comb(divisions + objectives - 1, objectives - 1) < points:
        divisions += 1
    bars = np.array(list(combinations(range(divisions + objectives - 1), objectives - 1)))
    return (np.diff(bars, axis=1, prepend=-1, append=divisions + objectives - 1) - 1) / divisions


@njit
def sine(turn):
    """sin(π turn), by its Taylor series about the nearest multiple of π, where it is exactly 0. Twice as fast as the library's."""
    nearest = np.floor(turn + 0.5)
    t = turn - nearest
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    c = TAYLOR
    low = (c[0] + c[1] * t2) + (c[2] + c[3] * t2) * t4
    middle = (c[4] + c[5] * t2) + (c[6] + c[7] * t2) * t4
    high = (c[8] + c[9] * t2) + c[10] * t4
    odd = nearest - 2.0 * np.floor(nearest / 2.0)
    return (1.0 - 2.0 * odd) * t * (low + (middle + high * t8) * t8)
