"""float32 to bfloat16, its upper half, and back: half the bytes on the wire, 8 bits of precision."""

from __future__ import annotations

import numpy as np


def rounded(flat: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 of float32 numbers, ties to even, as uint16 of the same shape. Not-a-number stays so."""
    bits = flat.view(np.uint32)
    upper = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    return np.where(np.isnan(flat), ((bits >> 16) | 0x40).astype("<u2"), upper)


def widened(halves: np.ndarray) -> np.ndarray:
    """The float32 numbers that bfloat16 ones, as uint16, are."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
