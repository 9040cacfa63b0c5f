"""IMPALA: that it learns, also from old samples, that its gradient is the paper's, and what it does when something is wrong."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from lamarckian import ops
from lamarckian.errors import CheckpointError, NumericsError, RecipeError
from lamarckian.mdp import Discrete, Role
from lamarckian.nets import Policy, build, evaluate, flatten, mode
from lamarckian.rl import IMPALA
from tests.rl.test_ppo import AIM, BOTH, CHAIN, CHOOSE, SEE, B, T, follow_the_largest, hit_the_mark, play

FAST = {"learning_rate": 5e-3, "minibatches": 4, "entropy_weight": 0.001}
ONE_STEP = {"minibatches": 1, "max_gradient_norm": None}
TWO = Role(SEE, {"a": Discrete(3), "b": Discrete(2)})


def learner(role: Role, seed: int = 0, dtype: str = "float32", **settings) -> IMPALA:
    return IMPALA(build(Policy, role, seed, hidden=(32,)), role, IMPALA.Settings(**settings), dtype=dtype, seed=seed)


def batch_of(impala: IMPALA, seed: int = 0, **of) -> dict[str, Tensor]:
    return play(impala, torch.Generator().manual_seed(seed), **of)


def long_matches(impala: IMPALA, seed: int = 0, off: float = 0.0) -> dict[str, Tensor]:
    """A fragment with ends here and there, which a policy played whose log-probabilities differ by about `off`."""
    batch = batch_of(impala, seed)
    generator = torch.Generator().manual_seed(seed)
    for name in ("terminated", "truncated"):
        batch[name].copy_(torch.rand(T, B, generator=generator) < 0.1)
    batch["bootstrap"].normal_(generator=generator)
    for name in impala.role.heads:
        batch[f"log_prob.{name}"] += off * torch.randn(T, B, generator=generator)
    return batch


def train(impala: IMPALA, updates: int, reward, lag: int = 0) -> list[dict[str, float]]:
    """Updates by fragments that were played `lag` versions ago."""
    generator = torch.Generator().manual_seed(0)
    waiting = [play(impala, generator, reward, 0) for _ in range(lag)]
    lines = []
    for version in range(updates):
        waiting.append(play(impala, generator, reward, version))
        lines.append(impala.update(waiting.pop(0), version, version / updates))
    return lines


@pytest.mark.parametrize(("dtype", "lag", "optimizer"), [("float32", 0, "rmsprop"), ("bfloat16", 4, "adam")])
def test_learns_a_contextual_choice(dtype, lag, optimizer):
    impala = learner(CHOOSE, dtype=dtype, optimizer=optimizer, **FAST)
    lines = train(impala, 80, follow_the_largest, lag)
    assert lines[-1]["staleness.max"] == lag
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(CHOOSE, impala.policy.heads, impala.policy({"x": x}).heads, {})
    assert (best["move"] == x.argmax(-1)).float().mean() > 0.9


def test_learns_continuous_actions():
    impala = learner(AIM, **FAST)
    train(impala, 100, hit_the_mark)
    x = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    best = mode(AIM, impala.policy.heads, impala.policy({"x": x}).heads, {})
    assert (best["aim"] - x[:, :2]).abs().mean() < 0.25


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("heads", ["joint", "decoupled"])
def test_the_gradient_is_that_of_the_paper(heads, clip):
    """By hand, column by column: −Σ A log π − w Σ H + ½ · ½ Σ (v − V)², over all samples; with PPO's surrogate for A log π."""
    impala = learner(TWO, heads=heads, entropy_weight=0.03, gamma=0.9, rho_clip=1.2, c_clip=0.9, clip=clip, **ONE_STEP)
    batch = long_matches(impala, off=0.5)
    twin = build(Policy, TWO, 0, hidden=(32,))
    clips = {"rho_clip": 1.2, "c_clip": 0.9, "advantage_rho_clip": 1.0 if clip is None else None, "trace_lambda": 1.0}
    loss = torch.zeros(())
    for b in range(B):
        outputs = twin({"x": batch["inputs.x"][:, b]})
        actions = {name: batch[f"action.{name}"][:, b] for name in TWO.heads}
        found = evaluate(TWO, twin.heads, {name: type(p)(p.logits[:T]) for name, p in outputs.heads.items()}, actions, {})
        own = {name: (found[name].log_prob - batch[f"log_prob.{name}"][:, b]).exp() for name in TWO.heads}
        ratios = {name: ratio.detach() for name, ratio in own.items()}
        if heads == "joint":
            ratios = dict.fromkeys(TWO.heads, ratios["a"] * ratios["b"])
        parts = [batch[name][:, b : b + 1] for name in ("bootstrap", "terminated", "truncated")]
        traces = {
            name: ops.vtrace(ratio[:, None], batch["reward"][:, b : b + 1], outputs.value[:, None], *parts, torch.tensor([0.9]), **clips)
            for name, ratio in ratios.items()
        }
        for name, trace in traces.items():
            advantage = trace.advantage_t.flatten()
            if clip is None:
                objective = advantage * found[name].log_prob
            else:
                objective = torch.minimum(own[name] * advantage, own[name].clamp(1 - clip, 1 + clip) * advantage)
            loss = loss - objective.sum() - 0.03 * found[name].entropy.sum()
        target = (traces["a"].target_t + traces["b"].target_t).flatten() / 2
        loss = loss + 0.5 * 0.5 * (target - outputs.value[:T, 0]).square().sum()
    (loss / (T * B)).backward()
    impala.update(batch, 0, 0.0)
    expected = torch.cat([p.grad.flatten() for p in twin.parameters()])
    torch.testing.assert_close(impala.parameters.gradient, expected, rtol=1e-4, atol=1e-6)


