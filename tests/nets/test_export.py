"""The exported graph computes what the network computes."""

import numpy as np
import onnx
import onnxruntime
import pytest

from lamarckian.mdp import Discrete, Role, Units, Vector
from lamarckian.nets import FlatParameters, Policy, build, export_onnx
from lamarckian.nets.units import Embedding
from tests.nets.roles import INPUTS, SMALL, draw, role


@pytest.mark.parametrize(
    "settings",
    [{}, {"critic": "separate", "activation": "silu", "log_std": "network", "pooling": "mean", "vectors": (6,)}, {"hidden": ()}],
    ids=["plain", "separate", "no trunk"],
)
@pytest.mark.parametrize("kind", INPUTS)
def test_outputs_equal_torchs(kind, settings):
    spec = role(kind, ("score", "style"))
    policy = build(Policy, spec, 0, policy_gain=1.0, **SMALL | settings)
    session = onnxruntime.InferenceSession(export_onnx(policy), providers=["CPUExecutionProvider"])
    assert {entry.name for entry in session.get_inputs()} == set(spec.arrays())
    for size in (1, 9):
        inputs = draw(spec, size)
        outputs = policy(inputs)
        expected = {
            "head.move.logits": outputs.heads["move"].logits,
            "head.values.logits": outputs.heads["values"].logits,
            **{f"head.{name}.mean": outputs.heads[name].mean for name in ("aim", "power")},
            **{f"head.{name}.log_std": outputs.heads[name].log_std for name in ("aim", "power")},
            "value": outputs.value,
        }
        names = [entry.name for entry in session.get_outputs()]
        got = dict(zip(names, session.run(None, {name: x.numpy() for name, x in inputs.items()}), strict=True))
        assert got.keys() == expected.keys()
        for name, x in expected.items():
            np.testing.assert_allclose(got[name], x.detach().numpy(), atol=1e-5, rtol=1e-5, err_msg=name)


BATTLE = Role(
    {"x": Vector(3), "allies": Units(3, 4), "enemies": Units(5, 6)},
    {"ally": Discrete(3), "target": Discrete(10, masked=True), "move": Discrete(3)},
)
ATTENDING = {
    "attention": {"ally": "allies", "target": ("enemies", "allies")},
    "embeddings": {"enemies": Embedding(column=1, types=7, size=3), "allies": Embedding(column=0, types=2)},
    "key_size": 8,
}


@pytest.mark.parametrize("settings", [{}, {"pooling": "both", "critic": "separate"}, {"units": (), "pooling": "mean"}])
def test_attention_and_embeddings_equal_torchs(settings):
    policy = build(Policy, BATTLE, 0, policy_gain=1.0, **ATTENDING | settings)
    model = onnx.load_from_string(export_onnx(policy))
    onnx.checker.check_model(model)
    assert {entry.name for entry in model.graph.initializer} == dict(policy.named_parameters()).keys()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_outputs()]
    for size in (1, 9):
        inputs = draw(BATTLE, size)
        inputs["enemies"][..., 1].random_(7)
        inputs["allies"][..., 0].random_(2)
        inputs["allies.valid"][-1] = False
        outputs = policy(inputs)
        got = dict(zip(names, session.run(None, {name: x.numpy() for name, x in inputs.items()}), strict=True))
        assert got["head.target.logits"].shape == (size, 10)
        for name, head in outputs.heads.items():
            np.testing.assert_allclose(got[f"head.{name}.logits"], head.logits.detach().numpy(), atol=1e-5, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(got["value"], outputs.value.detach().numpy(), atol=1e-5, rtol=1e-5)


def test_initializers_are_the_parameters_by_name():
    policy = build(Policy, role("fusion"), 0, **SMALL)
    FlatParameters(policy)
    model = onnx.load_from_string(export_onnx(policy))
    onnx.checker.check_model(model)
    found = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    assert found.keys() == dict(policy.named_parameters()).keys()
    for name, parameter in policy.named_parameters():
        np.testing.assert_array_equal(found[name], parameter.detach().numpy())


def test_an_mlp_is_gemms_and_activations_and_nothing_else():
    policy = build(Policy, Role({"x": Vector(10)}, {"move": Discrete(3)}), 0)
    nodes = [node.op_type for node in onnx.load_from_string(export_onnx(policy)).graph.node]
    assert nodes == ["Gemm", "Tanh", "Gemm", "Tanh", "Gemm", "Gemm"]


@pytest.mark.parametrize("squashed", [True, False])
def test_the_graph_says_which_heads_are_squashed(squashed):
    session = onnxruntime.InferenceSession(export_onnx(build(Policy, role("vector"), 0, squashed=squashed)))
    assert session.get_modelmeta().custom_metadata_map["squashed"].split() == (["aim", "power"] if squashed else [])


def test_exporting_changes_nothing():
    policy = build(Policy, role("vector"), 0)
    before = {name: x.clone() for name, x in policy.state_dict().items()}
    export_onnx(policy)
    assert policy.training and all((before[name] == x).all() for name, x in policy.state_dict().items())
