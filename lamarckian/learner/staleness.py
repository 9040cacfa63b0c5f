"""How old samples are when they are learned from: the whole distribution, not its mean alone."""

from __future__ import annotations

import numpy as np

OLDEST = 4095
SHARES = (50, 90, 99)


class Staleness:
    """Counts samples by how many versions the learner was ahead of the one that acted; those of more than `OLDEST` count as that."""

    def __init__(self) -> None:
        self._counts = np.zeros(OLDEST + 1, np.int64)

    def add(self, acted: np.ndarray, version: int) -> None:
        """Counts a batch, learned from at `version`; acted: int64, the versions that acted."""
        found = np.bincount(np.clip(version - acted.ravel(), 0, OLDEST))
        self._counts[: len(found)] += found

    def take(self) -> dict[str, float]:
        """The percentiles `staleness/p50`, `p90` and `p99` of what was counted: the least age that so many percent do not exceed.

        Nothing where nothing was counted; starts anew.
        """
        total = int(self._counts.sum())
        if not total:
            return {}
        upto = np.cumsum(self._counts)
        line = {f"staleness/p{share}": float(np.searchsorted(upto, share / 100 * total)) for share in SHARES}
        self._counts[:] = 0
        return line
