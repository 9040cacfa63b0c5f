"""Q networks: the dueling sum, what is greedy and how likely, and the graph that actors run."""

import numpy as np
import onnx
import pytest
import torch

from lamarckian.actor.inference import Inference
from lamarckian.evaluate.plan import export
from lamarckian.mdp import Discrete, Role, Units, Vector
from lamarckian.nets import FlatParameters, QNetwork, Quality, build, evaluate, export_onnx, mode, sample
from tests.nets.roles import INPUTS, SMALL, draw

HEADS = {"move": Discrete(3), "target": Discrete(4, masked=True, given="move", active=(True, False, True))}
BATTLE = Role({"x": Vector(3), "enemies": Units(4, 2)}, {"target": Discrete(5)})


def network(role: Role, **settings) -> QNetwork:
    return build(QNetwork, role, 0, **{"head_gain": 1.0} | SMALL | settings)


@pytest.mark.parametrize("settings", [{}, {"dueling": False}, {"streams": (16,), "hidden": ()}], ids=["plain", "no duel", "streams"])
@pytest.mark.parametrize("kind", INPUTS)
def test_the_graph_computes_what_the_network_computes(kind, settings):
    role = Role(INPUTS[kind], HEADS, ("score", "style"))
    net = network(role, **settings)
    net.epsilon.fill_(0.25)
    model = onnx.load_from_string(export_onnx(net))
    assert {entry.name for entry in model.graph.initializer} == dict(net.named_parameters()).keys()
    inference = Inference(export(net))
    for size in (1, 9):
        inputs = draw(role, size)
        outputs, found = net(inputs), inference({name: x.numpy() for name, x in inputs.items()})
        assert found["value"].shape == (size, 2)
        np.testing.assert_allclose(found["value"], outputs.value.detach().numpy(), atol=1e-5)
        for name, quality in outputs.heads.items():
            np.testing.assert_allclose(found[f"head.{name}.q"], quality.q.detach().numpy(), atol=1e-5)
            np.testing.assert_array_equal(found[f"head.{name}.epsilon"], np.full((size, 1), 0.25, np.float32))


def test_dueling_by_hand():
    role = Role({"x": Vector(3)}, {"a": Discrete(3), "b": Discrete(2)})
    net, inputs = network(role), draw(role, 5)
    features = net.encoder(inputs).features
    value = net.value(features)
    for name, quality in net(inputs).heads.items():
        advantages = net.heads[name].output(features)
        torch.testing.assert_close(quality.q, value + advantages - advantages.mean(-1, keepdim=True))
        torch.testing.assert_close(quality.q.mean(-1, keepdim=True), value)
    best = [quality.q.max(-1).values for quality in net(inputs).heads.values()]
    torch.testing.assert_close(net(inputs).value.squeeze(-1), sum(best) / 2)
    assert network(role, dueling=False).value is None


def test_units_that_are_not_valid_are_left_out_of_the_mean_and_never_chosen():
    net, inputs = network(BATTLE, attention={"target": "enemies"}), draw(BATTLE, 64)
    inputs["enemies.valid"][:] = torch.rand(64, 4) < 0.5
    quality = net(inputs).heads["target"]
    possible = torch.cat([inputs["enemies.valid"], torch.ones(64, 1, dtype=torch.bool)], -1)
    value = net.value(net.encoder(inputs).features).squeeze(-1)
    mean = torch.where(possible, quality.q, 0.0).sum(-1) / possible.sum(-1)
    torch.testing.assert_close(mean, value, atol=1e-4, rtol=1e-4)
    drawn = sample(BATTLE, net.heads, {"target": quality}, {})["target"]  # ε is 1 at first
    assert possible.gather(-1, drawn.unsqueeze(-1)).all()
    quality.q[possible].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_probabilities_by_hand():
    role = Role({"x": Vector(3)}, {"a": Discrete(3, masked=True)})
    net = network(role)
    legal = {"a": torch.tensor([[True, True, True], [False, True, True], [False, False, True]])}
    parameters = {"a": Quality(torch.tensor([[3.0, 2.0, 1.0]] * 3), torch.full((3, 1), 0.3))}
    expected = torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.85, 0.15], [0.0, 0.0, 1.0]])
    for action in range(3):
        actions = {"a": torch.full((3,), action)}
        log_p = evaluate(role, net.heads, parameters, actions, legal)["a"].log_prob
        torch.testing.assert_close(log_p.exp(), expected[:, action])
    assert mode(role, net.heads, parameters, legal)["a"].tolist() == [0, 1, 2]


def test_epsilon_lies_among_the_flat_parameters_but_has_no_gradient():
    role = Role({"x": Vector(3)}, {"a": Discrete(3)})
    net = network(role)
    flat = FlatParameters(net)
    net.epsilon.fill_(0.125)
    entry = next(entry for entry in flat.manifest if entry.name == "epsilon")
    assert flat.array()[entry.offset] == 0.125
    net(draw(role, 4)).heads["a"].q.sum().backward()
    assert flat.gradient[entry.offset] == 0 and flat.gradient.abs().sum() > 0
