"""Imitation: its gradient, its optimisers, what it says of validation, and that it does what it was shown."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Role
from lamarckian.nets import Policy, build, evaluate, flatten, mode
from lamarckian.rl import Imitation
from tests.rl.test_ppo import AIM, BOTH, CHAIN, CHOOSE, B, T, play

ONE_STEP = {"minibatches": 1, "max_gradient_norm": None}


def learner(role: Role, seed: int = 0, **settings) -> Imitation:
    policy = build(Policy, role, seed, hidden=(32,))
    return Imitation(policy, role, Imitation.Settings(data="recordings", **settings), dtype="float32", seed=seed)


def recorded(imitation: Imitation, seed: int = 0) -> dict[str, Tensor]:
    """A batch of what the learner's own policy did, at random."""
    batch = play(imitation, torch.Generator().manual_seed(seed))
    kept = {name: x[:T] for name, x in batch.items() if name.startswith(("inputs.", "legal.", "action.")) or name == "learn"}
    return kept | {"return": batch["reward"]}


def shown(imitation: Imitation, seed: int = 0) -> dict[str, Tensor]:
    """The same, but what was done depends on what was seen."""
    batch = recorded(imitation, seed)
    x = batch["inputs.x"]
    for name, action in batch.items():
        if name == "action.move":
            action.copy_(x.argmax(-1))
        if name == "action.aim":
            action.copy_(x[..., :2] + 0.1 * torch.randn(T, B, 2, generator=torch.Generator().manual_seed(seed)))
    batch["return"].copy_(x.sum(-1, keepdim=True).expand_as(batch["return"]))
    return batch


