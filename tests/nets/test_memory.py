"""Recurrent layers, and policies that have one: the equations, the ends of matches, the exported graph."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from lamarckian.actor.inference import Inference
from lamarckian.evaluate.plan import export
from lamarckian.mdp import Discrete, Role, Units, Vector
from lamarckian.nets import Policy, build
from lamarckian.nets.memory import Memory, MemorySettings

ROLE = Role({"x": Vector(5), "enemies": Units(3, 4)}, {"move": Discrete(3), "target": Discrete(4)}, ("score", "style"))


def policy(kind="lstm", critic="shared", **settings):
    return build(
        Policy, ROLE, 0, memory=MemorySettings(kind=kind, size=6, **settings), critic=critic, hidden=(8,), attention={"target": "enemies"},
        policy_gain=1.0,
    )  # fmt: skip


def steps(rows, columns):
    inputs = {"x": torch.randn(rows * columns, 5), "enemies": torch.randn(rows * columns, 3, 4)}
    return inputs | {"enemies.valid": torch.rand(rows * columns, 3) < 0.7}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_computes_what_torchs_layer_does(kind):
    """Torch's own layers, given the same weights, with no end of a match inside."""
    memory = Memory(5, MemorySettings(kind=kind, size=6), "orthogonal")
    twin = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](5, 6)
    with torch.no_grad():
        memory.seen.bias.normal_()
        twin.weight_ih_l0.copy_(memory.seen.weight)
        twin.bias_ih_l0.copy_(memory.seen.bias)
        twin.weight_hh_l0.copy_(memory.kept.weight)
        twin.bias_hh_l0.copy_(torch.zeros(24) if kind == "lstm" else memory.kept.bias.normal_())
    x, state = torch.randn(7, 3, 5), {part: torch.randn(3, 6) for part in memory.parts}
    given = tuple(part[None] for part in state.values())
    expected, after = twin(x, given if kind == "lstm" else given[0])
    hidden, now = memory(x.flatten(0, 1), state, torch.zeros(7, 3, dtype=torch.bool))
    torch.testing.assert_close(hidden.view(7, 3, 6), expected)
    for got, wanted in zip(now.values(), after if kind == "lstm" else [after], strict=True):
        torch.testing.assert_close(got, wanted[0])


def test_an_lstm_step_by_hand():
    """One unit: σ(0) = 1/2, tanh(1) = 0.76159; with all weights 0, biases i = 0, f = 1, g = 1, o = 0."""
    memory = Memory(1, MemorySettings(size=1), "orthogonal")
    with torch.no_grad():
        memory.seen.weight.zero_(), memory.kept.weight.zero_()
        memory.seen.bias.copy_(torch.tensor([0.0, 1.0, 1.0, 0.0]))
    h, state = memory(torch.ones(1, 1), {"h": torch.zeros(1, 1), "c": torch.full((1, 1), 2.0)})
    c = 2.0 / (1 + np.exp(-1.0)) + 0.5 * np.tanh(1.0)
    assert state["c"].item() == pytest.approx(c)
    assert h.item() == state["h"].item() == pytest.approx(0.5 * np.tanh(c))


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_two_matches_in_one_column_are_as_each_alone(kind, critic):
    net, inputs = policy(kind, critic), steps(7, 2)
    state = {name: torch.randn(2, 6) for name in net.state}
    first = torch.zeros(7, 2, dtype=torch.bool)
    first[3] = True
    whole = net(inputs, state, first)
    early = net({name: x[:6] for name, x in inputs.items()}, state, first[:3])
    none = {name: torch.zeros(2, 6) for name in net.state}
    late = net({name: x[6:] for name, x in inputs.items()}, none, torch.zeros(4, 2, dtype=torch.bool))
    torch.testing.assert_close(whole.value, torch.cat([early.value, late.value]))
    for name in ROLE.heads:
        torch.testing.assert_close(whole.heads[name].logits, torch.cat([early.heads[name].logits, late.heads[name].logits]))
    for name, x in late.state.items():
        torch.testing.assert_close(whole.state[name], x)


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_onnx_runtime_step_by_step_equals_torch_at_once(kind, critic):
    net, inputs = policy(kind, critic), steps(9, 4)
    state = {name: torch.randn(4, 6) for name in net.state}
    first = torch.rand(9, 4) < 0.2
    outputs = net(inputs, state, first)
    infer = Inference(export(net))
    now = {name: x.numpy() for name, x in state.items()}
    for t in range(9):
        now = {f"state.{name}": np.where(first[t, :, None], 0.0, x).astype(np.float32) for name, x in now.items()}
        got = infer({**{name: x.unflatten(0, (9, 4))[t].numpy() for name, x in inputs.items()}, **now})
        now = {name: got[f"after.{name}"] for name in net.state}
        np.testing.assert_allclose(got["value"], outputs.value.unflatten(0, (9, 4))[t].detach(), atol=1e-5)
        for name in ROLE.heads:
            expected = outputs.heads[name].logits.unflatten(0, (9, 4))[t].detach()
            np.testing.assert_allclose(got[f"head.{name}.logits"], expected, atol=1e-5, rtol=1e-5)
    for name, x in outputs.state.items():
        np.testing.assert_allclose(now[name], x.detach(), atol=1e-5)


def test_gradients_reach_back_as_far_as_they_may():
    """Of the last output with respect to each input: nothing before the match began, nothing from beyond the truncation."""

    def reach(truncation, first):
        memory = Memory(2, MemorySettings(size=3, truncation=truncation), "orthogonal")
        x = torch.randn(8, 2, requires_grad=True)
        hidden, _ = memory(x, {"h": torch.randn(1, 3), "c": torch.randn(1, 3)}, first)
        hidden[-1].sum().backward()
        return (x.grad != 0).any(-1).tolist()

    none = torch.zeros(8, 1, dtype=torch.bool)
    assert reach(None, none) == [True] * 8
    assert reach(3, none) == [False] * 6 + [True] * 2
    begun = none.clone()
    begun[5] = True
    assert reach(None, begun) == [False] * 5 + [True] * 3


def test_settings_are_checked():
    for wrong in ({"kind": "rnn"}, {"size": 0}, {"truncation": 0}, {"layers": 2}):
        with pytest.raises(ValidationError):
            MemorySettings(**wrong)
