"""What operators are: small settings that know how to cross or mutate one kind of part."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from lamarckian.errors import MisuseError


class Crossover(Protocol):
    """Makes a child of two parents. name: in recipes. parts: the kinds of parts that it works on."""

    name: str
    parts: tuple[type, ...]

    def cross(self, part: Any, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        """Children `[N, L]`, in memory of their own, of parents `a` and `b`, of which `a` is the fitter one.

        A child's random numbers are those of the stream that `seed` and its id name, so that it is the same in whatever portion.
        """
        ...


class Mutation(Protocol):
    """Changes individuals at random. name: in recipes. parts: the kinds of parts that it works on."""

    name: str
    parts: tuple[type, ...]

    def mutate(self, part: Any, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        """Changes `genes` `[N, L]` in place; random numbers as in `Crossover.cross`."""
        ...


def check_positive(what: str, value: float) -> None:
    """Raises MisuseError unless `value` is a finite number above 0."""
    if not 0 < value < np.inf:
        raise MisuseError(f"{what} must be above 0, not {value}")


def check_share(what: str, value: float | None) -> None:
    """Raises MisuseError unless `value` is in [0, 1], or None."""
    if value is not None and not 0 <= value <= 1:
        raise MisuseError(f"{what} must be in [0, 1], not {value}")
