"""What is asked of every front: no point of it dominates another, and how much lies beneath it."""

from __future__ import annotations

import numpy as np


def dominated(points: np.ndarray) -> np.ndarray:
    """Which of the points `[P, M]` another one dominates (objectives to be minimised), by comparing all pairs."""
    no_worse = (points[:, None] <= points).all(axis=-1)
    better = (points[:, None] < points).any(axis=-1)
    return (no_worse & better).any(axis=0)


def area(points: np.ndarray, reference: float = 1.1) -> tuple[float, float]:
    """Hypervolume of points `[P, 2]` that do not dominate each other, and the most that the true front may have above that.

    Between two neighbours the true front lies in the rectangle that has them as corners.
    """
    f1, f2 = points[np.argsort(points[:, 0])].T
    width = np.diff(f1, append=reference)
    return float(width @ (reference - f2)), float(-np.diff(f1) @ np.diff(f2))


def volume(points: np.ndarray, reference: np.ndarray) -> float:
    """Hypervolume of points `[P, 3]`, by slices along the last objective."""
    points = points[np.argsort(points[:, 2])]
    total = 0.0
    for depth, height in enumerate(np.diff(points[:, 2], append=reference[2]), start=1):
        f1, f2 = points[:depth][np.argsort(points[:depth, 0], kind="stable")].T[:2]
        total += height * float(np.diff(f1, append=reference[0]) @ (reference[1] - np.minimum.accumulate(f2)))
    return total
