"""V-trace against numbers worked out by hand, and against what must hold for any numbers."""

import pytest
import torch
from torch import Tensor

from lamarckian import ops
from tests.ops.test_returns import column, flags, returns, trace

ON_POLICY = {"rho_clip": 1.0, "c_clip": 1.0, "advantage_rho_clip": 1.0, "trace_lambda": 1.0}


def ratios(t: dict[str, Tensor]) -> Tensor:
    return torch.exp(torch.randn(t["terminated_t"].shape, generator=torch.Generator().manual_seed(1)))


def by_hand() -> dict[str, Tensor]:
    return trace(3, 1, 1) | {"reward_t": column(1, 2, 3), "value_tT": column(1, 2, 4, 8), "gamma": torch.tensor([0.5])}


def test_vtrace_by_hand():
    # γ = ½, errors r + γV' − V = (1, 2, 3), ratios (4, ½, 2). ρ̄ = 2: δ = (2, 1, 6). c̄ = 1: traces γc = (½, ¼, …).
    # v − V: 6; 1 + ¼ · 6 = 2.5; 2 + ½ · 2.5 = 3.25. So v = (4.25, 4.5, 10).
    # A with ρ̄' = 3: 3 · (1 + ½ · 4.5 − 1), ½ · (2 + ½ · 10 − 2), 2 · (3 + ½ · 8 − 4).
    found = ops.vtrace(torch.tensor([[4.0], [0.5], [2.0]]), **by_hand(), rho_clip=2.0, c_clip=1.0, advantage_rho_clip=3.0, trace_lambda=1.0)
    assert found.target_t.flatten().tolist() == [4.25, 4.5, 10.0]
    assert found.advantage_t.flatten().tolist() == [6.75, 2.5, 6.0]


def test_a_shorter_trace_by_hand():
    # As above with λ = ½: v − V = (2 + ¼ · 1.75, 1 + ⅛ · 6, 6).
    found = ops.vtrace(torch.tensor([[4.0], [0.5], [2.0]]), **by_hand(), rho_clip=2.0, c_clip=1.0, advantage_rho_clip=3.0, trace_lambda=0.5)
    assert found.target_t.flatten().tolist() == [3.4375, 3.75, 10.0]


def test_termination_by_hand():
    # The middle step ends a match: its error is 2 + 0 − 2 = 0, and the first step is worth 1 + ½ · 2.
    found = ops.vtrace(torch.ones(3, 1), **by_hand() | {"terminated_t": flags(0, 1, 0)}, **ON_POLICY)
    assert found.target_t.flatten().tolist() == [2.0, 2.0, 7.0]
    assert found.advantage_t.flatten().tolist() == [1.0, 0.0, 3.0]


def test_truncation_by_hand():
    # As above, but the cut match is worth 6 from there on: 2 + ½ · 6 = 5, and the first step is worth 1 + ½ · 5.
    cut = by_hand() | {"truncated_t": flags(0, 1, 0), "bootstrap_t": column(100, 6, 100)}
    found = ops.vtrace(torch.ones(3, 1), **cut, **ON_POLICY)
    assert found.target_t.flatten().tolist() == [3.5, 5.0, 7.0]
    assert found.advantage_t.flatten().tolist() == [2.5, 3.0, 3.0]


def test_a_match_both_terminated_and_truncated_is_terminated():
    t = trace(4, 3, 2)
    t["terminated_t"][1] = True
    alone = ops.vtrace(ratios(t), **t, **ON_POLICY)
    t["truncated_t"][1] = True
    both = ops.vtrace(ratios(t), **t, **ON_POLICY)
    assert torch.equal(alone.target_t, both.target_t) and torch.equal(alone.advantage_t, both.advantage_t)


