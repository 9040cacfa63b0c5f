"""DQN with a network that remembers: whole columns, their stored states, burn-in."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lamarckian.data.fragment import layout
from lamarckian.errors import RecipeError
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.nets import QNetwork, build
from lamarckian.nets.memory import MemorySettings
from lamarckian.rl import DQN

T, B, GAMMA, N = 7, 5, 0.9, 2
ROLE = Role({"x": Vector(3)}, {"move": Discrete(3, masked=True)})
SETTINGS = {
    "learning_starts": 1, "replay_size": "8MB", "minibatch": B * T, "replay_ratio": 1.0, "gamma": GAMMA, "n_step": N, "loss": "squared",
    "max_gradient_norm": None, "prioritised": False, "target_every": 1000,
}  # fmt: skip


def learner(**settings) -> DQN:
    policy = build(QNetwork, ROLE, 0, hidden=(8,), memory=MemorySettings(size=4), head_gain=1.0)
    return DQN(policy, ROLE, DQN.Settings(**SETTINGS | settings), dtype="float32")


def fragment(dqn: DQN, seed: int = 0) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    batch = {name: torch.from_numpy(x) for name, x in layout(ROLE, T, B, dqn.policy.state).empty().items()}
    for name, x in batch.items():
        if x.dtype == torch.float32:
            x.normal_()
        if name in ("terminated", "truncated"):
            x.copy_(torch.rand(T, B) < 0.15)
    batch["learn"].copy_(torch.rand(T, B) < 0.9)
    batch["version"].zero_()
    batch["legal.move"].copy_(torch.rand(T + 1, B, 3) < 0.6)
    batch["legal.move"][..., 0] = True
    batch["action.move"].copy_(torch.randint(3, (T, B)))
    return batch


def one_by_one(network: QNetwork, batch: dict[str, Tensor], b: int, begin: int, stored: bool) -> list[Tensor]:
    """Q of every action in each row of a column, step by step; gradients begin behind the burn-in."""
    state = {name: batch[f"state.{name}"][b : b + 1] * stored for name in network.state}
    found = []
    for t in range(T + 1):
        if t == begin:
            state = {name: x.detach() for name, x in state.items()}
        if t and (batch["terminated"] | batch["truncated"])[t - 1, b]:
            state = {name: torch.zeros_like(x) for name, x in state.items()}
        outputs = network({"x": batch["inputs.x"][t, b : b + 1]}, state)
        state = outputs.state
        found.append(outputs.heads["move"].q[0])
    return found


def loss_by_hand(online: QNetwork, target: QNetwork, batch: dict[str, Tensor], begin: int = 0, stored: bool = True) -> tuple[Tensor, int]:
    """Σ ½ (target − Q)² over the steps that may be learned from, and how many those are."""
    loss, count = torch.zeros(()), 0
    for b in range(B):
        chosen = one_by_one(online, batch, b, begin, stored)
        with torch.no_grad():
            judged = one_by_one(target, batch, b, begin, stored)
        terminated, lost = batch["terminated"][:, b], batch["truncated"][:, b] & ~batch["terminated"][:, b]
        for t in range(begin, T):
            if not batch["learn"][t, b] or lost[t]:
                continue
            total, factor, row = torch.zeros(()), 1.0, t
            while True:
                total = total + factor * batch["reward"][row, b, 0]
                factor, row = factor * GAMMA, row + 1
                if terminated[row - 1]:
                    factor = 0.0
                    break
                if row == T or lost[row] or (row - t >= N and batch["learn"][row, b]):
                    break
            best = torch.where(batch["legal.move"][row, b], chosen[row].detach(), -torch.inf).argmax()
            goal = total + factor * judged[row][best]
            loss = loss + 0.5 * (goal - chosen[t][batch["action.move"][t, b]]).square()
            count += 1
    return loss, count


@pytest.mark.parametrize(("begin", "stored"), [(0, True), (0, False), (3, True), (3, False)])
def test_the_gradient_is_that_of_single_steps(begin, stored):
    dqn, twin = learner(burn_in=begin, stored_state=stored), learner().policy
    batch = fragment(dqn)
    with torch.no_grad():
        for parameter in dqn._target.parameters():
            parameter += 0.1
        target = learner().policy
        for parameter in target.parameters():
            parameter += 0.1
    # Columns are drawn from equal parts of the sum, so that each comes once, in the order of their places.
    dqn.update(batch, 0, 0.0)
    loss, count = loss_by_hand(twin, target, batch, begin, stored)
    (loss / count).backward()
    expected = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(dqn.parameters.gradient, expected, rtol=1e-4, atol=1e-6)


def test_portions_do_not_change_the_gradient():
    dqns = [learner(), learner()]
    object.__setattr__(dqns[1].precision, "rows", 2 * (T + 1))
    for dqn in dqns:
        dqn.update(fragment(dqn), 0, 0.0)
    torch.testing.assert_close(dqns[0].parameters.gradient, dqns[1].parameters.gradient)


def test_priorities_are_of_columns():
    dqn = learner(prioritised=True, priority_exponent=1.0, priority_epsilon=1e-9, learning_rate=1e-9)
    dqn.update(fragment(dqn), 0, 0.0)
    replay = dqn._replay
    assert replay is not None and replay.eligible == B and replay.eligible_samples == B * T
    before = replay._tree.priorities[:B].copy()
    assert len(set(before.tolist())) == B and (before > 0).all()
    entries, weights = replay.draw(np.full(B, 0.5), 1.0)
    np.testing.assert_allclose(weights, before[entries].min() / before[entries], rtol=1e-5)


def test_what_is_remembered_is_saved_and_goes_on():
    whole, half = learner(prioritised=True), learner(prioritised=True)
    for version in range(4):
        whole.update(fragment(whole, version), version, 0.0)
    for version in range(2):
        half.update(fragment(half, version), version, 0.0)
    resumed = learner(prioritised=True)
    resumed.load_state_dict(half.state_dict())
    resumed.load_replay({name: x.copy() for name, x in half.save_replay().items()})
    for version in range(2, 4):
        resumed.update(fragment(resumed, version), version, 0.0)
    assert all(torch.equal(x, resumed.state_dict()[name]) for name, x in whole.state_dict().items())


def test_a_burn_in_longer_than_a_fragment_is_refused():
    dqn = learner(burn_in=T)
    with pytest.raises(RecipeError, match=rf"algorithm\.burn_in: given {T}; a fragment has {T} steps"):
        dqn.update(fragment(dqn), 0, 0.0)
