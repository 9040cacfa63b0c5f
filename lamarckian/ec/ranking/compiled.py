"""`njit`, Numba's compiler with its cache; where Numba cannot be imported, the same functions are interpreted, and slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import numba
except ImportError:

    def njit(function: Callable[..., Any]) -> Any:
        """Leaves the function as it is."""
        return function

else:

    def njit(function: Callable[..., Any]) -> Any:
        """Compiles the function at its first call, or takes it from the cache."""
        return numba.njit(cache=True, nogil=True)(function)
