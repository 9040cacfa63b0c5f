"""The figures of rewards, by hand."""

import numpy as np
import pytest
import torch

from lamarckian.data.fragment import OUTCOMES, layout
from lamarckian.data.pool import MatchResult
from lamarckian.evaluate.paid import Paid
from lamarckian.learner.batches import Batch
from lamarckian.mdp import Discrete, Role, Vector

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


def valued(lanes: list[int]) -> Batch:
    """Two columns of three steps. The first: a match is lost with the first step, another goes on. The second: one is won with the
    second step, and the third step is a script's. Values are 1 for hp, 0 for gold; rewards 2 for hp, 0 for gold."""
    arrays = layout(Role({"x": Vector(1)}, {"a": Discrete(2)}, ("hp", "gold")), 3, 2).empty()
    arrays["value"][:] = [1.0, 0.0]
    arrays["reward"][:] = [2.0, 0.0]
    arrays["bootstrap"][:] = arrays["truncated"][:] = arrays["outcome"][:] = 0
    arrays["terminated"][:] = [[True, False], [False, True], [False, False]]
    arrays["outcome"][0, 0], arrays["outcome"][1, 1] = OUTCOMES.index("loss"), OUTCOMES.index("win")
    arrays["learn"][:] = [[True, True], [True, True], [True, False]]
    arrays["lane"][:] = lanes
    return Batch(arrays, {name: torch.from_numpy(array) for name, array in arrays.items()})


def test_value_losses_by_outcome_and_role():
    """γ = ½ for hp. G is 2 where a match ends, 2 + ½ · 2 before that; 2 + ½ · 1 at the first column's end, and 2 + ½ · 2.5 before."""
    found = Paid(["left", "right"], lambda: WEIGHTS, {"hp": 0.5, "gold": 0.9}, matches=4)(valued([(5 << 20) + 3, (5 << 20) + 4]))
    lost, open_, won = [2.0], [3.25, 2.5], [3.0, 2.0]

    def loss(returns: list[float]) -> float:
        return pytest.approx(sum(0.5 * (g - 1) ** 2 for g in returns) / len(returns))

    assert found["value_loss.hp"] == loss(lost + open_ + won)
    assert found["value_loss.outcome.loss.hp"] == loss(lost)
    assert found["value_loss.outcome.win.hp"] == loss(won)
    assert found["value_loss.role.left.hp"] == loss(lost + open_)
    assert found["value_loss.role.right.hp"] == loss(won)
    assert found["value_loss.gold"] == found["value_loss.outcome.win.gold"] == 0
    assert not [name for name in found if name.startswith("value_loss.outcome.draw")]


def test_without_a_critic_there_is_no_value_loss():
    assert not [name for name in Paid(["left"], lambda: WEIGHTS)(valued([0, 1])) if name.startswith("value_loss")]
    assert not [name for name in Paid(["left"], lambda: WEIGHTS, {"hp": 1.0, "gold": 1.0})(batch()) if name.startswith("value_loss")]
