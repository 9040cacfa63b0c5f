"""Problems of one objective, to be minimised, whose least value `optimum` is known."""

from __future__ import annotations

from math import cos, e, expm1, sqrt

from lamarckian.ec.compiled import njit
from lamarckian.ec.problems.base import Reals, sine


class Sphere(Reals):
    """Σ xᵢ², in [−5.12, 5.12] (De Jong 1975). Least at 0."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=1, low=-5.12, high=5.12)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            total = 0.0
            for i in range(x.shape[1]):
                total += x[n, i] ** 2
            out[n, 0] = total


class Ellipsoid(Reals):
    """Σ 10^(6 (i − 1) / (L − 1)) xᵢ², in [−5, 5]: of condition 10⁶ (Hansen & Ostermeier 2001). Least at 0."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=2, low=-5.0, high=5.0)

    @staticmethod
    @njit
    def kernel(x, out):
        step = 1e6 ** (1 / (x.shape[1] - 1))
        for n in range(len(x)):
            weight = 1.0
            total = 0.0
            for i in range(x.shape[1]):
                total += weight * x[n, i] ** 2
                weight *= step
            out[n, 0] = total


class Rosenbrock(Reals):
    """Σ 100 (xᵢ₊₁ − xᵢ²)² + (1 − xᵢ)², in [−5, 10] (Rosenbrock 1960). Least at 1, at the end of a bent valley."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=2, low=-5.0, high=10.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            total = 0.0
            for i in range(x.shape[1] - 1):
                total += 100 * (x[n, i + 1] - x[n, i] ** 2) ** 2 + (1 - x[n, i]) ** 2
            out[n, 0] = total


class Rastrigin(Reals):
    """10 L + Σ xᵢ² − 10 cos 2πxᵢ, in [−5.12, 5.12] (Rastrigin 1974). Least at 0; a local minimum near each whole x."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=1, low=-5.12, high=5.12)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            total = 0.0
            for i in range(x.shape[1]):
                total += x[n, i] ** 2 + 20 * sine(x[n, i]) ** 2  # 10 − 10 cos 2πx = 20 sin² πx
            out[n, 0] = total


class Ackley(Reals):
    """20 + e − 20 exp(−0.2 √(Σ xᵢ² / L)) − exp(Σ cos 2πxᵢ / L), in [−32.768, 32.768] (Ackley 1987). Least at 0."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=1, low=-32.768, high=32.768)

    @staticmethod
    @njit
    def kernel(x, out):
        size = x.shape[1]
        for n in range(len(x)):
            square = wave = 0.0
            for i in range(size):
                square += x[n, i] ** 2
                wave += 2 * sine(x[n, i]) ** 2  # 1 − cos 2πx
            out[n, 0] = -20 * expm1(-0.2 * sqrt(square / size)) - e * expm1(-wave / size)


class Griewank(Reals):
    """1 + Σ xᵢ² / 4000 − Π cos(xᵢ / √i), in [−600, 600] (Griewank 1981). Least at 0."""

    optimum = 0.0

    def __init__(self, variables: int = 10) -> None:
        super().__init__(objectives=1, variables=variables, least=1, low=-600.0, high=600.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            square, product = 0.0, 1.0
            for i in range(x.shape[1]):
                square += x[n, i] ** 2
                product *= cos(x[n, i] / sqrt(i + 1))
            out[n, 0] = 1 + square / 4000 - product


class Shubert(Reals):
    """Π over two variables of Σ j cos((j + 1) x + j), j = 1 … 5, in [−10, 10] (Shubert 1972). Least at 18 places; 760 local minima."""

    optimum = -186.7309088310240

    def __init__(self) -> None:
        super().__init__(objectives=1, variables=2, least=2, low=-10.0, high=10.0)

    @staticmethod
    @njit
    def kernel(x, out):
        for n in range(len(x)):
            out[n, 0] = 1.0
            for i in range(2):
                total = 0.0
                for j in range(1, 6):
                    total += j * cos((j + 1) * x[n, i] + j)
                out[n, 0] *= total
