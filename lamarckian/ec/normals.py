"""Standard normal numbers in bulk: a candidate's vector, of the stream that its id names.

The ziggurat of Marsaglia & Tsang (2000) with 256 layers, as Doornik (2005) made it exact: more than twice as fast as numpy's generators.
"""

from __future__ import annotations

from math import erfc, exp, log, pi, sqrt

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.stream import STATE_WORDS, open_stream, uniform, word

_LAYERS = 256
_EDGE = 3.6541528853610088
"""Where the tail begins, so that all layers have the same area."""


def _widths() -> np.ndarray:
    """The layers' widths, from the lowest, which holds the tail, float64 `[257]`; the last is 0."""
    density = exp(-0.5 * _EDGE**2)
    area = _EDGE * density + sqrt(pi / 2.0) * erfc(_EDGE / sqrt(2.0))
    widths = [area / density, _EDGE]
    while len(widths) < _LAYERS:
        widths.append(sqrt(-2.0 * log(area / widths[-1] + exp(-0.5 * widths[-1] ** 2))))
    return np.array([*widths, 0.0])


_WIDTH = _widths()
_CERTAIN = _WIDTH[1:] / _WIDTH[:-1]


def normals(seed: int, ids: np.ndarray, length: int) -> np.ndarray:
    """Standard normal numbers, float64 `[N, length]`: a row of the stream of `seed` and each of `ids`, int64 `[N]`."""
    out = np.empty((len(ids), length))
    _fill(seed, ids, out)
    return out


@njit
def _fill(seed: int, ids: np.ndarray, out: np.ndarray) -> None:
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(out.shape[0]):
        open_stream(state, seed, ids[row])
        for index in range(out.shape[1]):
            while True:
                bits = word(state)
                layer = int(bits & np.uint64(_LAYERS - 1))
                share = float(bits >> np.uint64(11)) * (2.0 / 9007199254740992.0) - 1.0
                x = share * _WIDTH[layer]
                if abs(share) < _CERTAIN[layer]:
                    break
                if layer == 0:
                    x = np.copysign(_tail(state), share)
                    break
                if _accepts(state, layer, x):
                    break
            out[row, index] = x


@njit
def _accepts(state: np.ndarray, layer: int, x: float) -> bool:
    """Whether a point that is drawn from a layer's overhang lies below the density."""
    outer = np.exp(0.5 * (x * x - _WIDTH[layer] ** 2))
    inner = np.exp(0.5 * (x * x - _WIDTH[layer + 1] ** 2))
    return inner + uniform(state) * (outer - inner) < 1.0


@njit
def _tail(state: np.ndarray) -> float:
    """A normal number known to be above `_EDGE` (Marsaglia 1964)."""
    while True:
        beyond = -np.log(1.0 - uniform(state)) / _EDGE
        if -2.0 * np.log(1.0 - uniform(state)) >= beyond * beyond:
            return _EDGE + beyond