@pytest.mark.parametrize("rewards", [1, 3])
def test_on_policy_it_gives_the_discounted_returns(rewards):
    t = trace(20, 5, rewards)
    t["terminated_t"][7, :3] = True
    t["truncated_t"][11, 2:] = True
    t["truncated_t"][-1, 0] = True
    t["terminated_t"][-1, 1] = True
    found = ops.vtrace(torch.ones(20, 5), **t, **ON_POLICY)
    torch.testing.assert_close(found.target_t, returns(t), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.advantage_t, returns(t) - t["value_tT"][:-1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.advantage_t, ops.advantages(**t, gae_lambda=1.0), rtol=1e-4, atol=1e-5)


def test_on_policy_the_targets_are_lambda_returns():
    t = trace(12, 4, 2)
    t["terminated_t"][5, 1] = True
    t["truncated_t"][8, 2] = True
    found = ops.vtrace(torch.ones(12, 4), **t, **ON_POLICY | {"trace_lambda": 0.7})
    torch.testing.assert_close(found.target_t - t["value_tT"][:-1], ops.advantages(**t, gae_lambda=0.7), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clips", [(1.0, 1.0, 1.0), (2.0, 0.5, 1.5), (0.8, 1.2, 10.0)])
def test_it_is_the_sum_of_the_paper(clips):
    """Eq. 1, term by term: v_s = V_s + Σ_t γ^{t−s} (Π_{s≤i<t} c_i) δ_t, over the steps of the episode."""
    rho_clip, c_clip, advantage_rho_clip = clips
    t = trace(9, 1, 1)
    t["terminated_t"][4] = True
    rho, r, v, gamma = ratios(t).flatten(), t["reward_t"].flatten(), t["value_tT"].flatten(), t["gamma"].item()
    found = ops.vtrace(rho[:, None], **t, rho_clip=rho_clip, c_clip=c_clip, advantage_rho_clip=advantage_rho_clip, trace_lambda=1.0)
    following = [0.0 if s == 4 else v[s + 1].item() for s in range(9)]
    targets = []
    for s in range(9):
        total, product = v[s].item(), 1.0
        for i in range(s, 5 if s < 5 else 9):
            total += product * min(rho_clip, rho[i].item()) * (r[i].item() + gamma * following[i] - v[i].item())
            product *= gamma * min(c_clip, rho[i].item())
        targets.append(total)
    after = [0.0 if s == 4 else (targets[s + 1] if s < 8 else v[9].item()) for s in range(9)]
    advantages = [min(advantage_rho_clip, rho[s].item()) * (r[s].item() + gamma * after[s] - v[s].item()) for s in range(9)]
    torch.testing.assert_close(found.target_t.flatten(), torch.tensor(targets), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.advantage_t.flatten(), torch.tensor(advantages), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("end", ["terminated_t", "truncated_t"])
def test_two_matches_in_one_trace_equal_each_alone(end):
    t = trace(10, 3, 2)
    t[end][5] = True
    rho = ratios(t)
    both = ops.vtrace(rho, **t, **ON_POLICY)
    time_major = ("reward_t", "bootstrap_t", "terminated_t", "truncated_t")
    for rows, values in ((slice(0, 6), slice(0, 7)), (slice(6, 10), slice(6, 11))):
        alone = {name: x[rows] if name in time_major else x for name, x in t.items()} | {"value_tT": t["value_tT"][values]}
        found = ops.vtrace(rho[rows], **alone, **ON_POLICY)
        assert torch.equal(both.target_t[rows], found.target_t)
        assert torch.equal(both.advantage_t[rows], found.advantage_t)


def test_what_the_new_policy_never_does_teaches_nothing():
    t = trace(6, 2, 1)
    found = ops.vtrace(torch.zeros(6, 2), **t, **ON_POLICY)
    assert torch.equal(found.target_t, t["value_tT"][:-1])
    assert (found.advantage_t == 0).all()


def test_nothing_that_was_given_is_written_to_and_no_gradient_flows():
    t = trace(4, 2, 1)
    rho = ratios(t).requires_grad_()
    before = {name: x.clone() for name, x in t.items()}
    found = ops.vtrace(rho, **t, **ON_POLICY)
    assert all(torch.equal(before[name], x) for name, x in t.items())
    assert not found.target_t.requires_grad and not found.advantage_t.requires_grad
