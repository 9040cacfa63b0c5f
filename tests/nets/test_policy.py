"""The network: what goes in, what comes out, and how it starts."""

import typing

import pytest
import torch
from pydantic import TypeAdapter, create_model

from lamarckian import plugins
from lamarckian.errors import RecipeError
from lamarckian.mdp import Discrete, Image, Role, Units, Vector
from lamarckian.nets import Policy, build, parameter_count, summary
from lamarckian.nets.layers import Mlp, initialize
from lamarckian.plugins import Section
from lamarckian.recipe.document import complete
from tests.nets.roles import INPUTS, SMALL, draw, role


@pytest.mark.parametrize("critic", ["shared", "separate"])
@pytest.mark.parametrize("kind", INPUTS)
def test_shapes_and_types(kind, critic):
    spec = role(kind, ("score", "style", "speed"))
    policy = build(Policy, spec, 0, critic=critic, **SMALL)
    outputs = policy(draw(spec, 6))
    shapes = {name: [tuple(x.shape) for x in head] for name, head in outputs.heads.items()}
    assert shapes == {"move": [(6, 3)], "values": [(6, 4)], "aim": [(6, 2), (6, 2)], "power": [(6,), (6,)]}
    assert outputs.value.shape == (6, 3) and outputs.state == {}


