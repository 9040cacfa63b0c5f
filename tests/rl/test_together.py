"""Learners that learn together: an update by parts of a batch is that by the whole, and all have the same parameters after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from lamarckian.errors import NumericsError
from lamarckian.mdp import Discrete, Role
from lamarckian.nets import Policy, build
from lamarckian.nets.memory import MemorySettings
from lamarckian.rl import A3C, DQN, IMPALA, PG, PPO, Imitation
from lamarckian.rl.algorithm import learns_together
from tests.nets.roles import SMALL
from tests.nets.roles import draw as draw_inputs
from tests.nets.roles import role as role_of
from tests.peers import together
from tests.rl import test_dqn, test_impala, test_pg, test_ppo, test_recurrent, test_recurrent_dqn
from tests.rl.test_ppo import BOTH, CHAIN, B, T, play

Batch = dict[str, Tensor]
Make = Callable[[], Any]

WHOLE = {"minibatches": 1, "learning_rate": 0.01}
HALVES, THIRDS, ONE_HAS_NOTHING = (16, 16), (5, 20, 7), (20, 12)


def parts(batch: Batch, widths: Sequence[int]) -> list[Batch]:
    """The columns of a batch, by learner."""
    cut = [{} for _ in widths]
    for name, x in batch.items():
        for part, piece in zip(cut, x.split(list(widths), _columns(name, x)), strict=True):
            part[name] = piece
    return cut


def beside(batches: Sequence[Batch]) -> Batch:
    """Their columns, in one batch."""
    return {name: torch.cat([batch[name] for batch in batches], _columns(name, x)) for name, x in batches[0].items()}


def _columns(name: str, x: Tensor) -> int:
    """The axis of the columns."""
    return int(x.ndim > 1 and not name.startswith("state."))


def uneven(batch: Batch, seed: int = 0) -> Batch:
    """With some samples that are not to be learned from, more of them toward the last column."""
    columns = batch["learn"].shape[1]
    chance = torch.linspace(0.9, 0.2, columns)
    batch["learn"].copy_(torch.rand(batch["learn"].shape, generator=torch.Generator().manual_seed(seed)) < chance)
    return batch


def learn(make: Make, batches: Sequence[Sequence[Batch]]) -> tuple[list[Any], list[list[dict[str, float]]]]:
    """Learners, and their metrics, after learning together from some batches, each of which is in parts."""

    learners = [make() for _ in batches[0]]  # not in the threads: torch's global generator is one for all

    def work(peer):
        learner = learners[peer.rank]
        learner.peers = peer
        return [learner.update(batch[peer.rank], version, 0.25) for version, batch in enumerate(batches)]

    found = together(len(learners), work)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return learners, found


def flat(learner) -> Tensor:
    return learner.parameters.parameter.detach()


def difference(x: Tensor, y: Tensor, of: Tensor) -> float:
    return float((x - y).norm() / of.norm())


def assert_equal(make: Make, batches: list[Batch], widths: Sequence[int], metrics: Sequence[str]) -> None:
    """Learning together from parts is as learning alone from the whole."""
    alone, start = make(), make()
    lines = [alone.update(batch, version, 0.25) for version, batch in enumerate(batches)]
    learners, theirs = learn(make, [parts(batch, widths) for batch in batches])
    moved, gradient = flat(alone) - flat(start), alone.parameters.gradient
    for learner, found in zip(learners, theirs, strict=True):
        assert torch.equal(flat(learner), flat(learners[0]))
        assert difference(flat(learner), flat(alone), moved) <= 1e-5
        assert difference(learner.parameters.gradient, gradient, gradient) <= 1e-5  # of the last step
        for line, expected in zip(found, lines, strict=True):
            for name in metrics:
                assert line[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name


SPLITS = pytest.mark.parametrize("widths", [HALVES, THIRDS, ONE_HAS_NOTHING], ids=["halves", "thirds", "one has nothing"])
SHARED = ("loss.policy", "loss.value", "kl", "gradient_norm", "samples", "samples.stale", "staleness.mean")


def masked(batch: Batch, widths: Sequence[int], seed: int = 0) -> Batch:
    batch = uneven(batch, seed)
    if widths == ONE_HAS_NOTHING:
        batch["learn"][:, -ONE_HAS_NOTHING[-1] :] = False
    return batch


@SPLITS
@pytest.mark.parametrize("role", [CHAIN, BOTH], ids=["chain", "both"])
def test_ppo_by_parts(role, widths):
    def make():
        return test_ppo.learner(role, epochs=3, max_gradient_norm=0.1, dual_clip=3.0, value_clip=0.3, max_staleness=2, **WHOLE)

    batches = [masked(play(make(), torch.Generator().manual_seed(seed), version=seed), widths, seed) for seed in range(2)]
    batches[1]["version"][:2] = -5
    assert_equal(make, batches, widths, [*SHARED, "clip_fraction", *(f"entropy.{head}" for head in role.heads)])


@SPLITS
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("algorithm", "settings"), [(PPO, {"epochs": 2}), (IMPALA, {"heads": "decoupled"})], ids=["ppo", "impala"])
def test_recurrent_networks_by_parts(algorithm, settings, kind, widths):
    def make():
        return algorithm(test_recurrent.network(kind), test_recurrent.ROLE, algorithm.Settings(**WHOLE, **settings), seed=0)

    batch = beside([test_recurrent.fragment(make().policy, seed) for seed in range(6)])
    batch = parts(batch, (32, batch["learn"].shape[1] - 32))[0]
    assert_equal(make, [masked(batch, widths)], widths, SHARED)


@SPLITS
@pytest.mark.parametrize("heads", ["joint", "decoupled"])
def test_impala_by_parts(heads, widths):
    def make():
        return test_impala.learner(CHAIN, heads=heads, **WHOLE)

    batches = [masked(test_impala.long_matches(make(), seed, off=0.3), widths, seed) for seed in range(2)]
    names = ("rho.mean", "rho.clipped", "c.clipped", "explained_variance", "return.mean")
    assert_equal(make, batches, widths, [*SHARED, *names])


@SPLITS
@pytest.mark.parametrize("baseline", [True, False])
def test_pg_by_parts(baseline, widths):
    """All steps that came are drawn, once each: so parts draw what the whole does. A learner without any has no episode that is over."""

    def make():
        return test_pg.learner(CHAIN, baseline=baseline, max_uses=1, **WHOLE)

    batches = [test_pg.batch_of(make(), seed, version=seed) for seed in range(2)]
    if widths == ONE_HAS_NOTHING:
        for batch in batches:
            batch["terminated"][:, -ONE_HAS_NOTHING[-1] :] = False
    assert_equal(make, batches, widths, ["loss.policy", "kl", "gradient_norm", "samples", "weight.mean"])


@pytest.mark.parametrize("recurrent", [False, True], ids=["single steps", "sequences"])
def test_dqn_by_parts(recurrent):
    """With as many samples in a minibatch as in the replay, all are drawn, once each."""
    columns, steps = (2 * test_recurrent_dqn.B, test_recurrent_dqn.T) if recurrent else (B, T)

    def make(columns: int = columns // 2):
        of_all = {"minibatch": columns * steps, "replay_samples": columns * steps, "replay_ratio": 3.0, "prioritised": False}
        settings = of_all | {"learning_rate": 0.01, "target_every": 2, "max_gradient_norm": 0.1}
        return test_recurrent_dqn.learner(**settings) if recurrent else test_dqn.learner(CHAIN, **settings)

    if recurrent:
        batches = [beside([test_recurrent_dqn.fragment(make(), seed + more) for more in range(2)]) for seed in range(2)]
    else:
        batches = [test_dqn.play(make(), torch.Generator().manual_seed(seed), ends=0.2) for seed in range(2)]
    alone = make(columns)
    lines = [alone.update(batch, version, 0.25) for version, batch in enumerate(batches)]
    learners, theirs = learn(make, [parts(batch, (columns // 2, columns // 2)) for batch in batches])
    assert lines[0]["optimiser.steps"] == 3
    moved = flat(alone) - flat(make())
    for learner, found in zip(learners, theirs, strict=True):
        assert torch.equal(flat(learner), flat(learners[0]))
        assert torch.equal(learner._target_parameters.parameter, learners[0]._target_parameters.parameter)
        assert difference(flat(learner), flat(alone), moved) <= 1e-5
        for line, expected in zip(found, lines, strict=True):
            for name in ("loss", "q.mean", "target.mean", "gradient_norm", "samples", "epsilon", "optimiser.steps"):
                assert line[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name


def test_dqn_waits_until_every_replay_has_enough_and_all_make_the_same_steps():
    def make():
        return test_dqn.learner(CHAIN, learning_starts=400, epsilon_steps=4096)

    batches = [test_dqn.play(make(), torch.Generator().manual_seed(seed)) for seed in range(3)]
    for batch in batches:
        batch["learn"][:, 20:] = False  # so that the second learner has 12 · 8 a batch, against 16 · 8
    learners, lines = learn(make, [parts(batch, (8, 24)) for batch in batches])
    assert [line["optimiser.steps"] for line in lines[0]] == [line["optimiser.steps"] for line in lines[1]] == [0, 0, 0]
    more = [test_dqn.play(make(), torch.Generator().manual_seed(seed)) for seed in range(20)]
    learners, lines = learn(make, [parts(batch, (8, 24)) for batch in more])
    steps = [[line["optimiser.steps"] for line in found] for found in lines]
    assert steps[0] == steps[1] and steps[0][:6] == [0] * 6 and sum(steps[0]) > 100
    assert torch.equal(flat(learners[0]), flat(learners[1]))
    assert lines[0][-1]["epsilon"] == lines[1][-1]["epsilon"] < lines[0][0]["epsilon"]


@pytest.mark.parametrize("kind", ["image", "units", "fusion"])
@pytest.mark.parametrize("algorithm", [PPO, IMPALA], ids=["ppo", "impala"])
def test_a_learner_without_a_sample_has_any_network(algorithm, kind):
    role = role_of(kind)
    role = Role(role.inputs, {"move": Discrete(3)})
    memory = MemorySettings(kind="lstm", size=4)

    def make():
        policy = build(Policy, role, 0, **SMALL, memory=memory if kind == "fusion" else None)
        return algorithm(policy, role, algorithm.Settings(**WHOLE), dtype="float32", seed=0)

    torch.manual_seed(0)
    policy = make().policy
    batch = {name: torch.from_numpy(x) for name, x in test_ppo.layout(role, T, 32, policy.state).empty().items()}
    for name, x in batch.items():
        x.zero_()
        if name in ("reward", "value"):
            x.normal_()
    drawn = draw_inputs(role, (T + 1) * 32)
    for name, x in drawn.items():
        batch[f"inputs.{name}"].copy_(x.unflatten(0, (T + 1, 32)))
    batch["log_prob.move"].fill_(-1.0986)
    assert_equal(make, [masked(batch, ONE_HAS_NOTHING)], ONE_HAS_NOTHING, SHARED)


@pytest.mark.parametrize("learnable", [3, 1, 0])
@pytest.mark.parametrize("make", [lambda: test_ppo.learner(CHAIN, minibatches=4), lambda: test_impala.learner(CHAIN, minibatches=4)])
def test_all_make_as_many_steps_however_few_samples_there_are(make, learnable):
    """Of four minibatches most are empty at one of the learners, and some at both."""
    batches = [play(make(), torch.Generator().manual_seed(seed)) for seed in range(3)]
    for batch in batches:
        batch["learn"][:] = False
        batch["learn"][0, :learnable] = True
    learners, lines = learn(make, [parts(batch, HALVES) for batch in batches])
    assert all(line["samples"] == learnable for found in lines for line in found)
    assert torch.equal(flat(learners[0]), flat(learners[1]))
    assert torch.equal(flat(learners[0]), flat(make())) == (not learnable)


def test_minibatches_differ_and_parameters_do_not():
    def make():
        return test_ppo.learner(BOTH, minibatches=3, epochs=4, learning_rate=0.01)

    batches = [uneven(play(make(), torch.Generator().manual_seed(seed)), seed) for seed in range(4)]
    learners, _ = learn(make, [parts(batch, THIRDS) for batch in batches])
    states = [learner.state_dict() for learner in learners]
    for name in ("parameters", "adam.exp_avg", "adam.exp_avg_sq", "adam.step"):
        assert all(torch.equal(state[name], states[0][name]) for state in states)


def test_all_stop_at_the_same_epoch():
    def make():
        return test_ppo.learner(test_ppo.CHOOSE, learning_rate=0.05, epochs=10, minibatches=1, target_kl=0.01)

    batch = play(make(), torch.Generator().manual_seed(0), test_ppo.follow_the_largest)
    batch["learn"][:, 20:] = False
    _, lines = learn(make, [parts(batch, THIRDS)])
    expected = make().update(batch, 0, 0.25)["epochs_done"]
    assert 1 < expected < 10 and {line["epochs_done"] for (line,) in lines} == {expected}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: test_ppo.learner(CHAIN), "log_prob.button"),
        (lambda: test_impala.learner(CHAIN), "reward"),
        (lambda: test_pg.learner(CHAIN), "reward"),
        (lambda: test_dqn.learner(CHAIN, replay_ratio=4.0), "reward"),
    ],
    ids=["ppo", "impala", "pg", "dqn"],
)
def test_a_number_that_is_not_finite_at_one_is_raised_at_all(make, name):
    first = make()
    batch = (test_dqn.play if isinstance(first, DQN) else play)(first, torch.Generator().manual_seed(0))
    batch["lane"].copy_(torch.arange(B))
    batch["column"].zero_()
    batch[name][:, 20:] = float("nan")
    before = flat(first).clone()
    learners = [make(), make()]

    def work(peer):
        learner = learners[peer.rank]
        learner.peers = peer
        with pytest.raises(NumericsError, match="not finite in the batch" if peer.rank else "the batch of this learner is finite") as told:
            learner.update(parts(batch, HALVES)[peer.rank], 3, 0.0)
        return str(told.value), flat(learner)

    (one, mine), (other, theirs) = together(2, work)
    assert one.split(";")[0] == other.split(";")[0] and "update of version 3" in one
    if not isinstance(first, DQN):
        assert torch.equal(mine, before)
    assert torch.equal(mine, theirs)


def test_a_learner_alone_has_nothing_to_add():
    def work(peer):
        learner.peers = peer
        learner.update(batch, 0, 0.0)
        return peer.calls

    learner = test_ppo.learner(CHAIN)
    batch = play(learner, torch.Generator().manual_seed(0))
    twin = test_ppo.learner(CHAIN)
    twin.update(batch, 0, 0.0)
    [calls] = together(1, work)
    assert torch.equal(flat(learner), flat(twin)) and calls == 3  # how many samples, their mean advantage and its deviation


def test_who_may_learn_together():
    assert all(map(learns_together, (PPO, IMPALA, PG, DQN, test_ppo.learner(CHAIN))))
    assert not any(map(learns_together, (A3C, Imitation, object)))


def test_reward_weights_can_be_read():
    ppo = test_ppo.learner(BOTH, reward_weights={"style": 0.3})
    dqn = test_dqn.learner(test_dqn.TWO, reward_weights={"style": 0.3})
    for learner in (ppo, dqn):
        assert learner.reward_weights == {"score": 1.0, "style": pytest.approx(0.3)}
        learner.set_reward_weights(learner.reward_weights | {"score": 2.0})
        assert learner.reward_weights == {"score": 2.0, "style": pytest.approx(0.3)}
