"""Algorithms with a recurrent policy: what they learn from is what was remembered, from match to match and fragment to fragment."""

import pytest
import torch
from torch import Tensor

from lamarckian import ops
from lamarckian.data.fragment import layout
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.nets import Policy, build, evaluate
from lamarckian.nets.heads import Categorical
from lamarckian.nets.memory import MemorySettings
from lamarckian.rl import IMPALA, PPO

T, B, SIZE = 9, 6, 5
ROLE = Role({"x": Vector(3)}, {"move": Discrete(3), "aim": Discrete(2, masked=True)}, ("score", "style"))
ONE_STEP = {"minibatches": 1, "max_gradient_norm": None, "entropy_weight": 0.03, "gamma": 0.9}
PLAIN_PPO = {"epochs": 1, "normalise_advantage": False}
BOTH = pytest.mark.parametrize(("algorithm", "settings"), [(PPO, PLAIN_PPO), (IMPALA, {})], ids=["ppo", "impala"])


def network(kind: str = "lstm", critic: str = "shared") -> Policy:
    return build(Policy, ROLE, 0, hidden=(8,), memory=MemorySettings(kind=kind, size=SIZE), critic=critic, policy_gain=1.0)


def fragment(policy: Policy, seed: int = 0) -> dict[str, Tensor]:
    """A fragment of matches that end here and there, with log-probabilities and values near the policy's."""
    torch.manual_seed(seed)
    batch = {name: torch.from_numpy(x) for name, x in layout(ROLE, T, B, policy.state).empty().items()}
    for x in batch.values():
        if x.dtype == torch.float32:
            x.normal_()
    for name in ("terminated", "truncated"):
        batch[name].copy_(torch.rand(T, B) < 0.12)
    batch["learn"].fill_(True)
    batch["version"].zero_()
    batch["legal.aim"].fill_(True)
    batch["legal.aim"][:, ::2, 1] = False
    batch["action.move"].copy_(torch.randint(3, (T, B)))
    batch["action.aim"].copy_(torch.randint(2, (T, B)) * batch["legal.aim"][:T, :, 1])
    for b in range(B):
        heads, values = one_by_one(policy, batch, b)
        found = evaluate(ROLE, policy.heads, heads, *acted(batch, b))
        for name, evaluation in found.items():
            batch[f"log_prob.{name}"][:, b] = evaluation.log_prob.detach() + 0.2 * torch.randn(T)
        batch["value"][:, b] = values.detach()
    return batch


def acted(batch: dict[str, Tensor], b: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return {name: batch[f"action.{name}"][:, b] for name in ROLE.heads}, {"aim": batch["legal.aim"][:T, b]}


def one_by_one(policy: Policy, batch: dict[str, Tensor], b: int) -> tuple[dict[str, Categorical], Tensor]:
    """Logits `[T, A]` and values `[T+1, R]` of a column, step by step."""
    state = {name: batch[f"state.{name}"][b : b + 1] for name in policy.state}
    steps = []
    for t in range(T + 1):
        if t and (batch["terminated"] | batch["truncated"])[t - 1, b]:
            state = {name: torch.zeros_like(x) for name, x in state.items()}
        steps.append(policy({"x": batch["inputs.x"][t, b : b + 1]}, state))
        state = steps[-1].state
    heads = {name: Categorical(torch.cat([step.heads[name].logits for step in steps[:T]])) for name in ROLE.heads}
    return heads, torch.cat([step.value for step in steps])


def loss_by_hand(algorithm: type, policy: Policy, batch: dict[str, Tensor], b: int) -> Tensor:
    """What a column adds to the loss, its samples summed up."""
    heads, values = one_by_one(policy, batch, b)
    found = evaluate(ROLE, policy.heads, heads, *acted(batch, b))
    ends = [batch[name][:, b : b + 1] for name in ("bootstrap", "terminated", "truncated")]
    gamma, loss, learn = torch.tensor([0.9, 0.9]), torch.zeros(()), batch["learn"][:, b]
    ratios = {name: (x.log_prob - batch[f"log_prob.{name}"][:, b]).exp() for name, x in found.items()}
    if algorithm is PPO:
        advantage = ops.advantages(batch["reward"][:, b : b + 1], batch["value"][:, b : b + 1], *ends, gamma, 0.95)[:, 0]
        target = advantage + batch["value"][:T, b]
        for ratio in ratios.values():
            gain = torch.minimum(ratio * advantage.sum(-1), ratio.clamp(0.8, 1.2) * advantage.sum(-1))
            loss = loss - (gain * learn).sum()
    else:
        ratio = torch.where(learn, ratios["move"] * ratios["aim"], 1.0).detach()  # 1 where a script decided
        clips = dict.fromkeys(("rho_clip", "c_clip", "advantage_rho_clip"), 1.0)
        rewards = batch["reward"][:, b : b + 1]
        trace = ops.vtrace(ratio[:, None], rewards, values[:, None].detach(), *ends, gamma, trace_lambda=1.0, **clips)
        target = trace.target_t[:, 0]
        for x in found.values():
            loss = loss - (trace.advantage_t[:, 0].sum(-1) * x.log_prob * learn).sum()
    for x in found.values():
        loss = loss - 0.03 * (x.entropy * learn).sum()
    return loss + 0.5 * 0.5 * ((target - values[:T]).square().sum(-1) * learn).sum()


@BOTH
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_the_gradient_is_that_of_single_steps(algorithm, settings, kind, critic):
    policy, twin = network(kind, critic), network(kind, critic)
    batch = fragment(policy)
    batch["learn"].copy_(torch.rand(T, B) < 0.8)
    batch["learn"][:, 2] = False
    learner = algorithm(policy, ROLE, algorithm.Settings(**settings, **ONE_STEP), dtype="float32")
    metrics = learner.update(batch, 0, 0.0)
    assert metrics["samples"] == batch["learn"].sum()
    (sum(loss_by_hand(algorithm, twin, batch, b) for b in range(B)) / batch["learn"].sum()).backward()
    expected = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(learner.parameters.gradient, expected, rtol=1e-4, atol=1e-6)


@BOTH
def test_portions_do_not_change_the_gradient(algorithm, settings):
    learners = [algorithm(network(), ROLE, algorithm.Settings(**settings, **ONE_STEP), dtype="float32") for _ in range(2)]
    object.__setattr__(learners[1].precision, "rows", 2 * (T + 1))
    for learner in learners:
        learner.update(fragment(learner.policy), 0, 0.0)
    torch.testing.assert_close(learners[0].parameters.gradient, learners[1].parameters.gradient)


@BOTH
def test_minibatches_are_whole_columns(algorithm, settings):
    """Six columns in three of them make three steps, though there are more samples than that."""
    settings = {**settings, **ONE_STEP, "minibatches": 3}
    learner = algorithm(network(), ROLE, algorithm.Settings(**settings), dtype="float32")
    learner.update(fragment(learner.policy), 0, 0.0)
    assert learner.state_dict()[next(name for name in learner.state_dict() if name.endswith(".step"))] == 3