@pytest.mark.parametrize("kind", INPUTS)
def test_under_autocast_outputs_are_float32_and_close(kind):
    spec = role(kind)
    policy = build(Policy, spec, 0, policy_gain=1.0, **SMALL)
    inputs = draw(spec, 16)
    exact = policy(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = policy(inputs)
    assert rough.value.dtype == rough.heads["move"].logits.dtype == rough.heads["aim"].mean.dtype == torch.float32
    torch.testing.assert_close(rough.value, exact.value, atol=0.05, rtol=0.05)
    torch.testing.assert_close(rough.heads["move"].logits, exact.heads["move"].logits, atol=0.05, rtol=0.05)


def test_small_differences_of_inputs_survive_bfloat16():
    mlp = Mlp(1, (4,), "relu", "orthogonal")
    with torch.no_grad():
        mlp.layers[0].weight.fill_(100)
        mlp.layers[0].bias.fill_(-80)
        x = torch.tensor([[0.7995], [0.8005]])  # one and the same in bfloat16, on the two sides of the bend
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = mlp(x)
    assert (out[0] == 0).all() and out[1].tolist() == pytest.approx([0.05] * 4, rel=0.05)


def test_channels_last_images_give_the_same():
    spec = role("image")
    policy, inputs = build(Policy, spec, 0, **SMALL), draw(spec, 4)
    last = {"camera": inputs["camera"].contiguous(memory_format=torch.channels_last)}
    torch.testing.assert_close(policy(inputs).value, policy(last).value)


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone():
    before = torch.get_rng_state()
    a, b, c = (build(Policy, role("fusion"), seed, **SMALL) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.critic.weight, c.critic.weight)


def test_the_first_policy_is_close_to_uniform():
    spec = role("vector")
    heads = build(Policy, spec, 0)(draw(spec, 100)).heads
    assert torch.softmax(heads["move"].logits, -1).sub(1 / 3).abs().max() < 0.02
    assert heads["aim"].mean.abs().max() < 0.1 and (heads["aim"].log_std == 0).all()


@pytest.mark.parametrize("scheme, deviation", [("orthogonal", 0.0884), ("xavier", 0.0722), ("he", 0.0884), ("lecun", 0.0625)])
def test_initialisations(scheme, deviation):
    layer = torch.nn.Linear(256, 128)
    initialize(layer, scheme)
    assert layer.weight.std().item() == pytest.approx(deviation, rel=0.03) and (layer.bias == 0).all()
    small = torch.nn.Linear(256, 128)
    initialize(small, scheme, 0.01)
    assert small.weight.std().item() < 0.001


def test_orthogonal_rows_are_orthogonal():
    layer = torch.nn.Conv2d(4, 8, 3)
    initialize(layer, "orthogonal", 1.0)
    rows = layer.weight.flatten(1)
    torch.testing.assert_close(rows @ rows.t(), torch.eye(8), atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_units_neither_their_order_nor_the_invalid_ones_matter(pooling):
    policy = build(Policy, Role({"units": Units(4, 3)}, {"move": Discrete(2)}), 0, pooling=pooling)
    units, valid = torch.randn(5, 4, 3), torch.tensor([True, False, True, True]).expand(5, 4)
    value = policy({"units": units, "units.valid": valid}).value
    changed = units.clone()
    changed[:, 1] = 1e6
    torch.testing.assert_close(policy({"units": changed, "units.valid": valid}).value, value)
    order = [3, 1, 0, 2]
    torch.testing.assert_close(policy({"units": units[:, order], "units.valid": valid[:, order]}).value, value)
    none = policy({"units": units, "units.valid": torch.zeros(5, 4, dtype=torch.bool)}).value
    assert torch.isfinite(none).all() and (none == none[0]).all()


def test_mean_pooling_by_hand():
    policy = build(Policy, Role({"units": Units(3, 1)}, {"move": Discrete(2)}), 0, pooling="mean", units=(), hidden=())
    value = policy({"units": torch.tensor([[[1.0], [9.0], [2.0]]]), "units.valid": torch.tensor([[True, False, True]])}).value
    torch.testing.assert_close(value, 1.5 * policy.critic.weight)


def test_a_separate_critic_shares_nothing():
    spec = role("vector")
    shared, separate = (build(Policy, spec, 0, critic=critic, hidden=(8,)) for critic in ("shared", "separate"))
    assert parameter_count(separate) == parameter_count(shared) + 10 * 8 + 8
    separate(draw(spec, 3)).value.sum().backward()
    assert all(p.grad is None for p in separate.encoder.parameters())


def test_an_image_too_small_is_refused_by_name():
    with pytest.raises(RecipeError, match=r"camera.*convolution 2 of 3"):
        build(Policy, Role({"camera": Image(1, 10, 10)}, {"move": Discrete(2)}), 0)


def test_summary_shows_every_parameter_and_their_sum():
    policy = build(Policy, Role({"x": Vector(10)}, {"move": Discrete(3)}), 0)
    lines = summary(policy).splitlines()
    assert len(lines) == 9 and lines[-1].split() == ["all", "36,228"] and parameter_count(policy) == 36_228
    assert lines[0].split() == ["encoder.trunk.layers.0.weight", "256×10", "2,560"]


def test_the_signature_is_a_schema():
    hints = typing.get_type_hints(Policy.__init__, include_extras=True)
    fields = {name: (hint, ...) for name, hint in hints.items() if name not in ("role", "return")}
    schema = TypeAdapter(create_model("Network", **fields)).json_schema()
    assert schema["properties"]["activation"]["enum"] == ["tanh", "relu", "elu", "silu"]
    assert set(schema["$defs"]["Convolution"]["properties"]) == {"channels", "kernel", "stride", "padding"}
    assert set(schema["$defs"]["Embedding"]["properties"]) == {"column", "types", "size"}


def test_a_recipe_can_say_which_heads_attend_and_which_units_have_types():
    section = Section(name="policy", attention={"target": ["a", "b"], "ally": "a"}, embeddings={"b": {"column": 1, "types": 3}}, hidden=[8])
    section = complete("network", section)
    assert section.settings["embeddings"] == {"b": {"column": 1, "types": 3, "size": 8}} and section.settings["key_size"] == 32
    role = Role({"a": Units(2, 3), "b": Units(3, 4)}, {"target": Discrete(5), "ally": Discrete(3), "move": Discrete(2)})
    policy = plugins.build("network", complete("network", section), role)
    assert policy.encoder.inputs["b"].embedding.table.weight.shape == (3, 8)
    assert list(policy.heads["target"].attention.keys) == ["a", "b"] and policy.heads["move"].attention is None
    assert policy.heads["target"].output is None and policy.heads["ally"].output.weight.shape == (1, 8)
    for wrong in ({"attention": {"target": []}}, {"embeddings": {"b": {"column": -1, "types": 3}}}, {"key_size": 0}):
        with pytest.raises(RecipeError, match=f"network.{next(iter(wrong))}"):
            complete("network", Section(name="policy", **wrong))
