"""PPO: that it learns, that it repeats itself exactly, and what it does when something is wrong."""

from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian.data.fragment import layout
from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Continuous, Discrete, Role, Vector
from lamarckian.nets import Policy, build, evaluate, flatten, mode, sample
from lamarckian.rl import PPO

T, B = 8, 32
SEE = {"x": Vector(3)}
CHOOSE = Role(SEE, {"move": Discrete(3)})
AIM = Role(SEE, {"aim": Continuous(-1.0, 1.0, (2,))})
BOTH = Role(SEE, {"move": Discrete(3), "aim": Continuous(-1.0, 1.0, (2,))}, ("score", "style"))
CHAIN = Role(
    SEE, {"button": Discrete(3), "target": Discrete(4, masked=True, given="button", active=(False, True, True)), "mood": Discrete(2)}
)

Reward = Callable[[Tensor, dict[str, Tensor]], Tensor]


def learner(role: Role, policy: dict | None = None, seed: int = 0, dtype: str = "float32", **settings) -> PPO:
    return PPO(build(Policy, role, seed, **{"hidden": (32,)} | (policy or {})), role, PPO.Settings(**settings), dtype=dtype, seed=seed)


def play(ppo: PPO, generator: torch.Generator, reward: Reward | None = None, version: int = 0) -> dict[str, Tensor]:
    """A fragment of one-step matches that the learner's own policy played; rewards `[T, B, R]` from `reward`, or at random."""
    role = ppo.role
    batch = {name: torch.from_numpy(x) for name, x in layout(role, T, B).empty().items()}
    batch["inputs.x"].uniform_(-1, 1, generator=generator)
    for name in ("truncated", "bootstrap", "missed"):
        batch[name].zero_()
    batch["terminated"].fill_(True)
    batch["learn"].fill_(True)
    batch["version"].fill_(version)
    legal = {name: torch.rand((T + 1) * B, *spec.shape, generator=generator) < 0.7 for name, spec in role.masks().items()}
    for name, mask in legal.items():
        mask[..., 0] = True
        batch[f"legal.{name}"].copy_(mask.unflatten(0, (T + 1, B)))
    with torch.no_grad():
        outputs = ppo.policy({"x": batch["inputs.x"].flatten(0, 1)})
        actions = sample(role, ppo.policy.heads, outputs.heads, legal, generator)
        evaluations = evaluate(role, ppo.policy.heads, outputs.heads, actions, legal)
    batch["value"].copy_(outputs.value.unflatten(0, (T + 1, B)))
    for name, action in actions.items():
        batch[f"action.{name}"].copy_(action.unflatten(0, (T + 1, B))[:T])
        batch[f"log_prob.{name}"].copy_(evaluations[name].log_prob.unflatten(0, (T + 1, B))[:T])
    if reward is None:
        batch["reward"].normal_(generator=generator)
    else:
        batch["reward"].copy_(reward(batch["inputs.x"][:T], {name: batch[f"action.{name}"] for name in role.heads}))
    return batch


def follow_the_largest(x: Tensor, actions: dict[str, Tensor]) -> Tensor:
    return (actions["move"] == x.argmax(-1)).float().unsqueeze(-1)


def hit_the_mark(x: Tensor, actions: dict[str, Tensor]) -> Tensor:
    return -(actions["aim"].clamp(-1, 1) - x[..., :2]).square().sum(-1, keepdim=True)


def train(ppo: PPO, updates: int, reward: Reward, seed: int = 0) -> list[dict[str, float]]:
    generator = torch.Generator().manual_seed(seed)
    return [ppo.update(play(ppo, generator, reward, version), version, version / updates) for version in range(updates)]