@pytest.mark.parametrize("settings", [{"learning_rate": 1e-2}, {"learning_rate": 0.3, "optimizer": "sgd", "max_gradient_norm": None}])
def test_does_what_it_was_shown(settings):
    imitation = learner(CHOOSE, **settings)
    for version in range(100):
        metrics = imitation.update(shown(imitation, version), version, 0.0)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    outputs = imitation.policy({"x": x})
    best = mode(CHOOSE, imitation.policy.heads, outputs.heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9
    assert metrics["top1_error.move"] < 0.1 and metrics["loss.policy"] < 0.4
    assert (outputs.value.squeeze(-1) - x.sum(-1)).abs().mean() < 0.3


def test_continuous_actions_are_imitated():
    imitation = learner(AIM, learning_rate=1e-2)
    for version in range(150):
        imitation.update(shown(imitation, version), version, 0.0)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    found = imitation.policy({"x": x}).heads["aim"]
    assert (found.mean - x[:, :2]).abs().mean() < 0.1
    assert found.log_std.exp().mean() < 0.4  # towards the 0.1 that it was shown


@pytest.mark.parametrize("role", [BOTH, CHAIN], ids=["both", "chain"])
def test_the_gradient_is_that_of_the_likelihood(role):
    imitation = learner(role, value_weight=0.7, entropy_weight=0.2, **ONE_STEP)
    batch = recorded(imitation)
    batch["learn"][: T // 2] = False
    twin = build(Policy, role, 0, hidden=(32,))
    kept = {name: x[T // 2 :].flatten(0, 1) for name, x in batch.items()}
    outputs = twin({"x": kept["inputs.x"]})
    legal = {name: kept[f"legal.{name}"] for name in role.masks()}
    found = evaluate(role, twin.heads, outputs.heads, {name: kept[f"action.{name}"] for name in role.heads}, legal)
    loss = 0.7 * 0.5 * (kept["return"] - outputs.value).square().sum()
    loss = loss - sum(head.log_prob.sum() + 0.2 * head.entropy.sum() for head in found.values())
    (2 * loss / (T * B)).backward()
    metrics = imitation.update(batch, 0, 0.0)
    expected = torch.cat([p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(imitation.parameters.gradient, expected, rtol=1e-4, atol=1e-6)
    assert metrics["samples"] == T * B // 2
    assert metrics["loss.policy"] == pytest.approx(-2 * sum(head.log_prob.sum().item() for head in found.values()) / (T * B), rel=1e-4)


def test_momentum_is_an_average_of_gradients():
    """v ← 0.8 v + 0.2 ∇, θ ← θ − 0.1 v, from v = 0."""
    imitation = learner(CHOOSE, optimizer="sgd", momentum=0.8, learning_rate=0.1, **ONE_STEP)
    expected, velocity = flatten(imitation.policy), 0.0
    for version in range(3):
        imitation.update(recorded(imitation, version), version, 0.0)
        velocity = 0.8 * velocity + 0.2 * imitation.parameters.gradient.numpy()
        expected = expected - 0.1 * velocity
    torch.testing.assert_close(torch.from_numpy(expected), imitation.parameters.parameter.detach(), rtol=1e-5, atol=1e-7)


def test_top_k_errors_by_hand():
    imitation = learner(CHAIN, top_k=3)
    with torch.no_grad():
        for name, logits in (("button", [3.0, 2.0, 1.0]), ("target", [4.0, 3.0, 2.0, 1.0]), ("mood", [0.0, 1.0])):
            imitation.policy.heads[name].output.weight.zero_()
            imitation.policy.heads[name].output.bias.copy_(torch.tensor(logits))
    batch = recorded(imitation)
    batch["action.button"].fill_(1)
    batch["action.button"][0] = 0  # there the target is inactive
    batch["action.target"].fill_(3)
    batch["action.mood"].fill_(1)
    batch["legal.target"].fill_(True)
    batch["legal.target"][T // 2 :, :, 1, :2] = False  # here two likelier ones are not legal
    metrics = imitation.validate([batch])
    assert metrics["validation.top1_error.button"] == pytest.approx((T - 1) / T)
    assert metrics["validation.top3_error.button"] == metrics["validation.top1_error.mood"] == 0
    assert metrics["validation.top1_error.target"] == pytest.approx(1)
    assert metrics["validation.top3_error.target"] == pytest.approx((T // 2 - 1) / (T - 1))


def test_the_learning_rate_is_cut_when_validation_does_not_improve():
    imitation = learner(CHOOSE, patience=2, learning_rate_cut=0.1, learning_rate=1e-3)
    good, bad = shown(imitation), shown(imitation)
    bad["action.move"] = (bad["action.move"] + 1) % 3
    for version in range(10):
        imitation.update(good, version, 0.0)
    rates, since = [], []
    for batch in (good, bad, bad, bad, bad, good):
        since.append(imitation.validate([batch])["validation.since_best"])
        rates.append(imitation.update(good, 10, 0.0)["learning_rate"])
    assert since == [0, 1, 2, 3, 4, 0]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5])


def test_validation_is_a_mean_over_all_steps_of_all_batches():
    imitation = learner(BOTH)
    batches = [recorded(imitation, seed) for seed in range(2)]
    batches[1]["learn"][1:] = False
    before = flatten(imitation.policy)
    alone = [imitation.validate([batch]) for batch in batches]
    both = imitation.validate(batches)
    for name in ("loss.policy", "loss.value", "loss.value.style", "top1_error.move", "entropy.aim"):
        one, other = (found[f"validation.{name}"] for found in alone)
        assert both[f"validation.{name}"] == pytest.approx((T * one + other) / (T + 1), rel=1e-5)
    assert (flatten(imitation.policy) == before).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_resume_is_exact(optimizer):
    whole, first, second = (learner(CHAIN, seed=seed, optimizer=optimizer) for seed in (0, 0, 9))
    batches = [recorded(whole, seed) for seed in range(6)]

    def go(imitation, numbers):
        for version in numbers:
            imitation.update(batches[version], version, version / 6)
            imitation.validate([batches[0]])

    go(whole, range(6))
    go(first, range(3))
    state = first.state_dict()
    go(first, [0])
    second.load_state_dict(state)
    go(second, range(3, 6))
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in whole.state_dict().items())


def test_a_foreign_state_is_refused():
    with pytest.raises(CheckpointError, match="Imitation"):
        learner(CHOOSE).load_state_dict(learner(CHOOSE, optimizer="sgd").state_dict())
    with pytest.raises(CheckpointError):
        learner(CHOOSE).load_state_dict({})
    of_ppo = {name: x for name, x in learner(CHOOSE).state_dict().items() if name != "plateau"}
    with pytest.raises(CheckpointError, match="not the state of a learner by Imitation"):
        learner(CHOOSE).load_state_dict(of_ppo)


def test_a_number_that_is_not_finite_is_named():
    imitation = learner(AIM)
    batch = recorded(imitation)
    batch["action.aim"][0, 0, 0] = float("nan")
    with pytest.raises(NumericsError, match=r"Imitation, update of version 3: .*action.aim"):
        imitation.update(batch, 3, 0.0)
    with pytest.raises(NumericsError, match="validation loss is nan"):
        imitation.validate([batch])


@pytest.mark.parametrize("setting", [{"rmsprop_decay": 0.5}, {"rmsprop_epsilon": 0.1}])
def test_settings_of_an_optimiser_that_it_has_not_are_refused(setting):
    with pytest.raises(RecipeError, match=r"algorithm\.rmsprop_.*: given 0\..; imitation has the optimizers adam and sgd: leave it out"):
        learner(CHOOSE, **setting)


@pytest.mark.parametrize(
    "settings", [{"top_k": 1}, {"patience": 0}, {"learning_rate_cut": 1.0}, {"validation_share": 0.0}, {"max_staleness": 3}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        Imitation.Settings(data="recordings", **settings)
