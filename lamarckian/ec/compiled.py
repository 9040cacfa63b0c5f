"""`njit`, Numba's compiler with its cache; where Numba cannot be imported, the same functions are interpreted, and slow.

The cache of a kernel looks at that kernel's own file only: whoever changes a function that other files call removes `__pycache__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

try:
    import numba
except ImportError:
    import numpy as np

    def njit(function: Callable[..., Any]) -> Any:
        """Leaves the function as it is, but for warnings: integers wrap and floats divide as in a compiled one."""

        @functools.wraps(function)
        def interpreted(*arguments: Any) -> Any:
            with np.errstate(all="ignore"):
                return function(*arguments)

        return interpreted

else:

    def njit(function: Callable[..., Any]) -> Any:
        """Compiles the function at its first call, or takes it from the cache. A division by zero gives what numpy's gives."""
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
