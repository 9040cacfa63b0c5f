"""Coordinates without bounds for genes with bounds, so that a search need not know of these."""

from __future__ import annotations

import numpy as np

from lamarckian.ec.compiled import njit

MARGIN = 0.05
"""How far, as a share of a gene's range, a bound is felt on its inner side."""
_SPAN = 1.0 + 2.0 * MARGIN


class Coordinates:
    """Every real number stands for a gene within its bounds: [0, 1] for its range, infinite bounds for the number itself.

    Away from the bounds it is plain proportion. Within `MARGIN` of a bound it is a parabola with its vertex on that bound, then all is
    mirrored, and so on for ever. So a search on a sloping function sees a smooth minimum at the bound: its distribution is neither cut off
    nor pushed about, ranks need no penalty, and the optimum may lie on a face or in a corner. (The idea is that of the boundary
    transformation in N. Hansen's programs.)

    low, high: `[L]`, both finite or both infinite.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = low, high

    def genes(self, centre: np.ndarray, scale: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The genes `[N, L]` at centre `[L]` + scale `[L]` · steps `[N, L]`."""
        genes = np.empty_like(steps)
        _place(centre, scale, steps, self.low, self.high, genes)
        return genes

    def of(self, genes: np.ndarray) -> np.ndarray:
        """The coordinates nearest to the middle that stand for genes `[L]`."""
        bounded = np.isfinite(self.low)
        width = np.where(bounded & (self.high > self.low), self.high - self.low, 1.0)
        share = np.where(bounded, (genes - self.low) / width, 0.5)
        near = np.minimum(share, 1.0 - share)
        bent = 2.0 * np.sqrt(MARGIN * np.clip(near, 0.0, MARGIN)) - MARGIN
        inner = np.where(near < MARGIN, np.where(share < 0.5, bent, 1.0 - bent), share)
        return np.where(bounded, inner, genes)


@njit
def _place(centre: np.ndarray, scale: np.ndarray, steps: np.ndarray, low: np.ndarray, high: np.ndarray, genes: np.ndarray) -> None:
    for row in range(steps.shape[0]):
        for gene in range(steps.shape[1]):
            value = centre[gene] + scale[gene] * steps[row, gene]
            if high[gene] < np.inf:
                at = abs(value + MARGIN)
                if at > _SPAN:
                    at %= 2.0 * _SPAN
                    at = min(at, 2.0 * _SPAN - at)
                if at < 2.0 * MARGIN:
                    share = at * at / (4.0 * MARGIN)
                elif at > 1.0:
                    share = 1.0 - (_SPAN - at) ** 2 / (4.0 * MARGIN)
                else:
                    share = at - MARGIN
                value = min(max(low[gene] + share * (high[gene] - low[gene]), low[gene]), high[gene])
            genes[row, gene] = value