def test_with_a_single_head_joint_and_decoupled_are_the_same():
    runs = [learner(CHOOSE, heads=heads, **FAST) for heads in ("joint", "decoupled")]
    for impala in runs:
        impala.update(long_matches(impala, off=0.3), 0, 0.0)
    assert torch.equal(runs[0].parameters.parameter, runs[1].parameters.parameter)


@pytest.mark.parametrize("heads", ["joint", "decoupled"])
def test_an_inactive_head_is_neither_moved_nor_counted(heads):
    runs = [learner(CHAIN, heads=heads, **ONE_STEP) for _ in range(2)]
    batch = batch_of(runs[0])
    batch["action.button"].zero_()
    batch["log_prob.target"].fill_(-123.0)  # what an actor writes where a head is inactive is never read
    first = runs[0].update(batch, 0, 0.0)
    batch["log_prob.target"].fill_(5.0)
    runs[1].update(batch, 0, 0.0)
    assert torch.equal(runs[0].parameters.parameter, runs[1].parameters.parameter)
    gradients = {name: p.grad for name, p in runs[0].policy.named_parameters()}
    assert (gradients["heads.target.output.weight"] == 0).all() and (gradients["heads.mood.output.weight"] != 0).any()
    assert first["entropy.target"] == 0 and first["entropy.mood"] > 0


def test_at_first_the_ratio_is_one_and_metrics_say_so():
    impala = learner(CHAIN, **ONE_STEP)
    metrics = impala.update(batch_of(impala), 0, 0.0)
    assert metrics["rho.mean"] == pytest.approx(1.0, abs=1e-4) and metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)


