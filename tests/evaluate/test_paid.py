"""The figures of rewards, by hand."""

import numpy as np
import pytest

from lamarckian.data.pool import MatchResult
from lamarckian.evaluate.paid import Paid
from lamarckian.learner.batches import Batch

WEIGHTS = {"hp": 2.0, "gold": 1.0}


def batch(*results: MatchResult) -> Batch:
    reward = np.array([[[1.0, 0.0], [0.0, -4.0]]], np.float32)  # one step of two controllers
    return Batch({"reward": reward}, {}, list(results))


def result(role: str, outcome: str, length: int, *returns: float) -> MatchResult:
    return MatchResult(role, 1.0, outcome, length, list(returns))


def test_means_and_shares_of_all_samples():
    found = Paid(["left"], lambda: WEIGHTS)(batch())
    assert found == {"reward.hp": 0.5, "reward_share.hp": 1 / 3, "reward.gold": -2.0, "reward_share.gold": pytest.approx(2 / 3)}


def test_by_outcome_and_by_role():
    results = [result("left", "win", 10, 5.0, 3.0), result("right", "win", 30, 5.0, -1.0), result("right", "loss", 4, 0.0, -2.0)]
    found = Paid(["left", "right"], lambda: WEIGHTS)(batch(*results))
    assert (found["reward.outcome.win.hp"], found["reward.outcome.win.gold"]) == (0.25, 0.05)  # 10 and 2, over 40 steps
    assert found["reward_share.outcome.win.hp"] == pytest.approx(2 * 10 / (2 * 10 + 4))  # |5| + |5|, and |3| + |-1|
    assert (found["reward.role.right.hp"], found["reward.role.right.gold"]) == pytest.approx((5 / 34, -3 / 34))
    assert (found["reward_share.outcome.loss.hp"], found["reward_share.outcome.loss.gold"]) == (0, 1)
    assert not [name for name in found if ".draw." in name]


def test_one_role_and_one_reward_need_no_figures_of_their_own():
    assert not [name for name in Paid(["left"], lambda: WEIGHTS)(batch(result("left", "win", 1, 1.0, 1.0))) if ".role." in name]
    assert Paid(["left"], lambda: {"score": 1.0})(batch(result("left", "win", 1, 1.0))) == {}