FAST = {"learning_rate": 3e-3, "epochs": 3, "minibatches": 2, "entropy_weight": 0.001}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_learns_a_contextual_choice(dtype):
    ppo = learner(CHOOSE, dtype=dtype, **FAST)
    train(ppo, 60, follow_the_largest)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(CHOOSE, ppo.policy.heads, ppo.policy({"x": x}).heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9


@pytest.mark.parametrize("squashed", [True, False])
def test_learns_continuous_actions(squashed):
    ppo = learner(AIM, {"squashed": squashed}, **FAST)
    train(ppo, 80, hit_the_mark)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(AIM, ppo.policy.heads, ppo.policy({"x": x}).heads, {})
    assert (best["aim"] - x[:, :2]).abs().mean() < 0.2


def test_reward_weights_choose_what_is_learned():
    def rewards(x: Tensor, actions: dict[str, Tensor]) -> Tensor:
        return torch.stack([actions["move"] == 0, actions["move"] == 1], -1).float()

    for weights, expected in (({"score": 1.0, "style": 0.0}, 0), ({"score": 0.0}, 1)):
        ppo = learner(BOTH, reward_weights=weights, gamma={"score": 0.9, "style": 0.5}, **FAST)
        metrics = train(ppo, 30, rewards)[-1]
        logits = ppo.policy({"x": torch.zeros(1, 3)}).heads["move"].logits
        assert logits.argmax() == expected
        assert metrics["loss.value"] == pytest.approx(metrics["loss.value.score"] + metrics["loss.value.style"])
        assert metrics["return.mean.score"] + metrics["return.mean.style"] <= 1.001


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    runs = [learner(BOTH, seed=5, **FAST) for _ in range(2)]
    metrics = [train(ppo, 4, lambda x, a: x[..., :2] * a["aim"]) for ppo in runs]
    assert torch.equal(runs[0].parameters.parameter, runs[1].parameters.parameter)

    def timeless(lines):
        return [{name: value for name, value in line.items() if not name.startswith("time.")} for line in lines]

    assert timeless(metrics[0]) == timeless(metrics[1])


def test_resume_is_exact():
    generator = torch.Generator().manual_seed(0)
    whole, first, second = learner(CHAIN, **FAST), learner(CHAIN, **FAST), learner(CHAIN, seed=9, **FAST)
    batches = [play(whole, generator) for _ in range(6)]
    for version, batch in enumerate(batches):
        whole.update(batch, version, version / 6)
    for version, batch in enumerate(batches[:3]):
        first.update(batch, version, version / 6)
    state = first.state_dict()
    assert all(isinstance(x, Tensor) for x in state.values())
    first.update(batches[0], 3, 0.5)  # the state is a copy: what comes later does not reach it
    second.load_state_dict(state)
    for version, batch in enumerate(batches[3:], 3):
        second.update(batch, version, version / 6)
    assert torch.equal(whole.parameters.parameter, second.parameters.parameter)
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in whole.state_dict().items())


def test_a_foreign_state_is_refused():
    with pytest.raises(CheckpointError, match="PPO"):
        learner(CHOOSE).load_state_dict(learner(CHOOSE, {"hidden": (8,)}).state_dict())
    with pytest.raises(CheckpointError):
        learner(CHOOSE).load_state_dict({})


@pytest.mark.parametrize(
    "array, names", [("reward", "loss.policy.move is nan"), ("log_prob.aim", "loss.policy.aim is nan"), ("inputs.x", "loss.value")]
)
def test_a_number_that_is_not_finite_is_named_and_changes_nothing(array, names):
    ppo = learner(BOTH, minibatches=1)
    batch = play(ppo, torch.Generator().manual_seed(0))
    before = flatten(ppo.policy)
    batch[array][2, 3] = float("nan")
    with pytest.raises(NumericsError, match=rf"{names}.*not finite in the batch: .*{array}"):
        ppo.update(batch, 0, 0.0)
    assert (flatten(ppo.policy) == before).all()


def test_nothing_in_the_batch_is_written_to():
    ppo = learner(CHAIN, **FAST)
    batch = play(ppo, torch.Generator().manual_seed(0))
    before = {name: x.clone() for name, x in batch.items()}
    ppo.update(batch, 0, 0.0)
    assert all(torch.equal(x, batch[name]) for name, x in before.items())


def test_target_kl_stops_further_epochs():
    generator = torch.Generator().manual_seed(0)
    free, held = (learner(CHOOSE, learning_rate=0.05, epochs=10, minibatches=1, target_kl=kl) for kl in (None, 0.01))
    batch = play(free, generator, follow_the_largest)
    assert free.update(batch, 0, 0.0)["epochs_done"] == 10
    metrics = held.update(batch, 0, 0.0)
    assert 1 < metrics["epochs_done"] < 10


