"""Plain definitions that the kernels are compared with, and sets of points to compare them on."""

from collections.abc import Iterator

import numpy as np

from lamarckian.ec.ranking import UNRANKED


def ranks(fitness: np.ndarray, violation: np.ndarray | None = None) -> np.ndarray:
    """By comparing all with all, and peeling front by front."""
    finite = np.isfinite(fitness).all(1)
    if violation is None:
        violation = np.zeros(len(fitness))
    finite &= np.isfinite(violation)
    fitness, violation = np.where(finite[:, None], fitness, 0), np.where(finite, violation, 0)
    one, other = fitness[:, None], fitness[None]
    better = (one >= other).all(-1) & (one > other).any(-1)
    feasible = violation <= 0
    dominates = np.where(feasible[:, None] & feasible, better, violation[:, None] < violation)
    left, result, front = finite, np.full(len(fitness), UNRANKED), 0
    while left.any():
        first = left & ~dominates[left].any(0)
        result[first] = front
        left, front = left & ~first, front + 1
    return result


def copies(front: np.ndarray) -> np.ndarray:
    """Whether a row is equal to an earlier one."""
    surplus = np.ones(len(front), bool)
    surplus[np.unique(front + 0.0, axis=0, return_index=True)[1]] = False
    return surplus


def crowding(front: np.ndarray, span: np.ndarray | None = None) -> np.ndarray:
    """Of one front without copies."""
    if span is None:
        span = np.ptp(front, axis=0)
    if len(front) == 1:
        return np.array([np.inf])
    distance = np.zeros(len(front))
    for j in range(front.shape[1]):
        if span[j] == 0:
            continue
        keys = [front[:, (j + step) % front.shape[1]] for step in range(front.shape[1])]
        order = np.lexsort(keys[::-1])
        distance[order[[0, -1]]] = np.inf
        distance[order[1:-1]] += (front[order[2:], j] - front[order[:-2], j]) / span[j]
    return distance


def nearest_products(front: np.ndarray, span: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Products of the squared distances to the M nearest; infinite at the ends."""
    objectives = front.shape[1]
    unit = np.where(span > 0, front / np.where(span > 0, span, 1), 0)
    gaps = np.zeros((len(front), len(front)))
    for j in range(objectives):
        gaps += (unit[:, None, j] - unit[None, :, j]) ** 2
    np.fill_diagonal(gaps, np.inf)
    products = np.prod(np.sort(gaps, axis=1)[:, :objectives], axis=1) if len(front) > objectives else np.full(len(front), np.inf)
    return np.where(ends, np.inf, products)


def prune(front: np.ndarray, size: int, method: str) -> list[int]:
    """The rows left of one front: copies go first, then the least key, computed anew each time unless it is "crowding"."""
    surplus = copies(front)
    left = list(np.flatnonzero(~surplus))
    if len(left) <= size:
        return sorted(left + list(np.flatnonzero(surplus)[: size - len(left)]))
    span, once = np.ptp(front, axis=0), np.full(len(front), np.nan)
    once[left] = crowding(front[left])
    while len(left) > size:
        keys = {
            "crowding": lambda: once[left],
            "pcd": lambda: crowding(front[left], span),
            "mnn": lambda: nearest_products(front[left], span, np.isinf(once[left])),
        }[method]()
        left.remove(-min(zip(keys, [-row for row in left], strict=True))[1])
    return left


def sets(objectives: int) -> Iterator[tuple[str, np.ndarray]]:
    """Named sets of points `[N, objectives]`, some of them degenerate."""
    random = np.random.default_rng(objectives)
    for size in (0, 1, 2, 3, 17, 64, 65, 150):
        yield f"random {size}", random.random((size, objectives))
    for values in (1, 2, 3, 6):
        yield f"{values} values", random.integers(0, values, (120, objectives)).astype(float)
    yield "signed zeros", random.choice([-0.0, 0.0, 1.0], (60, objectives))
    constant = random.random((90, objectives))
    constant[:, objectives // 2] = 0.5
    yield "one constant", constant
    line = random.permutation(100)[:, None]
    yield "chain", np.repeat(line, objectives, axis=1).astype(float)
    front = random.integers(0, 40, (100, objectives)).astype(float)
    front[:, -1] = 100 - front[:, :-1].sum(1)
    yield "collinear or flat", front
    sphere = np.abs(random.normal(size=(300, objectives)))
    yield "single front", sphere / np.linalg.norm(sphere, axis=1, keepdims=True)
    yield "many rows", np.round(random.random((400, objectives)), 2)
    yield "layers", np.round(random.random((300, objectives)), 1) + random.integers(0, 100, (300, 1))
    yield "huge and tiny", random.normal(size=(100, objectives)) * 10.0 ** random.integers(-150, 150, (100, 1))
