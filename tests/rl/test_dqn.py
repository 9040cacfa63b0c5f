"""DQN: that it learns, that its targets are the papers', that each of its parts can be switched off, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian.data.fragment import layout
from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Continuous, Discrete, Role
from lamarckian.nets import QNetwork, activity, build, flatten, mode, sample
from lamarckian.rl import DQN
from tests.rl.test_ppo import CHAIN, CHOOSE, SEE, follow_the_largest

T, B = 8, 32
TWO = Role(SEE, {"a": Discrete(3), "b": Discrete(2)}, ("score", "style"))
MASKED = Role(SEE, {"move": Discrete(3, masked=True)})
SMALL = {"learning_starts": 1, "replay_size": "8MB", "minibatch": 64}
PLAIN = SMALL | {"double": False, "prioritised": False, "n_step": 1, "loss": "squared", "max_gradient_norm": None}
FAST = SMALL | {"learning_rate": 3e-3, "gamma": 0.9, "target_every": 20, "replay_ratio": 4.0, "epsilon": 0.5, "final_epsilon": 0.1}


def learner(role: Role, network: dict | None = None, seed: int = 0, dtype: str = "float32", **settings) -> DQN:
    policy = build(QNetwork, role, seed, **{"hidden": (32,)} | (network or {}))
    return DQN(policy, role, DQN.Settings(**SMALL | settings), dtype=dtype, seed=seed)


def play(dqn: DQN, generator: torch.Generator, reward=None, version: int = 0, ends: float = 1.0) -> dict[str, Tensor]:
    """A fragment of matches that end after each step (or with the chance `ends`), played ε-greedily by the learner's network."""
    role = dqn.role
    batch = {name: torch.from_numpy(x) for name, x in layout(role, T, B).empty().items()}
    batch["inputs.x"].uniform_(-1, 1, generator=generator)
    for name in ("truncated", "bootstrap", "missed", "value"):
        batch[name].zero_()
    batch["terminated"].copy_(torch.rand(T, B, generator=generator) < ends)
    batch["learn"].fill_(True)
    batch["version"].fill_(version)
    legal = {name: torch.rand((T + 1) * B, *spec.shape, generator=generator) < 0.7 for name, spec in role.masks().items()}
    for name, mask in legal.items():
        mask[..., 0] = True
        batch[f"legal.{name}"].copy_(mask.unflatten(0, (T + 1, B)))
    with torch.no_grad():
        outputs = dqn.policy({"x": batch["inputs.x"].flatten(0, 1)})
        actions = sample(role, dqn.policy.heads, outputs.heads, legal, generator)
    for name, action in actions.items():
        batch[f"action.{name}"].copy_(action.unflatten(0, (T + 1, B))[:T])
        batch[f"log_prob.{name}"].zero_()
    if reward is None:
        batch["reward"].normal_(generator=generator)
    else:
        batch["reward"].copy_(reward(batch["inputs.x"][:T], {name: batch[f"action.{name}"] for name in role.heads}))
    return batch


def train(dqn: DQN, updates: int, reward, **of) -> list[dict[str, float]]:
    generator = torch.Generator().manual_seed(0)
    return [dqn.update(play(dqn, generator, reward, version, **of), version, version / updates) for version in range(updates)]


