"""PG: that its gradient is what the loss says, that it learns, waits for ends, repeats itself and goes on exactly."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Discrete, Role
from lamarckian.nets import Policy, build, evaluate, flatten, mode
from lamarckian.nets.memory import MemorySettings
from lamarckian.rl import PG, PPO
from tests.rl.test_ppo import AIM, BOTH, CHAIN, CHOOSE, SEE, B, T, follow_the_largest, hit_the_mark, play

FAST = {"learning_rate": 5e-3, "minibatches": 4, "entropy_weight": 0.002}
ONE_STEP = {"minibatches": 1, "max_gradient_norm": None}
MASKED = Role(SEE, {"move": Discrete(5, masked=True)})


def learner(role: Role, seed: int = 0, dtype: str = "float32", **settings) -> PG:
    return PG(build(Policy, role, seed, hidden=(32,)), role, PG.Settings(**settings), dtype=dtype, seed=seed)


def batch_of(pg: PG, seed: int = 0, **of) -> dict[str, Tensor]:
    batch = play(pg, torch.Generator().manual_seed(seed), **of)
    batch["lane"].copy_(torch.arange(B))
    batch["column"].fill_(seed)  # one batch follows the other
    return batch


def train(pg: PG, updates: int, reward) -> list[dict[str, float]]:
    return [pg.update(batch_of(pg, seed, reward=reward, version=seed), seed, seed / updates) for seed in range(updates)]


@pytest.mark.parametrize(("dtype", "settings"), [("float32", {}), ("bfloat16", {"replay": 2.0}), ("float32", {"baseline": False})])
def test_learns_a_contextual_choice(dtype, settings):
    pg = learner(CHOOSE, dtype=dtype, **FAST, **settings)
    train(pg, 80, follow_the_largest)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(CHOOSE, pg.policy.heads, pg.policy({"x": x}).heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9


def test_learns_continuous_actions():
    pg = learner(AIM, **FAST)
    train(pg, 120, hit_the_mark)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(AIM, pg.policy.heads, pg.policy({"x": x}).heads, {})
    assert (best["aim"] - x[:, :2]).abs().mean() < 0.25


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("role", [MASKED, CHAIN], ids=["masked", "chain"])
def test_the_gradient_is_that_of_the_loss(role, baseline):
    """By hand: −min(π/μ, 1) A log π − w H / (η + ln(n − 1)) summed over active heads, + ½ · ½ (R − V)²; means over all samples."""
    pg = learner(role, baseline=baseline, entropy_weight=0.3, eta=1.5, **ONE_STEP)
    batch = batch_of(pg)
    for name in role.heads:
        batch[f"log_prob.{name}"] += 0.5 * torch.randn(T, B, generator=torch.Generator().manual_seed(5))
    twin = build(Policy, role, 0, hidden=(32,))
    flat = {name: x[:T].flatten(0, 1) for name, x in batch.items() if x.ndim > 1}
    outputs = twin({"x": flat["inputs.x"]})
    actions = {name: flat[f"action.{name}"] for name in role.heads}
    legal = {name: flat[f"legal.{name}"] for name in role.masks()}
    value, reward = outputs.value.squeeze(-1), flat["reward"].squeeze(-1)
    advantage = reward - value.detach() if baseline else reward
    loss = 0.5 * 0.5 * (reward - value).square().sum() * baseline
    for name, (log_prob, entropy, active) in evaluate(role, twin.heads, outputs.heads, actions, legal).items():
        for i in range(T * B):
            if active is not None and not active[i]:
                continue
            mask = legal[name][i] if name in legal else torch.ones(role.heads[name].n)
            n = int((mask if mask.ndim == 1 else mask[actions["button"][i]]).sum())
            weight = (log_prob[i] - flat[f"log_prob.{name}"][i]).exp().clamp(max=1).detach()
            loss = loss - weight * advantage[i] * log_prob[i]
            if n > 1:
                loss = loss - 0.3 * entropy[i] / (1.5 + torch.log(torch.tensor(n - 1.0)))
    (loss / (T * B)).backward()
    pg.update(batch, 0, 0.0)
    expected = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(pg.parameters.gradient, expected, rtol=1e-4, atol=1e-6)


def test_nothing_is_learned_before_an_episode_is_over():
    pg = learner(CHOOSE, gamma=0.5, **ONE_STEP)
    first, second = batch_of(pg, 0), batch_of(pg, 1)
    for batch in (first, second):
        batch["terminated"].zero_()
        batch["reward"].fill_(1.0)
    second["terminated"][-1] = True
    before = flatten(pg.policy)
    metrics = pg.update(first, 0, 0.0)
    assert metrics["samples"] == 0 and metrics["buffer.waiting"] == T * B
    assert (flatten(pg.policy) == before).all()
    metrics = pg.update(second, 1, 0.0)
    assert (metrics["buffer.waiting"], metrics["buffer.steps"], metrics["buffer.unseen"]) == (0, 2 * T * B, T * B)
    metrics = pg.update(first, 2, 0.0)
    assert metrics["samples.unseen"] == 1.0 and metrics["staleness.max"] == 2
    assert pg.update(first, 3, 0.0)["samples.unseen"] == 0.0


def test_metrics_by_hand():
    pg = learner(CHOOSE, **ONE_STEP)
    batch = batch_of(pg)
    batch["log_prob.move"][: T // 2] -= torch.tensor(2.0).log()  # half of the ratios are 2, half are ½
    batch["log_prob.move"][T // 2 :] += torch.tensor(2.0).log()
    batch["reward"].fill_(3.0)
    metrics = pg.update(batch, 0, 0.0)
    assert metrics["weight.mean"] == pytest.approx(0.75, abs=1e-3) and metrics["ratio_max"] == pytest.approx(2.0, abs=1e-3)
    assert (metrics["return.mean"], metrics["samples"], metrics["samples.unseen"]) == (3.0, T * B, 1.0)


def test_resume_is_exact():
    whole, first, second = (learner(CHAIN, seed=seed, replay=1.5, **FAST) for seed in (0, 0, 9))
    second._buffer._seed = 0  # a run is resumed with its own seed
    batches = [batch_of(whole, seed) for seed in range(6)]
    for batch in batches:
        batch["terminated"] &= torch.rand(T, B, generator=torch.Generator().manual_seed(len(batch))) < 0.2
    for version, batch in enumerate(batches):
        whole.update(batch, version, version / 6)
    for version, batch in enumerate(batches[:3]):
        first.update(batch, version, version / 6)
    state = first.state_dict()
    assert state["buffer.open.length"].sum() > 0
    first.update(batches[0], 3, 0.5)  # the state is a copy: what comes later does not reach it
    second.load_state_dict(state)
    for version, batch in enumerate(batches[3:], 3):
        second.update(batch, version, version / 6)
    assert torch.equal(whole.parameters.parameter, second.parameters.parameter)


def test_a_foreign_state_is_refused():
    with pytest.raises(CheckpointError, match="PG"):
        learner(CHOOSE).load_state_dict({})
    with pytest.raises(CheckpointError, match="episode buffer"):
        learner(CHOOSE).load_state_dict(PPO(build(Policy, CHOOSE, 0, hidden=(32,)), CHOOSE, PPO.Settings()).state_dict())


def test_a_number_that_is_not_finite_is_named_and_changes_nothing():
    pg = learner(BOTH, minibatches=1)
    batch = batch_of(pg)
    before = flatten(pg.policy)
    batch["reward"][2, 3] = float("nan")
    with pytest.raises(NumericsError, match=r"PG, update of version 7: .*not finite in the batch: return"):
        pg.update(batch, 7, 0.0)
    assert (flatten(pg.policy) == before).all()


def test_reward_weights_choose_what_is_learned_also_of_what_waits():
    def rewards(x: Tensor, actions: dict[str, Tensor]) -> Tensor:
        return torch.stack([actions["move"] == 0, actions["move"] == 1], -1).float()

    pg = learner(BOTH, reward_weights={"score": 1.0, "style": 0.0}, gamma={"score": 0.9, "style": 0.5}, **FAST | {"entropy_weight": 0.1})
    train(pg, 20, rewards)
    assert int(pg.policy({"x": torch.zeros(1, 3)}).heads["move"].logits.argmax()) == 0
    pg.set_reward_weights({"score": 0.0})
    metrics = train(pg, 60, rewards)[-1]
    assert int(pg.policy({"x": torch.zeros(1, 3)}).heads["move"].logits.argmax()) == 1
    assert metrics["loss.value"] == pytest.approx(metrics["loss.value.score"] + metrics["loss.value.style"])


def test_stale_steps_are_counted_and_left_out():
    pg = learner(CHOOSE, max_staleness=2)
    before = flatten(pg.policy)
    metrics = pg.update(batch_of(pg), 9, 0.0)
    assert (metrics["samples"], metrics["samples.stale"]) == (0, T * B)
    assert (flatten(pg.policy) == before).all()


@pytest.mark.parametrize(
    "settings",
    [{"baseline": False}, {"eta": 9.0}, {"entropy_weight": 0.0}, {"replay": 0.5}, {"max_uses": 1}, {"buffer_steps": 8}, {"open_bytes": 1}],
)
def test_every_option_makes_a_difference(settings):
    plain, other = (learner(MASKED, **ONE_STEP, **{"replay": 2.0} | more) for more in ({}, settings))
    batches = [batch_of(plain, seed) for seed in range(2)]
    for batch in batches:
        batch["terminated"][:, : B // 2] = False
        batch["terminated"][0, : B // 2] = True
    for version, batch in enumerate(batches):
        for pg in (plain, other):
            pg.update(batch, version, 0.5)
    assert not torch.equal(plain.parameters.parameter, other.parameters.parameter)


@pytest.mark.parametrize("settings", [{"eta": 0}, {"replay": 0}, {"max_uses": 0}, {"clip": 0.2}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        PG.Settings(**settings)


def test_a_recurrent_network_is_refused():
    policy = build(Policy, CHOOSE, 0, hidden=(8,), memory=MemorySettings(size=4))
    with pytest.raises(RecipeError, match="recurrent"):
        PG(policy, CHOOSE, PG.Settings())
