"""Advantages and returns against numbers worked out by hand, and against what must hold for any numbers."""

import pytest
import torch
from torch import Tensor

from lamarckian import ops


def trace(steps: int, columns: int, rewards: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, columns, rewards, generator=generator)

    return {
        "reward_t": normal(steps),
        "value_tT": normal(steps + 1),
        "bootstrap_t": normal(steps),
        "terminated_t": torch.zeros(steps, columns, dtype=torch.bool),
        "truncated_t": torch.zeros(steps, columns, dtype=torch.bool),
        "gamma": torch.linspace(0.9, 0.99, rewards),
    }


def column(*values: float) -> Tensor:
    return torch.tensor(values).reshape(-1, 1, 1)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool).reshape(-1, 1)


def returns(t: dict[str, Tensor]) -> Tensor:
    return ops.discounted_returns(t["reward_t"], t["value_tT"][-1], t["bootstrap_t"], t["terminated_t"], t["truncated_t"], t["gamma"])


def test_advantages_by_hand():
    # γ = ½, λ = ½: δ = (1 + 1 − 1, 2 + 2 − 2, 3 + 4 − 4) = (1, 2, 3); A₂ = 3, A₁ = 2 + ¾, A₀ = 1 + ¼ · 2¾.
    t = trace(3, 1, 1) | {"reward_t": column(1, 2, 3), "value_tT": column(1, 2, 4, 8), "gamma": torch.tensor([0.5])}
    assert ops.advantages(**t, gae_lambda=0.5).flatten().tolist() == [1.6875, 2.75, 3.0]


def test_termination_by_hand():
    # The middle step ends a match: δ₁ = 2 + 0 − 2 = 0, and nothing comes back from the next match.
    t = trace(3, 1, 1) | {"reward_t": column(1, 2, 3), "value_tT": column(1, 2, 4, 8), "gamma": torch.tensor([0.5])}
    t["terminated_t"] = flags(0, 1, 0)
    assert ops.advantages(**t, gae_lambda=0.5).flatten().tolist() == [1.0, 0.0, 3.0]


def test_truncation_by_hand():
    # As above, but the cut match is worth 6 from there on: δ₁ = 2 + ½ · 6 − 2 = 3.
    t = trace(3, 1, 1) | {"reward_t": column(1, 2, 3), "value_tT": column(1, 2, 4, 8), "gamma": torch.tensor([0.5])}
    t |= {"truncated_t": flags(0, 1, 0), "bootstrap_t": column(100, 6, 100)}
    assert ops.advantages(**t, gae_lambda=0.5).flatten().tolist() == [1.75, 3.0, 3.0]


def test_a_match_both_terminated_and_truncated_is_terminated():
    t = trace(4, 3, 2)
    t["terminated_t"][1] = True
    alone = ops.advantages(**t, gae_lambda=0.9)
    t["truncated_t"][1] = True
    assert torch.equal(alone, ops.advantages(**t, gae_lambda=0.9))


def test_discounted_returns_by_hand():
    # γ = ½: a truncated match worth 8, then two steps before the fragment's end, where the value is 4.
    t = trace(4, 1, 1) | {"reward_t": column(1, 2, 3, 4), "gamma": torch.tensor([0.5]), "value_tT": column(0, 0, 0, 0, 4)}
    t |= {"truncated_t": flags(0, 1, 0, 0), "bootstrap_t": column(0, 8, 0, 0)}
    assert returns(t).flatten().tolist() == [4.0, 6.0, 6.0, 6.0]


@pytest.mark.parametrize("rewards", [1, 3])
def test_with_lambda_one_advantages_are_returns_less_values(rewards):
    t = trace(20, 5, rewards)
    t["terminated_t"][7, :3] = True
    t["truncated_t"][11, 2:] = True
    t["truncated_t"][-1, 0] = True
    t["terminated_t"][-1, 1] = True
    torch.testing.assert_close(ops.advantages(**t, gae_lambda=1.0), returns(t) - t["value_tT"][:-1], rtol=1e-4, atol=1e-5)


def test_with_lambda_zero_advantages_are_one_step_errors():
    t = trace(6, 4, 2)
    expected = t["reward_t"] + t["gamma"] * t["value_tT"][1:] - t["value_tT"][:-1]
    torch.testing.assert_close(ops.advantages(**t, gae_lambda=0.0), expected)


@pytest.mark.parametrize("end", ["terminated_t", "truncated_t"])
def test_two_matches_in_one_trace_equal_each_alone(end):
    t = trace(10, 3, 2)
    t[end][5] = True
    both = ops.advantages(**t, gae_lambda=0.9)
    time_major = ("reward_t", "bootstrap_t", "terminated_t", "truncated_t")
    first = {name: x[:6] if name in time_major else x for name, x in t.items()} | {"value_tT": t["value_tT"][:7]}
    second = {name: x[6:] if name in time_major else x for name, x in t.items()} | {"value_tT": t["value_tT"][6:]}
    assert torch.equal(both[:6], ops.advantages(**first, gae_lambda=0.9))
    assert torch.equal(both[6:], ops.advantages(**second, gae_lambda=0.9))


def test_each_reward_has_its_own_discount():
    t = trace(8, 2, 3)
    together = ops.advantages(**t, gae_lambda=0.8)
    for r in range(3):
        alone = {name: x[..., r : r + 1] if x.dtype == torch.float32 else x for name, x in t.items()}
        torch.testing.assert_close(together[..., r : r + 1], ops.advantages(**alone, gae_lambda=0.8))


def test_nothing_that_was_given_is_written_to():
    t = trace(4, 2, 1)
    before = {name: x.clone() for name, x in t.items()}
    ops.advantages(**t, gae_lambda=0.9)
    returns(t)
    assert all(torch.equal(before[name], x) for name, x in t.items())
