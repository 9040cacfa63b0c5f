"""What must hold for every operator, whatever it does."""

from typing import Any

import numpy as np

IDS = np.arange(40, 46)


def check_crossover(operator: Any, part: Any, seed: int) -> None:
    """Children are valid, in memory of their own, the same in any portions; of equal parents they are their equals."""
    assert isinstance(part, operator.parts)
    generator = np.random.default_rng(seed)
    a, b = part.sample(len(IDS), generator), part.sample(len(IDS), generator)
    before = a.copy(), b.copy()
    children = operator.cross(part, a, b, seed, IDS)
    assert np.array_equal(a, before[0]) and np.array_equal(b, before[1])
    assert children.shape == a.shape and children.dtype == part.dtype
    assert part.fault(children) is None
    assert not np.shares_memory(children, a) and not np.shares_memory(children, b)
    one_by_one = [operator.cross(part, a[row : row + 1], b[row : row + 1], seed, IDS[row : row + 1]) for row in range(len(IDS))]
    assert np.array_equal(children, np.concatenate(one_by_one))
    assert np.array_equal(operator.cross(part, a, a.copy(), seed, IDS), a)


def check_mutation(operator: Any, part: Any, seed: int) -> None:
    """Mutants are valid and the same in any portions."""
    assert isinstance(part, operator.parts)
    genes = part.sample(len(IDS), np.random.default_rng(seed))
    together, one_by_one = genes.copy(), genes.copy()
    operator.mutate(part, together, seed, IDS)
    assert together.shape == genes.shape and together.dtype == part.dtype
    assert part.fault(together) is None
    for row in reversed(range(len(IDS))):
        operator.mutate(part, one_by_one[row : row + 1], seed, IDS[row : row + 1])
    assert np.array_equal(together, one_by_one)


def evenly(counts: Any) -> bool:
    """Whether counts are what equally likely outcomes give, each within five standard errors."""
    counts = np.asarray(counts, float)
    total, share = counts.sum(), 1.0 / counts.size
    return bool((abs(counts - total * share) < 5.0 * np.sqrt(total * share * (1.0 - share))).all())


def about(values: Any, mean: float) -> bool:
    """Whether the mean of independent `values` is `mean`, within four standard errors."""
    values = np.asarray(values, float).ravel()
    return bool(abs(values.mean() - mean) <= 4.0 * values.std() / np.sqrt(values.size))
