"""A table of normal numbers that every process has alike, and the two passes over it: perturbed vectors, and their weighted sum."""

from __future__ import annotations

import weakref

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.seeding import generator

_SEED = 20170310
_SMALLEST, _LARGEST, _PER_GENE = 1 << 20, 25_000_000, 64
_BLOCK = 8192  # genes; what a pass goes over again and again stays in the cache
_TOGETHER = 4  # rows that the sum takes at once
_KEPT = 2  # memories; a driver holds the last offspring while it makes the next

_tables: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def table(size: int) -> np.ndarray:
    """Standard normal numbers, float32 `[size]`, read only; the same in every process, and one for all who need it in this one."""
    numbers = _tables.get(size)
    if numbers is None:
        numbers = generator(_SEED, "noise").standard_normal(size, np.float32)
        numbers.flags.writeable = False
        _tables[size] = numbers
    return numbers


def table_size(genes: int) -> int:
    """A size that fits: 64 numbers a gene, between a million (4 MB) and 25 million (100 MB), but at least two a gene."""
    return max(min(max(_PER_GENE * genes, _SMALLEST), _LARGEST), 2 * genes)


class Memory:
    """Arrays whose memory is used again once nobody refers to them: fresh pages cost as much as filling them."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """An array with anything in it. It may be kept as long as one likes, or views of it."""
        size_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        try:
            memory = self._free.pop()
        except IndexError:  # none is free, or another thread was faster
            memory = np.empty(0, np.uint8)
        if len(memory) != size_bytes:
            memory = np.empty(size_bytes, np.uint8)
        whole: np.ndarray = np.frombuffer(memory.data, dtype)  # what views of it refer to; it dies when the last of them does
        weakref.finalize(whole, self._give_back, memory).atexit = False
        return whole.reshape(shape)

    def _give_back(self, memory: np.ndarray) -> None:
        if len(self._free) < _KEPT:
            self._free.append(memory)


@njit
def perturb(
    noise: np.ndarray, places: np.ndarray, signs: np.ndarray, centre: np.ndarray,
    spread: np.ndarray, low: np.ndarray, high: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fills `out` `[N, L]` with centre + sign · spread · noise, clipped to the bounds.

    noise: float32 table. places: int64 `[N]`, where a row's noise begins. signs `[N]`; centre, spread, low, high `[L]`: all of the dtype
    of `out`.
    """
    for start in range(0, len(centre), _BLOCK):
        stop = min(len(centre), start + _BLOCK)
        middle, width, lowest, highest = centre[start:stop], spread[start:stop], low[start:stop], high[start:stop]
        for row in range(len(places)):
            numbers, genes = noise[places[row] + start : places[row] + stop], out[row, start:stop]
            sign = signs[row]
            for gene in range(stop - start):
                genes[gene] = min(max(middle[gene] + sign * width[gene] * numbers[gene], lowest[gene]), highest[gene])


def weighted_sum(noise: np.ndarray, places: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Fills `out`, float32 `[L]`, with Σ weight · noise over the rows of the table that begin at `places` `[n]`."""
    padding = (0, -len(places) % _TOGETHER)
    _weighted_sum(noise, np.pad(places, padding), np.pad(weights.astype(np.float32), padding), out)


@njit
def _weighted_sum(noise: np.ndarray, places: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    for start in range(0, len(out), _BLOCK):
        stop = min(len(out), start + _BLOCK)
        total = out[start:stop]
        total[:] = 0.0
        for row in range(0, len(places), _TOGETHER):
            a = noise[places[row] + start : places[row] + stop]
            b = noise[places[row + 1] + start : places[row + 1] + stop]
            c = noise[places[row + 2] + start : places[row + 2] + stop]
            d = noise[places[row + 3] + start : places[row + 3] + stop]
            w, x, y, z = weights[row], weights[row + 1], weights[row + 2], weights[row + 3]
            for gene in range(stop - start):
                total[gene] += (w * a[gene] + x * b[gene]) + (y * c[gene] + z * d[gene])
