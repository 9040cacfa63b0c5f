"""A3C: that its gradient is the paper's, that it learns by gradients that come late, and what it does when something is wrong."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian import ops
from lamarckian.errors import CheckpointError, NumericsError
from lamarckian.mdp import Discrete, Role
from lamarckian.nets import Policy, build, evaluate, flatten, mode
from lamarckian.rl import A3C
from lamarckian.rl.algorithm import from_gradients, publication
from tests.rl.test_ppo import AIM, BOTH, CHAIN, CHOOSE, SEE, B, T, follow_the_largest, hit_the_mark, learner, play

FAST = {"learning_rate": 5e-3, "entropy_weight": 0.001}
TWO = Role(SEE, {"a": Discrete(3), "b": Discrete(2)})


def a3c(role: Role, seed: int = 0, dtype: str = "float32", **settings) -> A3C:
    return A3C(build(Policy, role, seed, hidden=(32,)), role, A3C.Settings(**settings), dtype=dtype, seed=seed)


def long_matches(actor: A3C, seed: int = 0) -> dict[str, Tensor]:
    """A fragment with ends here and there."""
    generator = torch.Generator().manual_seed(seed)
    batch = play(actor, generator)
    for name in ("terminated", "truncated"):
        batch[name].copy_(torch.rand(T, B, generator=generator) < 0.1)
    batch["bootstrap"].normal_(generator=generator)
    return batch


def sent(actor: A3C, batch: dict[str, Tensor], version: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """What an actor of `version` sends, and its metrics."""
    metrics = actor.gradient(batch, version)
    gradient = actor.parameters.gradient.clone()[None]
    return {"gradient": gradient, "version": torch.tensor([version]), "samples": torch.tensor([int(metrics["samples"])])}, metrics


def train(central: A3C, actors: list[A3C], updates: int, reward) -> list[dict[str, float]]:
    """Updates by each actor's gradient in turn, which is as old as there are others."""
    generator = torch.Generator().manual_seed(0)
    waiting: list[dict[str, Tensor]] = []
    lines = []
    for version in range(updates):
        actor = actors[version % len(actors)]
        actor.adopt(central.publication())
        waiting.append(sent(actor, play(actor, generator, reward, version), version)[0])
        if len(waiting) == len(actors):
            lines.append(central.update(waiting.pop(0), version, version / updates))
    return lines