def test_metrics_of_ratios_and_returns_by_hand():
    impala = learner(CHOOSE, rho_clip=1.5, c_clip=2.5, value_loss="huber", **ONE_STEP)
    batch = batch_of(impala)
    batch["log_prob.move"][: T // 2] -= torch.tensor(2.0).log()  # half of the ratios are 2, half are 1
    batch["reward"].fill_(3.0)
    values = impala.policy({"x": batch["inputs.x"][:T]}).value.squeeze(-1).detach()
    metrics = impala.update(batch, 0, 0.0)
    assert metrics["rho.mean"] == pytest.approx(1.5, abs=1e-3) and metrics["ratio_max"] == pytest.approx(2.0, abs=1e-3)
    assert (metrics["rho.clipped"], metrics["c.clipped"]) == (pytest.approx(0.5), 0.0)
    clipped = torch.cat([torch.full((T // 2, B), 1.5), torch.ones(T // 2, B)])
    targets = values + clipped * (3 - values)
    assert metrics["return.mean"] == pytest.approx(targets.mean().item(), abs=1e-3)
    explained = 1 - (targets - values).var().item() / targets.var().item()
    assert metrics["explained_variance"] == pytest.approx(explained, abs=1e-2)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_resume_is_exact(optimizer):
    settings = FAST | {"optimizer": optimizer}
    whole, first, second = learner(CHAIN, **settings), learner(CHAIN, **settings), learner(CHAIN, seed=9, **settings)
    batches = [batch_of(whole, seed) for seed in range(6)]
    for version, batch in enumerate(batches):
        whole.update(batch, version, version / 6)
    for version, batch in enumerate(batches[:3]):
        first.update(batch, version, version / 6)
    state = first.state_dict()
    first.update(batches[0], 3, 0.5)  # the state is a copy: what comes later does not reach it
    second.load_state_dict(state)
    for version, batch in enumerate(batches[3:], 3):
        second.update(batch, version, version / 6)
    assert torch.equal(whole.parameters.parameter, second.parameters.parameter)
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in whole.state_dict().items())


def test_the_state_of_another_optimiser_is_refused():
    with pytest.raises(CheckpointError, match="IMPALA"):
        learner(CHOOSE).load_state_dict(learner(CHOOSE, optimizer="adam").state_dict())


def test_a_number_that_is_not_finite_is_named_and_changes_nothing():
    impala = learner(BOTH, minibatches=1)
    batch = batch_of(impala)
    before = flatten(impala.policy)
    batch["reward"][2, 3] = float("nan")
    with pytest.raises(NumericsError, match=r"IMPALA, update of version 7: .*loss.policy.move is nan.*not finite in the batch: reward"):
        impala.update(batch, 7, 0.0)
    assert (flatten(impala.policy) == before).all()


def test_nothing_in_the_batch_is_written_to():
    impala = learner(CHAIN, **FAST)
    batch = long_matches(impala)
    before = {name: x.clone() for name, x in batch.items()}
    impala.update(batch, 0, 0.0)
    assert all(torch.equal(x, batch[name]) for name, x in before.items())


@pytest.mark.parametrize("role", [BOTH, CHAIN])
def test_portions_do_not_change_the_gradient(role):
    whole, portioned = learner(role, **ONE_STEP), learner(role, **ONE_STEP)
    object.__setattr__(portioned.precision, "rows", 3 * (T + 1))
    batch = long_matches(whole, off=0.3)
    metrics = [impala.update(batch, 0, 0.0) for impala in (whole, portioned)]
    torch.testing.assert_close(whole.parameters.gradient, portioned.parameters.gradient)
    assert metrics[0].keys() == metrics[1].keys()
    for name in ("loss.policy", "loss.value", "rho.mean", "ratio_max", "kl"):
        assert metrics[0][name] == pytest.approx(metrics[1][name], rel=1e-4, abs=1e-5)


def test_what_is_not_to_be_learned_from_changes_nothing():
    plain, padded = learner(CHOOSE, **ONE_STEP), learner(CHOOSE, **ONE_STEP)
    batch = long_matches(plain, off=0.3)
    batch["learn"][:, B // 2 :] = False
    half = {name: x[:, : B // 2] if x.ndim > 1 else x[: B // 2] for name, x in batch.items()}
    a, b = plain.update(half, 0, 0.0), padded.update(batch, 0, 0.0)
    torch.testing.assert_close(plain.parameters.parameter, padded.parameters.parameter)
    assert a["samples"] == b["samples"] == T * B // 2
    assert a["loss.policy"] == pytest.approx(b["loss.policy"], abs=1e-5) and a["return.mean"] == pytest.approx(b["return.mean"])


@pytest.mark.parametrize("heads", ["joint", "decoupled"])
def test_a_step_that_a_script_decided_has_the_ratio_one(heads):
    runs = [learner(TWO, heads=heads, **ONE_STEP) for _ in range(2)]
    batch = batch_of(runs[0])
    for name in ("terminated", "truncated"):
        batch[name].zero_()
    batch["learn"][T // 2] = False
    for impala, unlikely in zip(runs, (0.0, 3.0), strict=True):  # at first what was recorded has the ratio 1
        for name in TWO.heads:
            batch[f"log_prob.{name}"][T // 2] += unlikely
        impala.update(batch, 0, 0.0)
    torch.testing.assert_close(runs[0].parameters.gradient, runs[1].parameters.gradient)


def test_stale_samples_are_counted_and_left_out():
    impala = learner(CHOOSE, max_staleness=2)
    batch = batch_of(impala)
    batch["version"][: T // 2] = 4
    batch["version"][T // 2 :] = 9
    metrics = impala.update(batch, 10, 0.0)
    assert (metrics["samples"], metrics["samples.stale"]) == (T * B // 2, T * B // 2)
    before = flatten(impala.policy)
    assert impala.update(batch, 99, 0.0)["samples"] == 0
    assert (flatten(impala.policy) == before).all()


def test_reward_weights_choose_what_is_learned_and_can_change():
    def rewards(x: Tensor, actions: dict[str, Tensor]) -> Tensor:
        return torch.stack([actions["move"] == 0, actions["move"] == 1], -1).float()

    def best() -> int:
        return int(impala.policy({"x": torch.zeros(1, 3)}).heads["move"].logits.argmax())

    impala = learner(BOTH, reward_weights={"score": 1.0, "style": 0.0}, gamma={"score": 0.9, "style": 0.5}, **FAST)
    metrics = train(impala, 30, rewards)[-1]
    assert best() == 0
    assert metrics["loss.value"] == pytest.approx(metrics["loss.value.score"] + metrics["loss.value.style"])
    impala.set_reward_weights({"score": 0.0})
    train(impala, 60, rewards)
    assert best() == 1
    with pytest.raises(RecipeError, match="stile"):
        impala.set_reward_weights({"stile": 1.0})


def test_two_epochs_are_two_updates_by_the_same_batch():
    once, twice = learner(TWO, **ONE_STEP), learner(TWO, epochs=2, **ONE_STEP)
    batch = long_matches(once, off=0.5)
    first, second = (once.update(batch, 0, 0.0) for _ in range(2))
    both = twice.update(batch, 0, 0.0)
    assert torch.equal(once.parameters.parameter, twice.parameters.parameter)
    assert both["loss.policy"] == pytest.approx((first["loss.policy"] + second["loss.policy"]) / 2)
    assert both["samples"] == first["samples"]


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 2},
        {"heads": "decoupled"},
        {"rho_clip": 0.5},
        {"c_clip": 0.5},
        {"advantage_rho_clip": 0.5},
        {"trace_lambda": 0.5},
        {"clip": 0.2},
        {"optimizer": "adam"},
        {"value_loss": "huber"},
        {"final_entropy_weight": 0.0},
        {"rmsprop_decay": 0.5},
        {"rmsprop_epsilon": 0.1},
    ],
)
def test_every_option_makes_a_difference(settings):
    plain, other = learner(TWO, **ONE_STEP), learner(TWO, **ONE_STEP, **settings)
    batch = long_matches(plain, off=0.5)
    batch["reward"] *= 3
    for impala in (plain, other):
        impala.update(batch, 0, 0.5)
    assert not torch.equal(plain.parameters.parameter, other.parameters.parameter)


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 0}, {"rho_clip": 0}, {"trace_lambda": 1.5}, {"heads": "both"}, {"clip": 0.2, "advantage_rho_clip": 2}, {"gae_lambda": 0.9}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        IMPALA.Settings(**settings)
