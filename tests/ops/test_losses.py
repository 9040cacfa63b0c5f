"""Losses against numbers worked out by hand."""

import math

import pytest
import torch

from lamarckian import ops


def test_clipped_surrogate_by_hand():
    ratio = torch.tensor([1.5, 0.5, 1.1, 1.5, 0.5, 0.9])
    advantage = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    torch.testing.assert_close(ops.clipped_surrogate(ratio, advantage, 0.2), torch.tensor([2.4, 1.0, 2.2, -3.0, -1.6, -1.8]))


def test_dual_clip_by_hand():
    # Only a negative advantage with a ratio above c is bounded, by c A.
    ratio = torch.tensor([5.0, 5.0, 2.5, 0.5])
    advantage = torch.tensor([2.0, -2.0, -2.0, -2.0])
    torch.testing.assert_close(ops.dual_clipped_surrogate(ratio, advantage, 0.2, 3.0), torch.tensor([2.4, -6.0, -5.0, -1.6]))


def test_dual_clip_stops_the_gradient_where_it_binds():
    ratio = torch.tensor([5.0, 2.5], requires_grad=True)
    ops.dual_clipped_surrogate(ratio, torch.tensor([-2.0, -2.0]), 0.2, 3.0).sum().backward()
    assert ratio.grad.tolist() == [0.0, -2.0]


def test_a_ratio_never_overflows_and_neither_does_its_gradient():
    log_prob = torch.tensor([0.0, 500.0], requires_grad=True)
    ratio = ops.ratio(log_prob, torch.tensor([-math.log(2), 0.0]))
    assert ratio[0].item() == pytest.approx(2.0)
    ratio.sum().backward()
    assert torch.isfinite(ratio).all() and torch.isfinite(log_prob.grad).all()


def test_value_losses_by_hand():
    value, target = torch.tensor([1.0, 4.0]), torch.tensor([1.5, 1.0])
    assert ops.squared_error(value, target).tolist() == [0.125, 4.5]
    assert ops.huber(value, target).tolist() == [0.125, 2.5]


def test_clipped_value_loss_by_hand():
    # From 0 the value may move to 0.5: the further of the two errors counts, so overshooting is not rewarded.
    value, old, target = torch.tensor([2.0, 0.2]), torch.zeros(2), torch.tensor([2.0, 2.0])
    loss = ops.clipped_value_loss(ops.squared_error, value, old, target, 0.5)
    torch.testing.assert_close(loss, torch.tensor([0.5 * 1.5**2, 0.5 * 1.8**2]))


def test_kl_divergence_estimates_what_it_should():
    behaviour, policy = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    exact = (behaviour * (behaviour / policy).log()).sum()
    entries = ops.kl_divergence(policy / behaviour)
    assert (entries >= 0).all()
    torch.testing.assert_close((behaviour * entries).sum(), exact)


def test_normalise_minds_the_mask():
    advantage = torch.tensor([[1.0, 3.0], [float("nan"), 5.0]])
    mask = torch.tensor([[True, True], [False, True]])
    normal = ops.normalise(advantage, mask)
    assert normal[1, 0] == 0
    kept = normal[mask]
    torch.testing.assert_close(kept, torch.tensor([-1.2247449, 0.0, 1.2247449]))


def test_normalise_survives_equal_and_missing_entries():
    assert ops.normalise(torch.full((3,), 7.0), torch.ones(3, dtype=torch.bool)).tolist() == [0, 0, 0]
    assert ops.normalise(torch.ones(3), torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]


def test_normalise_by_sums_over_more_entries():
    """Those of 1 and 3 beside 5 and 7: the mean is 4, the variance 5."""
    sums = iter([torch.tensor([12.0, 2.0]), torch.tensor(10.0)])
    normal = ops.normalise(torch.tensor([1.0, 3.0, 99.0]), torch.tensor([True, True, False]), add=lambda mine: mine.add_(next(sums)))
    torch.testing.assert_close(normal, torch.tensor([-3.0, -1.0, 0.0]) / math.sqrt(5))


def test_policy_gradient_by_hand():
    log_prob = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    objective = ops.policy_gradient(torch.tensor([0.5, 3.0, 1.0]), torch.tensor([2.0, 4.0, -1.0]), log_prob)
    assert objective.tolist() == [-1.0, -8.0, 0.5]
    objective.sum().backward()
    assert log_prob.grad.tolist() == [1.0, 4.0, -1.0]


def test_the_weight_of_a_policy_gradient_has_no_gradient():
    log_prob = torch.tensor([-1.0], requires_grad=True)
    ops.policy_gradient(ops.ratio(log_prob, torch.tensor([0.0])), torch.tensor([1.0]), log_prob).backward()
    assert log_prob.grad.item() == pytest.approx(math.exp(-1.0))


def test_the_weight_of_a_choice_by_hand():
    found = ops.choice_weight(torch.tensor([1, 2, 3, 101]), 2.0)
    assert found.tolist() == pytest.approx([0.0, 0.5, 1 / (2 + math.log(2)), 1 / (2 + math.log(100))])
