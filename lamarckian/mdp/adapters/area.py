"""Shrinking grey pictures by area, to the very bytes of OpenCV's `INTER_AREA`, which ALE's vector environment uses."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
from numba import njit


class Shrink:
    """Shrinks pictures uint8 `[height, width]` to `[size, size]`, which must be smaller: each pixel is the mean of what it covers."""

    def __init__(self, height: int, width: int, size: int) -> None:
        self._rows = _weights(height, size)
        self._columns = _weights(width, size)
        self._scratch = np.zeros((2, size), np.float32)

    def __call__(self, picture: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
        """Makes `picture` the brighter of both at each pixel, and shrinks it into `out`."""
        _shrink(picture, other, out, *self._rows, *self._columns, self._scratch)


def _weights(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """For each target pixel the source pixels it covers, int `[taps, target]`, and their weights, float32 `[taps, target]`."""
    scale = 1.0 / (target / source)
    taps: list[list[tuple[int, float]]] = []
    for pixel in range(target):
        start, end = pixel * scale, pixel * scale + scale
        width = min(scale, source - start)
        last = min(floor(end), source - 1)
        first = min(ceil(start), last)
        covered = [(first - 1, (first - start) / width)] if first - start > 1e-3 else []
        covered += [(whole, 1.0 / width) for whole in range(first, last)]
        if end - last > 1e-3:
            covered.append((last, min(end - last, 1.0, width) / width))
        taps.append(covered)
    most = max(map(len, taps))
    padded = [covered + [(0, 0.0)] * (most - len(covered)) for covered in taps]
    index, weight = np.array(padded).transpose(2, 1, 0)
    return np.ascontiguousarray(index, np.int32), np.ascontiguousarray(weight, np.float32)


@njit(cache=True)
def _shrink(picture, other, out, row_index, row_weight, column_index, column_weight, scratch):  # type: ignore[no-untyped-def]
    """float32 sums in OpenCV's order: along a row first, then down the rows; halves are rounded to even."""
    height, width = picture.shape
    for y in range(height):
        for x in range(width):
            picture[y, x] = max(picture[y, x], other[y, x])
    size = len(out)
    row, total = scratch
    done = -1
    for y in range(size):
        for tap in range(len(row_index)):
            weight = row_weight[tap, y]
            if weight == 0:
                continue
            source = row_index[tap, y]
            if source != done:
                row[:] = 0
                for along in range(len(column_index)):
                    for x in range(size):
                        row[x] += picture[source, column_index[along, x]] * column_weight[along, x]
                done = source
            for x in range(size):
                total[x] = weight * row[x] if tap == 0 else total[x] + weight * row[x]
        for x in range(size):
            out[y, x] = np.uint8(np.rint(total[x]))