@pytest.mark.parametrize(("dtype", "others", "optimizer"), [("float32", 0, "rmsprop"), ("bfloat16", 4, "adam")])
def test_learns_a_contextual_choice(dtype, others, optimizer):
    settings = FAST | {"optimizer": optimizer}
    central = a3c(CHOOSE, dtype=dtype, **settings)
    lines = train(central, [a3c(CHOOSE, seed, dtype, **settings) for seed in range(1, 2 + others)], 250, follow_the_largest)
    assert lines[-1]["staleness.mean"] == lines[-1]["staleness.max"] == others
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(CHOOSE, central.policy.heads, central.policy({"x": x}).heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9


def test_learns_continuous_actions():
    central = a3c(AIM, **FAST)
    train(central, [a3c(AIM, 1, **FAST)], 400, hit_the_mark)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(AIM, central.policy.heads, central.policy({"x": x}).heads, {})
    assert (best["aim"] - x[:, :2]).abs().mean() < 0.25


def test_the_gradient_is_that_of_the_paper():
    """By hand: −Σ (G − V) log π − w Σ H + ½ · ½ Σ (G − V)², over all samples; G the return of up to T steps."""
    actor = a3c(TWO, entropy_weight=0.03, gamma=0.9)
    batch = long_matches(actor)
    twin = build(Policy, TWO, 0, hidden=(32,))
    outputs = twin({"x": batch["inputs.x"].flatten(0, 1)})
    value_tT = outputs.value.unflatten(0, (T + 1, B))
    ends = [batch[name] for name in ("bootstrap", "terminated", "truncated")]
    returns = ops.discounted_returns(batch["reward"], value_tT[-1].detach(), *ends, torch.tensor([0.9]))
    error = returns - value_tT[:-1]
    found = evaluate(
        TWO,
        twin.heads,
        {name: type(p)(p.logits[: T * B]) for name, p in outputs.heads.items()},
        {name: batch[f"action.{name}"].flatten() for name in TWO.heads},
        {},
    )
    loss = 0.25 * error.square().sum()
    for name in TWO.heads:
        loss = loss - (error.detach().flatten() * found[name].log_prob).sum() - 0.03 * found[name].entropy.sum()
    (loss / (T * B)).backward()
    actor.gradient(batch, 0)
    expected = torch.cat([p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(actor.parameters.gradient, expected, rtol=1e-4, atol=1e-6)


def test_a_step_of_rmsprop_by_hand():
    """g ← α g + (1 − α) Δ², θ ← θ − η Δ / (√g + ε), with the gradient clipped to norm 1."""
    central = a3c(CHOOSE, learning_rate=0.1, rmsprop_decay=0.9, rmsprop_epsilon=0.01, max_gradient_norm=1.0)
    size = len(central.parameters.gradient)
    theta, square = central.parameters.parameter.detach().clone(), torch.zeros(size)
    for version, scale in enumerate((0.1, 50.0)):
        gradient = scale * torch.linspace(-1, 1, size)
        central.update({"gradient": gradient[None], "version": torch.tensor([0]), "samples": torch.tensor([9])}, version, 0.0)
        delta = gradient * min(1.0, 1.0 / gradient.norm().item())
        square = 0.9 * square + 0.1 * delta.square()
        theta = theta - 0.1 * delta / (square.sqrt() + 0.01)
    torch.testing.assert_close(central.parameters.parameter.detach(), theta)


def test_the_first_update_is_that_of_the_gradient_and_metrics_say_how_late_it_is():
    central, actor = a3c(CHOOSE, optimizer="adam"), a3c(CHOOSE, 1)
    actor.adopt(central.publication())
    assert (flatten(actor.policy) == flatten(central.policy)).all()
    batch, metrics = sent(actor, play(actor, torch.Generator().manual_seed(0)), 3)
    assert metrics["samples"] == T * B and metrics["samples.stale"] == 0
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6) and metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["gradient_norm"] == pytest.approx(batch["gradient"].norm().item(), rel=1e-5)
    line = central.update(batch, 8, 0.0)
    assert (line["staleness.mean"], line["staleness.max"]) == (5.0, 5.0)
    assert not (flatten(actor.policy) == flatten(central.policy)).all()  # what an actor adopts is a copy


def test_schedules_and_weights_of_rewards_reach_the_actors():
    schedules = {"learning_rate_schedule": "linear", "entropy_weight": 0.5, "final_entropy_weight": 0.1}
    central, actor = a3c(BOTH, **schedules), a3c(BOTH, 1, **schedules)
    size = len(central.parameters.gradient)
    np.testing.assert_allclose(publication(central)[size:], [0.5, 1.0, 1.0])
    batch = {"gradient": torch.ones(1, size), "version": torch.tensor([0]), "samples": torch.tensor([1])}
    assert central.update(batch, 0, 0.25)["learning_rate"] == pytest.approx(3e-4 * 0.75)
    central.set_reward_weights({"style": 0.0})
    np.testing.assert_allclose(publication(central)[size:], [0.4, 1.0, 0.0])
    actor.adopt(central.publication())
    fragment = play(actor, torch.Generator().manual_seed(0))
    actor.gradient(fragment, 0)
    told = actor.parameters.gradient.clone()
    twin = a3c(BOTH, entropy_weight=0.4, reward_weights={"style": 0.0})
    with torch.no_grad():
        twin.parameters.parameter.copy_(central.parameters.parameter)
    twin.gradient(fragment, 0)
    torch.testing.assert_close(told, twin.parameters.gradient)


def test_only_algorithms_of_gradients_say_so():
    ppo = learner(CHOOSE)
    assert from_gradients(A3C) and not from_gradients(ppo)
    assert (publication(ppo) == ppo.parameters.array()).all()


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_resume_is_exact(optimizer):
    settings = FAST | {"optimizer": optimizer, "final_entropy_weight": 0.0}
    whole, first, second, actor = (a3c(CHAIN, seed, **settings) for seed in (0, 0, 9, 1))

    def go(central: A3C, versions: range) -> None:
        for version in versions:
            actor.adopt(central.publication())
            batch = play(actor, torch.Generator().manual_seed(version), version=version)
            central.update(sent(actor, batch, version)[0], version, version / 6)

    go(whole, range(6))
    go(first, range(3))
    state = first.state_dict()
    go(first, range(3, 4))  # the state is a copy: what comes later does not reach it
    second.load_state_dict(state)
    go(second, range(3, 6))
    assert (whole.publication() == second.publication()).all()
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in whole.state_dict().items())


def test_the_state_of_another_optimiser_is_refused():
    with pytest.raises(CheckpointError, match="A3C"):
        a3c(CHOOSE).load_state_dict(a3c(CHOOSE, optimizer="adam").state_dict())


def test_a_gradient_that_is_not_finite_is_named_and_changes_nothing():
    actor = a3c(BOTH)
    batch = long_matches(actor)
    batch["reward"][2, 3] = float("nan")
    with pytest.raises(NumericsError, match=r"A3C, gradient at version 7: .*loss.policy.move is nan.*not finite in the batch: reward"):
        actor.gradient(batch, 7)
    before = flatten(actor.policy)
    gradient = torch.full((1, len(before)), float("inf"))
    with pytest.raises(NumericsError, match="A3C, update of version 8: the norm of a gradient that came is inf"):
        actor.update({"gradient": gradient, "version": torch.tensor([7]), "samples": torch.tensor([1])}, 8, 0.0)
    assert (flatten(actor.policy) == before).all()


def test_what_is_not_to_be_learned_from_changes_nothing():
    actor, central = a3c(CHOOSE), a3c(CHOOSE)
    batch = long_matches(actor)
    batch["learn"][:, B // 2 :] = False
    half, metrics = sent(actor, {name: x[:, : B // 2] if x.ndim > 1 else x[: B // 2] for name, x in batch.items()}, 0)
    padded, padded_metrics = sent(actor, batch, 0)
    torch.testing.assert_close(half["gradient"], padded["gradient"])
    assert metrics == pytest.approx(padded_metrics, abs=1e-4)

    batch["learn"].fill_(False)
    nothing, metrics = sent(actor, batch, 0)
    assert metrics == {"samples": 0.0, "samples.stale": 0.0}
    central.update(half, 0, 0.0)  # from here on the optimiser has a momentum
    before = flatten(central.policy)
    central.update(nothing, 1, 0.0)
    assert (flatten(central.policy) == before).all()


def test_samples_that_an_older_version_acted_are_left_out():
    actor = a3c(CHOOSE, max_staleness=2)
    batch = play(actor, torch.Generator().manual_seed(0), version=10)
    batch["version"][0] = 4
    metrics = actor.gradient(batch, 10)
    assert (metrics["samples"], metrics["samples.stale"]) == ((T - 1) * B, B)


@pytest.mark.parametrize("role", [BOTH, CHAIN])
def test_portions_do_not_change_the_gradient(role):
    whole, portioned = a3c(role), a3c(role)
    object.__setattr__(portioned.precision, "rows", 3 * (T + 1))
    batch = long_matches(whole)
    before = {name: x.clone() for name, x in batch.items()}
    metrics = [actor.gradient(batch, 0) for actor in (whole, portioned)]
    torch.testing.assert_close(whole.parameters.gradient, portioned.parameters.gradient)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4, abs=1e-5)
    assert all(torch.equal(x, batch[name]) for name, x in before.items())


@pytest.mark.parametrize("settings", [{"gae_lambda": 0.5}, {"value_loss": "huber"}, {"value_weight": 1.0}, {"gamma": 0.5}])
def test_every_option_makes_a_difference(settings):
    plain, other = a3c(TWO), a3c(TWO, **settings)
    batch = long_matches(plain)
    batch["reward"] *= 3
    for actor in (plain, other):
        actor.gradient(batch, 0)
    assert not torch.equal(plain.parameters.gradient, other.parameters.gradient)


@pytest.mark.parametrize("settings", [{"minibatches": 2}, {"gae_lambda": 1.5}, {"rho_clip": 1.0}, {"optimizer": "sgd"}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        A3C.Settings(**settings)
