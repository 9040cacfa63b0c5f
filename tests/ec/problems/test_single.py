"""Problems of one objective: values worked out by hand, and optima."""

from __future__ import annotations

from math import cos, e, exp, pi

import numpy as np
import pytest

from lamarckian.ec.problems import Ackley, Ellipsoid, Griewank, Rastrigin, Rosenbrock, Shubert, Sphere
from lamarckian.errors import MisuseError

ANY_SIZE = (Sphere, Ellipsoid, Rosenbrock, Rastrigin, Ackley, Griewank)


def value(problem, *x: float) -> float:
    made = problem() if problem is Shubert else problem(variables=len(x))
    (objective,) = made.evaluate(np.array([x], np.float64))[0]
    return objective


@pytest.mark.parametrize(
    ("problem", "x", "expected"),
    [
        (Sphere, (1, 2, 3), 14),
        (Ellipsoid, (1, 1, 1), 1 + 1e3 + 1e6),
        (Ellipsoid, (2, -1), 4 + 1e6),
        (Rosenbrock, (0, 0, 0), 2),
        (Rosenbrock, (2, 3), 101),
        (Rosenbrock, (-1, 1, 1), 4),
        (Rastrigin, (1, -2), 5),
        (Rastrigin, (0.5, 0.5), 40.5),
        (Ackley, (1, 1, 1), 20 - 20 * exp(-0.2)),
        (Ackley, (0.5, -0.5), 20 - 20 * exp(-0.1) + e - exp(-1)),
        (Griewank, (pi, 0), 2 + pi**2 / 4000),
        (Griewank, (0, pi * 2**0.5), 2 + pi**2 / 2000),
        (Shubert, (0, 0), (cos(1) + 2 * cos(2) + 3 * cos(3) + 4 * cos(4) + 5 * cos(5)) ** 2),
    ],
)
def test_values_by_hand(problem, x, expected):
    assert value(problem, *x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variables", [2, 10, 100])
@pytest.mark.parametrize("problem", ANY_SIZE)
def test_the_optimum_is_reached_exactly(problem, variables):
    assert value(problem, *[float(problem is Rosenbrock)] * variables) == problem.optimum == 0.0


def test_shubert_reaches_its_optimum():
    assert value(Shubert, -7.0835064, 4.8580568) == pytest.approx(Shubert.optimum, abs=1e-8)
    assert Shubert.optimum == pytest.approx(-186.7309, abs=5e-5)


def test_shubert_optimum_is_the_product_of_the_extremes_of_its_factor():
    x = np.linspace(-10, 10, 200_001)
    factor = sum(j * np.cos((j + 1) * x + j) for j in range(1, 6))
    assert factor.min() * factor.max() == pytest.approx(Shubert.optimum, abs=1e-4)


@pytest.mark.parametrize("problem", [*ANY_SIZE, Shubert])
def test_nothing_is_below_the_optimum(problem):
    low, high = problem().bounds
    x = low + (high - low) * np.random.default_rng(0).random((2000, len(low)))
    found = problem().evaluate(x)
    assert found.shape == (2000, 1)
    assert (found > problem.optimum).all()


@pytest.mark.parametrize(
    ("problem", "low", "high"),
    [
        (Sphere, -5.12, 5.12),
        (Ellipsoid, -5, 5),
        (Rosenbrock, -5, 10),
        (Rastrigin, -5.12, 5.12),
        (Ackley, -32.768, 32.768),
        (Griewank, -600, 600),
        (Shubert, -10, 10),
    ],
)
def test_customary_bounds(problem, low, high):
    size = 2 if problem is Shubert else 10
    assert [bound.tolist() for bound in problem().bounds] == [[low] * size, [high] * size]
    assert problem().objectives == 1
    assert problem.minimise


@pytest.mark.parametrize("problem", ANY_SIZE)
def test_settings_out_of_range_are_refused(problem):
    with pytest.raises(MisuseError, match=f"{problem.__name__}: variables must be a whole number of at least [12], not 0"):
        problem(variables=0)
