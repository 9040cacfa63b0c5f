"""Actions are drawn by the policy's own probabilities, within masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.actor.inference import Inference
from lamarckian.actor.sampling import Sampler
from lamarckian.errors import ContractError, NumericsError
from lamarckian.evaluate.plan import export
from lamarckian.mdp import Continuous, Discrete, Role, Vector
from lamarckian.nets import Policy, QNetwork, build, evaluate


def role(**heads) -> Role:
    return Role({"x": Vector(1)}, heads)


def test_frequencies_are_probabilities():
    logits = np.tile(np.log(np.array([0.5, 0.3, 0.2], np.float32)), (200_000, 1))
    actions, log_probs = Sampler(role(a=Discrete(3)))({"head.a.logits": logits}, {}, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(actions["a"]) / len(logits), [0.5, 0.3, 0.2], atol=0.005)
    np.testing.assert_allclose(np.exp(log_probs["a"]), np.array([0.5, 0.3, 0.2])[actions["a"]], rtol=1e-5)


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_masked_actions_never_come(n, seed):
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 20, (16, n)).astype(np.float32)
    mask = generator.random((16, n)) < 0.5
    mask[np.arange(16), generator.integers(n, size=16)] = True
    actions, log_probs = Sampler(role(a=Discrete(n, masked=True)))({"head.a.logits": logits}, {"a": mask}, generator)
    assert mask[np.arange(16), actions["a"]].all()
    legal = np.where(mask, logits, -np.inf).astype(np.float64)
    expected = legal[np.arange(16), actions["a"]] - np.log(np.exp(legal - legal.max(1, keepdims=True)).sum(1)) - legal.max(1)
    np.testing.assert_allclose(log_probs["a"], expected, rtol=1e-4, atol=1e-4)


def test_greedy_takes_the_best_legal():
    logits = np.array([[3.0, 2.0, 1.0]], np.float32)
    mask = np.array([[False, True, True]])
    actions, _ = Sampler(role(a=Discrete(3, masked=True)), greedy=True)({"head.a.logits": logits}, {"a": mask}, np.random.default_rng(0))
    assert actions["a"] == [1]


def test_conditional_mask_follows_the_earlier_head_and_inactive_heads_count_nothing():
    heads = role(button=Discrete(2), target=Discrete(3, masked=True, given="button", active=(False, True)))
    outputs = {"head.button.logits": np.zeros((64, 2), np.float32), "head.target.logits": np.zeros((64, 3), np.float32)}
    mask = np.tile(np.array([[True, False, False], [False, True, True]]), (64, 1, 1))
    actions, log_probs = Sampler(heads)(outputs, {"target": mask}, np.random.default_rng(0))
    pressed = actions["button"] == 1
    assert pressed.any() and not pressed.all()
    assert set(actions["target"][~pressed]) == {0}
    assert set(actions["target"][pressed]) == {1, 2}
    np.testing.assert_allclose(log_probs["target"], np.where(pressed, np.log(0.5), 0.0), rtol=1e-6)


def test_an_empty_mask_is_named():
    sampler = Sampler(role(a=Discrete(2, masked=True)))
    with pytest.raises(ContractError, match=r"head 'a' leaves no legal action"):
        sampler({"head.a.logits": np.zeros((2, 2), np.float32)}, {"a": np.array([[True, True], [False, False]])}, np.random.default_rng(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_named(bad):
    sampler = Sampler(role(a=Discrete(2)))
    with pytest.raises(NumericsError, match="head 'a' are not finite"):
        sampler({"head.a.logits": np.array([[0.0, bad]], np.float32)}, {}, np.random.default_rng(0))


def test_gaussian_moments_and_density():
    heads = role(a=Continuous(-1.0, 1.0, (2,)))
    outputs = {
        "head.a.mean": np.tile(np.float32([1.0, -2.0]), (100_000, 1)),
        "head.a.log_std": np.full((100_000, 2), np.log(0.5), np.float32),
    }
    actions, log_probs = Sampler(heads)(outputs, {}, np.random.default_rng(0))
    np.testing.assert_allclose(actions["a"].mean(0), [1.0, -2.0], atol=0.01)
    np.testing.assert_allclose(actions["a"].std(0), [0.5, 0.5], atol=0.01)
    z = (actions["a"] - [1.0, -2.0]) / 0.5
    np.testing.assert_allclose(log_probs["a"], (-0.5 * z**2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)).sum(1), rtol=1e-4)
    greedy, _ = Sampler(heads, greedy=True)(outputs, {}, np.random.default_rng(0))
    np.testing.assert_array_equal(greedy["a"], outputs["head.a.mean"])


@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_log_probabilities_are_those_the_learner_computes(squashed, greedy):
    heads = {
        "button": Discrete(3, masked=True),
        "target": Discrete(4, masked=True, given="button", active=(True, False, True)),
        "power": Continuous(-2.0, 4.0, (2,), given="target", active=(True, True, True, False)),
        "free": Continuous(-1.0, 1.0, (1,)),
    }
    seat = Role({"x": Vector(5)}, heads)
    generator = np.random.default_rng(0)
    policy = build_policy(seat, squashed)
    inputs = {"x": generator.normal(size=(256, 5)).astype(np.float32)}
    legal = {"button": generator.random((256, 3)) < 0.6, "target": generator.random((256, 3, 4)) < 0.6}
    for mask in legal.values():
        mask[..., 0] |= ~mask.any(axis=-1)
    inference = Inference(export(policy))
    actions, log_probs = Sampler(seat, inference.squashed, greedy)(inference(inputs), legal, generator)
    with torch.no_grad():
        outputs = policy({"x": torch.from_numpy(inputs["x"])})
        found = evaluate(
            seat,
            policy.heads,
            outputs.heads,
            {name: torch.from_numpy(action) for name, action in actions.items()},
            {name: torch.from_numpy(mask) for name, mask in legal.items()},
        )
    for name in heads:
        np.testing.assert_allclose(log_probs[name], found[name].log_prob.numpy(), rtol=2e-3, atol=2e-3, err_msg=name)
        if found[name].active is not None:
            assert 0 < found[name].active.float().mean() < 1
    assert (np.abs(actions["power"] - 1) <= 3).all() or not squashed


def build_policy(seat: Role, squashed: bool) -> Policy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Policy(seat, hidden=(16,), policy_gain=1.0, log_std="network", squashed=squashed)


def explore(epsilon: float, q: np.ndarray, mask: np.ndarray | None = None, greedy: bool = False, seed: int = 0):  # type: ignore[no-untyped-def]
    """Actions and probabilities for one head `a`."""
    outputs = {"head.a.q": q, "head.a.epsilon": np.full((len(q), 1), epsilon, np.float32)}
    sampler = Sampler(role(a=Discrete(q.shape[1], masked=mask is not None)), greedy=greedy)
    actions, log_probs = sampler(outputs, {} if mask is None else {"a": mask}, np.random.default_rng(seed))
    return actions["a"], np.exp(log_probs["a"])


def test_epsilon_greedy_frequencies_are_probabilities():
    q = np.tile(np.float32([1.0, 3.0, 2.0, -1e15]), (200_000, 1))  # the last is a unit that is not valid
    actions, p = explore(0.3, q)
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / len(q), [0.1, 0.8, 0.1, 0.0], atol=0.005)
    np.testing.assert_allclose(p, np.array([0.1, 0.8, 0.1, 0.0])[actions], rtol=1e-5)
    mask = np.tile([True, False, True, True], (len(q), 1))
    actions, p = explore(0.3, q, mask)
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / len(q), [0.15, 0.0, 0.85, 0.0], atol=0.005)
    np.testing.assert_allclose(p, np.array([0.15, 0.0, 0.85, 0.0])[actions], rtol=1e-5)


@given(st.integers(1, 8), st.floats(0, 1, width=32), st.integers(0, 2**32 - 1))
def test_epsilon_greedy_keeps_to_the_mask(n, epsilon, seed):
    generator = np.random.default_rng(seed)
    q = generator.normal(0, 20, (16, n)).astype(np.float32)
    mask = generator.random((16, n)) < 0.5
    mask[np.arange(16), generator.integers(n, size=16)] = True
    best = np.where(mask, q, -np.inf).argmax(1)
    actions, p = explore(epsilon, q, mask, seed=seed)
    assert mask[np.arange(16), actions].all()
    count = mask.sum(1)
    np.testing.assert_allclose(p, np.where(actions == best, 1 - epsilon, 0) + epsilon / count, rtol=1e-4)
    for greedy in ({"greedy": True}, {}):
        assert (explore(epsilon if greedy else 0.0, q, mask, **greedy)[0] == best).all()


def test_epsilon_greedy_faults_are_named():
    with pytest.raises(ContractError, match=r"head 'a' leaves no legal action"):
        explore(0.5, np.zeros((2, 2), np.float32), np.array([[True, True], [False, False]]))
    with pytest.raises(NumericsError, match="values of head 'a' are not finite"):
        explore(0.5, np.array([[0.0, np.nan]], np.float32))


def test_epsilon_greedy_probabilities_are_those_the_learner_computes():
    seat = role(button=Discrete(3, masked=True), target=Discrete(4, masked=True, given="button", active=(True, False, True)))
    generator = np.random.default_rng(0)
    network = build(QNetwork, seat, 0, hidden=(16,), head_gain=1.0)
    network.epsilon.fill_(0.4)
    inputs = {"x": generator.normal(size=(256, 1)).astype(np.float32)}
    legal = {"button": generator.random((256, 3)) < 0.6, "target": generator.random((256, 3, 4)) < 0.6}
    for mask in legal.values():
        mask[..., 0] |= ~mask.any(axis=-1)
    actions, log_probs = Sampler(seat)(Inference(export(network))(inputs), legal, generator)
    with torch.no_grad():
        outputs = network({"x": torch.from_numpy(inputs["x"])})
        acts, masks = ({name: torch.from_numpy(x) for name, x in arrays.items()} for arrays in (actions, legal))
        found = evaluate(seat, network.heads, outputs.heads, acts, masks)
    for name in seat.heads:
        np.testing.assert_allclose(log_probs[name], found[name].log_prob.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
