"""A sampler and a rule as users write them."""

from __future__ import annotations

import numpy as np

from lamarckian.evaluate.samplers import Sampler


class First(Sampler):
    """Meets the first version only."""

    def __init__(self, share: float = 1.0) -> None:
        self._share = share

    def shares(self, pool):
        past = np.zeros(len(pool.versions))
        past[0] = self._share
        return 1 - self._share, past


class Never:
    """Takes no version in."""

    def due(self, since):
        return False