def test_what_is_not_to_be_learned_from_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    plain, padded = learner(CHOOSE, minibatches=1), learner(CHOOSE, minibatches=1)
    batch = play(plain, generator, follow_the_largest)
    batch["learn"][:, B // 2 :] = False
    half = {name: x[:, : B // 2] if x.ndim > 1 else x[: B // 2] for name, x in batch.items()}
    a, b = plain.update(half, 0, 0.0), padded.update(batch, 0, 0.0)
    torch.testing.assert_close(plain.parameters.parameter, padded.parameters.parameter)
    assert a["samples"] == b["samples"] == T * B // 2
    assert a["loss.policy"] == pytest.approx(b["loss.policy"], abs=1e-5) and a["return.mean"] == pytest.approx(b["return.mean"])


def test_stale_samples_are_counted_and_left_out():
    ppo = learner(CHOOSE, max_staleness=2)
    batch = play(ppo, torch.Generator().manual_seed(0))
    batch["version"][: T // 2] = 4
    batch["version"][T // 2 :] = 9
    metrics = ppo.update(batch, 10, 0.0)
    assert (metrics["samples"], metrics["samples.stale"]) == (T * B // 2, T * B // 2)
    assert (metrics["staleness.mean"], metrics["staleness.max"]) == (3.5, 6)
    before = flatten(ppo.policy)
    assert ppo.update(batch, 99, 0.0)["samples"] == 0
    assert (flatten(ppo.policy) == before).all()


def test_decoupled_heads_add_up():
    """The gradient of all heads is the sum of those of each head alone."""
    role = Role(SEE, {"a": Discrete(3), "b": Discrete(2)})
    settings = {"minibatches": 1, "epochs": 1, "value_weight": 0.0, "max_gradient_norm": None, "entropy_weight": 0.05}
    both = learner(role, **settings)
    batch = play(both, torch.Generator().manual_seed(0))
    singles = [learner(Role(SEE, {name: head}), **settings) for name, head in role.heads.items()]
    for one in singles:
        one.policy.load_state_dict({name: both.policy.state_dict()[name] for name in one.policy.state_dict()})
        one.update(batch, 0, 0.0)
    both.update(batch, 0, 0.0)
    parts = [dict(one.policy.named_parameters()) for one in singles]
    for name, parameter in both.policy.named_parameters():
        torch.testing.assert_close(parameter.grad, sum(part[name].grad for part in parts if name in part))
    assert both.policy.encoder.trunk.layers[0].weight.grad.abs().sum() > 0


def test_an_inactive_head_is_neither_moved_nor_counted():
    ppo = learner(CHAIN, minibatches=1, epochs=1)
    batch = play(ppo, torch.Generator().manual_seed(0))
    batch["action.button"].zero_()
    batch["log_prob.target"].fill_(-123.0)  # what an actor writes where a head is inactive is never read
    metrics = ppo.update(batch, 0, 0.0)
    gradients = {name: p.grad for name, p in ppo.policy.named_parameters()}
    assert (gradients["heads.target.output.weight"] == 0).all() and (gradients["heads.mood.output.weight"] != 0).any()
    assert metrics["entropy.target"] == 0 and metrics["entropy.mood"] > 0


def test_at_first_the_ratio_is_one_and_metrics_say_so():
    ppo = learner(CHAIN, minibatches=1, epochs=1)
    metrics = ppo.update(play(ppo, torch.Generator().manual_seed(0)), 0, 0.0)
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6) and metrics["clip_fraction"] == 0


def test_portions_do_not_change_the_gradient():
    settings = {"minibatches": 1, "epochs": 1, "max_gradient_norm": None}
    whole, portioned = learner(BOTH, **settings), learner(BOTH, **settings)
    object.__setattr__(portioned.precision, "rows", 7)
    batch = play(whole, torch.Generator().manual_seed(0))
    whole.update(batch, 0, 0.0)
    portioned.update(batch, 0, 0.0)
    torch.testing.assert_close(whole.parameters.gradient, portioned.parameters.gradient)


def test_schedules():
    ppo = learner(CHOOSE, learning_rate=0.1, learning_rate_schedule="linear", epochs=1)
    batch = play(ppo, torch.Generator().manual_seed(0))
    assert [ppo.update(batch, 0, p)["learning_rate"] for p in (0.0, 0.25, 1.0)] == pytest.approx([0.1, 0.075, 0.0])
    cosine = learner(CHOOSE, learning_rate=0.1, learning_rate_schedule="cosine", epochs=1)
    assert [cosine.update(batch, 0, p)["learning_rate"] for p in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 0.05, 0.0])


@pytest.mark.parametrize(
    "settings",
    [{"dual_clip": 3.0}, {"value_clip": 0.2}, {"value_loss": "huber"}, {"final_entropy_weight": 0.0}, {"optimizer": "rmsprop"}],
)
def test_every_option_makes_a_difference(settings):
    plain, other = learner(CHOOSE, epochs=1, minibatches=1), learner(CHOOSE, epochs=1, minibatches=1, **settings)
    batch = play(plain, torch.Generator().manual_seed(0))
    batch["log_prob.move"] -= 2.0
    batch["value"] += 0.5
    batch["reward"] *= 3
    for ppo in (plain, other):
        ppo.update(batch, 0, 0.5)
    assert not torch.equal(plain.parameters.parameter, other.parameters.parameter)


@pytest.mark.parametrize(
    "settings", [{"clip": 0}, {"dual_clip": 1.0}, {"gamma": 1.5}, {"epochs": 0}, {"learning_rate": -1}, {"learning_rat": 1e-3}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        PPO.Settings(**settings)


@pytest.mark.parametrize("settings", [{"gamma": {"score": 0.9}}, {"reward_weights": {"stile": 1.0}}])
def test_reward_names_must_be_the_games(settings):
    with pytest.raises(RecipeError, match=r"style"):
        learner(BOTH, **settings)