def column(role: Role, **arrays) -> dict[str, Tensor]:
    """A fragment of one column of two steps: nothing ends, everything is legal, action 0, reward 0, but for `arrays`."""
    batch = {name: torch.from_numpy(x) for name, x in layout(role, 2, 1).empty().items()}
    for name, x in batch.items():
        x.fill_(1) if name.startswith(("legal.", "learn")) else x.zero_()
    batch["inputs.x"].copy_(torch.rand(3, 1, 3, generator=torch.Generator().manual_seed(0)))
    for name, values in arrays.items():
        name = name.replace("__", ".")
        batch[name].copy_(torch.as_tensor(values).view_as(batch[name]))
    return batch


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "rainbow"])
def test_learns_a_contextual_choice(plain, dtype):
    switches = {"double": False, "prioritised": False, "n_step": 1} if plain else {}
    dqn = learner(CHOOSE, {"dueling": not plain}, dtype=dtype, **FAST | switches)
    train(dqn, 60, follow_the_largest)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(CHOOSE, dqn.policy.heads, dqn.policy({"x": x}).heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9


def test_learns_the_discounted_value_of_what_goes_on():
    """A reward of 1 a step and an end with the chance ¼: Q = Σ (γ ¾)^i = 1 / (1 − 0.9 · ¾)."""
    settings = {"learning_rate": 1e-2, "learning_rate_schedule": "linear", "replay_ratio": 16.0, "n_step": 2, "loss": "squared"}
    dqn = learner(CHOOSE, **FAST | settings)  # a Huber loss leans to the median, which is not the mean here
    metrics = train(dqn, 60, lambda x, actions: torch.ones(T, B, 1), ends=0.25)[-1]
    assert metrics["q.mean"] == pytest.approx(1 / (1 - 0.9 * 0.75), rel=0.1)


def q_of(network: QNetwork, x: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        return {name: quality.q for name, quality in network({"x": x}).heads.items()}


@pytest.mark.parametrize("double", [True, False])
def test_the_target_is_that_of_the_paper_among_legal_actions(double):
    dqn = learner(MASKED, **PLAIN | {"double": double, "gamma": 0.9, "minibatch": 16})
    dqn._target_parameters.parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    dqn.parameters.parameter.data[1:].normal_(generator=torch.Generator().manual_seed(2))
    next_x = column(MASKED)["inputs.x"][1]
    judged, chosen = q_of(dqn._target, next_x)["move"][0], q_of(dqn.policy if double else dqn._target, next_x)["move"][0]
    forbidden = int(chosen.argmax())
    legal = torch.ones(3, 1, 3, dtype=torch.bool)
    legal[1, 0, forbidden] = False
    batch = column(MASKED, legal__move=legal, reward=[0.5, 7.0], truncated=[False, True])
    best = max((k for k in range(3) if k != forbidden), key=lambda k: float(chosen[k]))
    taken = q_of(dqn.policy, batch["inputs.x"][0])["move"][0, 0]
    metrics = dqn.update(batch, 0, 0.0)
    assert metrics["optimiser.steps"] == 1
    assert metrics["target.mean"] == pytest.approx(0.5 + 0.9 * float(judged[best]), rel=1e-5)
    assert metrics["q.mean"] == pytest.approx(float(taken), rel=1e-5)
    assert metrics["loss"] == pytest.approx(0.5 * (metrics["target.mean"] - metrics["q.mean"]) ** 2, rel=1e-4)


def test_several_heads_share_a_target_and_inactive_ones_are_left_out():
    """CHAIN: button 0 makes `target` inactive. Error and value are means over the heads that matter."""
    dqn = learner(CHAIN, **PLAIN | {"gamma": 0.9, "minibatch": 16})
    dqn._target_parameters.parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    dqn.parameters.parameter.data[1:].normal_(generator=torch.Generator().manual_seed(2))
    batch = column(CHAIN, reward=[0.5, 0.0], truncated=[False, True])
    x = batch["inputs.x"]
    judged = q_of(dqn._target, x[1])
    button = int(judged["button"].argmax())
    counted = ["button", "mood"] + (["target"] if button else [])
    value = sum(float(judged[name].max()) for name in counted) / len(counted)
    taken = q_of(dqn.policy, x[0])
    before = {name: p.clone() for name, p in dqn.policy.named_parameters() if name.startswith("heads.")}
    metrics = dqn.update(batch, 0, 0.0)
    target = 0.5 + 0.9 * value
    assert metrics["target.mean"] == pytest.approx(target, rel=1e-5)
    errors = [target - float(taken[name][0, 0]) for name in ("button", "mood")]
    assert metrics["td_error.mean"] == pytest.approx(sum(map(abs, errors)) / 2, rel=1e-5)
    assert metrics["loss"] == pytest.approx(sum(0.5 * e * e for e in errors) / 2, rel=1e-5)
    after = dict(dqn.policy.named_parameters())
    assert torch.equal(before["heads.target.output.weight"], after["heads.target.output.weight"])
    assert not torch.equal(before["heads.mood.output.weight"], after["heads.mood.output.weight"])


def test_activity_follows_the_choice_of_the_earlier_head():
    active = activity(CHAIN, {"button": torch.tensor([0, 1]), "target": torch.tensor([0, 0]), "mood": torch.tensor([0, 0])})
    assert active["button"] is None and active["mood"] is None
    assert active["target"].tolist() == [False, True]


def test_rewards_are_weighed_when_they_are_drawn():
    dqn = learner(TWO, reward_weights={"style": -2.0}, **PLAIN | {"minibatch": 16})
    batch = column(TWO, reward=[[1.0, 0.25], [1.0, 0.25]], terminated=[True, True])
    assert dqn.update(batch, 0, 0.0)["target.mean"] == pytest.approx(0.5)
    dqn.set_reward_weights({"score": 0.0})
    assert dqn.update(batch, 1, 0.0)["target.mean"] == pytest.approx(0.25)
    with pytest.raises(RecipeError, match="style"):
        dqn.set_reward_weights({"stile": 1.0})


@pytest.mark.parametrize(("ratio", "expected"), [(8.0, [0, 2, 2]), (3.0, [0, 0, 1]), (0.5, [0, 0, 0])])
def test_steps_follow_the_replay_ratio_once_there_is_enough(ratio, expected):
    dqn = learner(CHOOSE, **PLAIN | {"learning_starts": 2 * T * B, "minibatch": 1024, "replay_ratio": ratio})
    lines = train(dqn, 3, follow_the_largest)
    assert [line["optimiser.steps"] for line in lines] == expected
    assert [line["replay.samples"] for line in lines] == [T * B, 2 * T * B, 3 * T * B]


def test_a_full_replay_is_enough_though_not_all_of_it_can_be_drawn():
    dqn = learner(CHOOSE, **PLAIN | {"learning_starts": 2 * T * B, "replay_samples": 2 * T * B})
    steps = []
    for version in range(4):
        batch = play(dqn, torch.Generator().manual_seed(version))
        batch["learn"][0] = False
        steps.append(dqn.update(batch, version, 0.0)["optimiser.steps"])
    assert [count > 0 for count in steps] == [False, True, True, True]
    nothing = learner(CHOOSE, **PLAIN | {"replay_samples": T * B})
    batch["learn"].fill_(False)
    assert nothing.update(batch, 0, 0.0)["optimiser.steps"] == 0


@pytest.mark.parametrize("setting", [{"burn_in": 2}, {"stored_state": False}])
def test_settings_of_a_memory_that_is_not_there_are_refused(setting):
    [(name, value)] = setting.items()
    with pytest.raises(RecipeError, match=rf"algorithm\.{name}: given {value}; the network has no memory"):
        learner(CHOOSE, **setting).prepare(T, endless=False)


def test_the_rest_of_a_step_is_not_lost():
    dqn = learner(CHOOSE, **PLAIN | {"minibatch": 96, "replay_ratio": 1.0})
    steps = [line["optimiser.steps"] for line in train(dqn, 9, follow_the_largest)]
    assert sum(steps) == 9 * T * B // 96 and set(steps) == {2, 3}


def test_the_target_follows():
    dqn = learner(CHOOSE, **PLAIN | {"target_every": 3, "replay_ratio": 1.0, "minibatch": T * B, "target_rate": 0.25})
    first = flatten(dqn._target)
    lines = train(dqn, 2, follow_the_largest)
    assert [line["optimiser.steps"] for line in lines] == [1, 1] and (flatten(dqn._target) == first).all()
    train(dqn, 1, follow_the_largest)
    np.testing.assert_allclose(flatten(dqn._target)[1:], (first + 0.25 * (flatten(dqn.policy) - first))[1:], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_drawing_ahead_changes_nothing(double, monkeypatch):
    """40 steps of a target that changes every 3rd: its minibatches drawn and judged together, and one by one."""
    settings = {"double": double, "target_every": 3, "minibatch": 32, "replay_ratio": 5.0, "learning_rate": 1e-2}

    def learned() -> tuple[DQN, list[dict[str, float]]]:
        dqn = learner(TWO, **PLAIN | settings)
        return dqn, train(dqn, 3, None, ends=0.3)

    together, lines = learned()
    assert [line["optimiser.steps"] for line in lines] == [40] * 3
    monkeypatch.setattr("lamarckian.rl.dqn.ROWS", 32)
    singly, expected = learned()
    np.testing.assert_allclose(flatten(together.policy), flatten(singly.policy), rtol=1e-3, atol=1e-5)
    for name in ("loss", "q.mean", "target.mean", "td_error.mean", "age.mean"):
        assert [line[name] for line in lines] == pytest.approx([line[name] for line in expected], rel=1e-3), name


def test_priorities_are_the_errors():
    dqn = learner(CHOOSE, priority_exponent=0.5, replay_ratio=1.0, minibatch=T * B, gamma=0.0, learning_rate=1e-9)
    batch = play(dqn, torch.Generator().manual_seed(0))
    dqn.update(batch, 0, 0.0)
    q = q_of(dqn.policy, batch["inputs.x"][:T].flatten(0, 1))["move"].gather(1, batch["action.move"].long().reshape(-1, 1))
    error = (batch["reward"].reshape(-1) - q.squeeze(1)).abs().view(T, B).T.reshape(-1)  # entries go column by column
    found = dqn._replay._tree.priorities[: T * B]
    drawn = found != 1.0
    assert drawn.mean() > 0.5
    np.testing.assert_allclose(found[drawn], np.sqrt(error.numpy() + 1e-6)[drawn], rtol=1e-3)


def test_epsilon_goes_with_the_version_and_no_gradient_changes_it():
    dqn = learner(CHOOSE, **FAST | {"epsilon": 1.0, "final_epsilon": 0.2, "epsilon_share": 0.5})
    entry = next(entry for entry in dqn.parameters.manifest if entry.name == "epsilon")
    seen = []
    for version, progress in enumerate((0.0, 0.25, 0.5, 1.0)):
        assert dqn.update(play(dqn, torch.Generator().manual_seed(version)), version, progress)["optimiser.steps"] > 0
        seen.append(float(dqn.parameters.array()[entry.offset]))
    assert seen == pytest.approx([1.0, 0.6, 0.2, 0.2])
    by_steps = learner(CHOOSE, **FAST | {"epsilon": 1.0, "final_epsilon": 0.0, "epsilon_steps": 4 * T * B})
    assert [line["epsilon"] for line in train(by_steps, 5, follow_the_largest)] == pytest.approx([0.75, 0.5, 0.25, 0.0, 0.0])


def test_beta_and_learning_rate_follow_the_run():
    dqn = learner(CHOOSE, learning_rate=0.1, learning_rate_schedule="linear", importance_exponent=0.4)
    batch = play(dqn, torch.Generator().manual_seed(0))
    lines = [dqn.update(batch, 0, p) for p in (0.0, 0.5, 1.0)]
    assert [line["beta"] for line in lines] == pytest.approx([0.4, 0.7, 1.0])
    assert [line["learning_rate"] for line in lines] == pytest.approx([0.1, 0.05, 0.0])


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    runs = [learner(CHAIN, seed=5, **FAST) for _ in range(2)]
    lines = [train(dqn, 4, lambda x, a: (a["target"] == 1).float().unsqueeze(-1), ends=0.2) for dqn in runs]
    assert torch.equal(runs[0].parameters.parameter, runs[1].parameters.parameter)
    timeless = [[{name: x for name, x in line.items() if not name.startswith("time.")} for line in run] for run in lines]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("prioritised", [True, False])
def test_resume_is_exact(prioritised):
    generator, settings = torch.Generator().manual_seed(0), FAST | {"prioritised": prioritised, "double": prioritised}
    whole, first, second = learner(CHAIN, **settings), learner(CHAIN, **settings), learner(CHAIN, seed=9, **settings)
    batches = [play(whole, generator, ends=0.2) for _ in range(6)]
    for version, batch in enumerate(batches):
        whole.update(batch, version, version / 6)
    for version, batch in enumerate(batches[:3]):
        first.update(batch, version, version / 6)
    state, replay = first.state_dict(), {name: array.copy() for name, array in first.save_replay().items()}
    first.update(batches[0], 3, 0.5)  # the state is a copy: what comes later does not reach it
    second.load_state_dict(state)
    second.load_replay(replay)
    for version, batch in enumerate(batches[3:], 3):
        second.update(batch, version, version / 6)
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in whole.state_dict().items())


def test_without_its_replay_it_waits_until_there_is_enough_again():
    dqn, forgetful = (learner(CHOOSE, **FAST | {"learning_starts": 2 * T * B}) for _ in range(2))
    train(dqn, 4, follow_the_largest)
    forgetful.load_state_dict(dqn.state_dict())
    assert forgetful.save_replay() == {}
    lines = train(forgetful, 3, follow_the_largest)
    assert [line["optimiser.steps"] > 0 for line in lines] == [False, True, True]


def test_a_foreign_state_is_refused():
    with pytest.raises(CheckpointError, match="DQN"):
        learner(CHOOSE).load_state_dict(learner(CHOOSE, {"hidden": (8,)}).state_dict())
    with pytest.raises(CheckpointError):
        learner(CHOOSE).load_state_dict({})


@pytest.mark.parametrize("array", ["reward", "inputs.x"])
def test_a_number_that_is_not_finite_is_named_and_changes_nothing(array):
    dqn = learner(CHOOSE, replay_ratio=4.0)
    batch = play(dqn, torch.Generator().manual_seed(0))
    before = flatten(dqn.policy)
    batch[array][2] = math.nan
    with pytest.raises(NumericsError, match=rf"DQN, update of version 0: loss is nan.*not finite in the batch: .*{array}"):
        dqn.update(batch, 0, 0.0)
    assert (flatten(dqn.policy) == before).all()


def test_nothing_in_the_batch_is_written_to():
    dqn = learner(CHAIN, **FAST)
    batch = play(dqn, torch.Generator().manual_seed(0))
    before = {name: x.clone() for name, x in batch.items()}
    dqn.update(batch, 0, 0.0)
    assert all(torch.equal(x, batch[name]) for name, x in before.items())


def test_portions_do_not_change_the_gradient():
    settings = PLAIN | {"replay_ratio": 1.0, "minibatch": T * B}
    whole, portioned = learner(CHAIN, **settings), learner(CHAIN, **settings)
    object.__setattr__(portioned.precision, "rows", 37)
    batch = play(whole, torch.Generator().manual_seed(0))
    lines = [dqn.update(batch, 0, 0.0) for dqn in (whole, portioned)]
    torch.testing.assert_close(whole.parameters.gradient, portioned.parameters.gradient)
    assert lines[0]["loss"] == pytest.approx(lines[1]["loss"])


@pytest.mark.parametrize(
    "settings", [{"double": False}, {"prioritised": False}, {"n_step": 1}, {"loss": "squared"}, {"target_rate": 0.1}, {"gamma": 0.5}]
)
def test_every_switch_makes_a_difference(settings):
    plain, other = learner(CHOOSE, **FAST), learner(CHOOSE, **FAST | settings)
    generator = torch.Generator().manual_seed(0)
    for version in range(8):
        batch = play(plain, generator, ends=0.1)
        batch["reward"] *= 3
        for dqn in (plain, other):
            dqn.update(batch, version, 0.5)
    assert not torch.equal(plain.parameters.parameter, other.parameters.parameter)


@pytest.mark.parametrize(
    "settings",
    [{"gamma": 1.5}, {"gamma": -0.1}, {"n_step": 0}, {"replay_size": "much"}, {"target_rate": 0}, {"epsilon": 2}, {"learning_rat": 1e-3}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        DQN.Settings(**settings)


def test_a_replay_larger_than_the_memory_is_refused():
    with pytest.raises(RecipeError, match=r"algorithm\.replay_size: given 1e\+03 TB; this machine has .* of memory, .* free"):
        learner(CHOOSE, replay_size="1000TB")


def test_a_continuous_head_is_refused():
    with pytest.raises(RecipeError, match=r"network\.name: given 'q'.*head 'aim' of this game is continuous.*policy.*ppo"):
        learner(Role(SEE, {"move": Discrete(2), "aim": Continuous(-1.0, 1.0, (2,))}))
