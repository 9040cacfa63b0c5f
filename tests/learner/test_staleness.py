import numpy as np
import pytest

from lamarckian.learner.staleness import OLDEST, Staleness


def test_percentiles_by_hand():
    ages = Staleness()
    ages.add(np.full((2, 25), 7), 7)  # 50 samples of age 0
    ages.add(np.array([[5] * 40 + [4] * 9 + [-100_000]]), 7)  # 40 of age 2, 9 of 3, one far too old
    assert ages.take() == {"staleness/p50": 0.0, "staleness/p90": 2.0, "staleness/p99": 3.0}
    assert ages.take() == {}
    ages.add(np.array([0]), OLDEST + 5)
    assert ages.take()["staleness/p50"] == OLDEST


@pytest.mark.parametrize("seed", [0, 1])
def test_percentiles_are_numpys(seed):
    versions = np.random.default_rng(seed).integers(900, 1000, (64, 32))
    ages = Staleness()
    ages.add(versions, 1000)
    expected = np.percentile(1000 - versions, (50, 90, 99), method="inverted_cdf")
    assert list(ages.take().values()) == expected.tolist()
