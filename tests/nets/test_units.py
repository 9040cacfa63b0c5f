"""Sets of units: how they are pooled, what their types add, and how heads choose among them."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lamarckian.actor.inference import Inference
from lamarckian.actor.sampling import Sampler
from lamarckian.errors import ContractError, RecipeError
from lamarckian.evaluate.plan import export
from lamarckian.mdp import Continuous, Discrete, Role, Units, Vector
from lamarckian.nets import Policy, build, evaluate, parameter_count, sample
from lamarckian.nets.heads import valid_counts
from lamarckian.nets.units import Embedding
from tests.nets.roles import draw

INPUTS = {"x": Vector(3), "allies": Units(3, 4), "enemies": Units(5, 6)}
SMALL = {"hidden": (16,), "units": (12,), "key_size": 8, "policy_gain": 1.0}


def role(**heads: Discrete | Continuous) -> Role:
    return Role(INPUTS, heads)


AIMED = role(target=Discrete(5))
AIMED_OR_NOT = role(target=Discrete(8, masked=True))
ANYBODY = role(target=Discrete(8), move=Discrete(3))


def policy(role: Role = AIMED, attention=None, **settings) -> Policy:
    return build(Policy, role, 0, **SMALL | {"attention": attention or {"target": "enemies"}} | settings)


def logits(net: Policy, inputs: dict[str, Tensor]) -> Tensor:
    return net(inputs).heads["target"].logits


def probabilities(net: Policy, inputs: dict[str, Tensor]) -> Tensor:
    return torch.softmax(logits(net, inputs), -1)


def test_the_logits_by_hand():
    """q·k_u / √key_size, from the features and the encodings, invalid units far below."""
    net = policy()
    inputs = draw(AIMED, 7)
    features, units = net.encoder(inputs)
    attention = net.heads["target"].attention
    keys = units["enemies"].encodings @ attention.keys["enemies"].weight.T
    expected = torch.einsum("bk,buk->bu", attention.query(features), keys) / 8**0.5
    valid = inputs["enemies.valid"]
    torch.testing.assert_close(logits(net, inputs)[valid], expected[valid])
    assert (logits(net, inputs)[~valid] < -1e12).all()


def test_units_that_are_not_there_do_not_count_as_a_choice():
    """Of five units and three other actions; masks come first, and where they leave invalid units only, these can be chosen."""
    net = policy(AIMED_OR_NOT)
    inputs = draw(AIMED_OR_NOT, 4)
    inputs["enemies.valid"][:] = torch.tensor([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
    legal = torch.ones(4, 8, dtype=torch.bool)
    legal[2, 3:] = False
    legal[3, [0, 5, 6, 7]] = False
    counts = valid_counts(AIMED_OR_NOT, net(inputs).heads, {"target": torch.zeros(4)}, {"target": legal})
    assert counts["target"].tolist() == [6, 3, 3, 4]


@pytest.mark.parametrize("pooling", ["max", "mean", "both"])
def test_permuting_the_units_permutes_the_distribution_and_leaves_the_value(pooling):
    net, inputs, order = policy(pooling=pooling), draw(AIMED, 9), torch.tensor([3, 0, 4, 1, 2])
    inputs["enemies.valid"][:, 0] = True
    permuted = inputs | {name: inputs[name][:, order] for name in ("enemies", "enemies.valid")}
    torch.testing.assert_close(probabilities(net, permuted), probabilities(net, inputs)[:, order])
    torch.testing.assert_close(net(permuted).value, net(inputs).value)
    assert probabilities(net, inputs).std() > 0.05


def test_both_is_max_then_mean_of_the_same_encodings():
    nets = {pooling: policy(pooling=pooling) for pooling in ("max", "mean", "both")}
    inputs = draw(AIMED, 6)
    pooled = {}
    for pooling, net in nets.items():
        net.load_state_dict(nets["max"].state_dict() if pooling != "both" else net.state_dict())
        encoder = net.encoder.inputs["enemies"]
        encoder.load_state_dict(nets["max"].encoder.inputs["enemies"].state_dict())
        pooled[pooling] = encoder(inputs["enemies"], inputs["enemies.valid"])[1]
    torch.testing.assert_close(pooled["both"], torch.cat([pooled["max"], pooled["mean"]], -1))


def test_an_invalid_unit_never_gets_probability_nor_gradient_and_what_it_holds_does_not_matter():
    net, inputs = policy(), draw(AIMED, 200)
    valid = inputs["enemies.valid"]
    valid[:, 2] = True
    p = probabilities(net, inputs)
    assert (p[~valid] == 0).all() and (p[valid] > 0).all()
    changed = inputs | {"enemies": torch.where(valid.unsqueeze(-1), inputs["enemies"], 1e6)}
    torch.testing.assert_close(probabilities(net, changed), p)
    inputs["enemies"].requires_grad_(True)
    log_prob, entropy = net.heads["target"].evaluate(net(inputs).heads["target"], torch.full((200,), 2))
    (log_prob + entropy).sum().backward()
    gradient = inputs["enemies"].grad
    assert torch.isfinite(gradient).all() and (gradient[~valid] == 0).all()
    contested = valid & (valid.sum(-1, keepdim=True) > 1)  # alone, a unit is certain
    assert (gradient[contested] != 0).any(-1).all()


def test_units_of_several_inputs_come_in_order_and_then_the_choices_of_none():
    net, inputs = policy(role(target=Discrete(10)), {"target": ("enemies", "allies")}), draw(AIMED, 4)
    for name in ("enemies.valid", "allies.valid"):
        inputs[name][:] = True
    inputs["enemies.valid"][:, 1] = False
    inputs["allies.valid"][:, 0] = False
    p = probabilities(net, inputs)
    assert p.shape == (4, 10) and ((p == 0) == torch.tensor([False, True, False, False, False, True, False, False, False, False])).all()
    features = net.encoder(inputs).features
    torch.testing.assert_close(logits(net, inputs)[:, 8:], net.heads["target"].output(features))
    order = torch.tensor([2, 1, 0])
    permuted = inputs | {name: inputs[name][:, order] for name in ("allies", "allies.valid")}
    torch.testing.assert_close(probabilities(net, permuted), p[:, [0, 1, 2, 3, 4, 7, 6, 5, 8, 9]])


def test_without_any_valid_unit_a_choice_of_none_is_certain_and_without_one_numbers_are_finite():
    inputs = draw(AIMED, 3)
    inputs["enemies.valid"][:] = False
    assert (probabilities(policy(role(target=Discrete(6))), inputs) == torch.tensor([0.0, 0, 0, 0, 0, 1])).all()
    net = policy()
    log_prob, entropy = net.heads["target"].evaluate(net(inputs).heads["target"], torch.zeros(3, dtype=torch.int32))
    (log_prob.sum() + entropy.sum()).backward()
    assert torch.isfinite(log_prob).all()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_gradients_reach_the_query_and_the_keys_from_the_very_first():
    net, inputs = policy(ANYBODY, {"target": ("allies", "enemies")}, policy_gain=0.01), draw(ANYBODY, 64)
    inputs["enemies.valid"][:, 0] = True
    target = net.heads["target"]
    target.evaluate(net(inputs).heads["target"], torch.full((64,), 3))[0].sum().backward()
    for parameter in target.parameters():
        assert parameter.grad.abs().max() > 1e-3
    assert target.output is None and (net.encoder.trunk.layers[0].weight.grad != 0).any()


def test_the_first_policy_is_close_to_uniform_among_the_valid():
    inputs = draw(AIMED, 50)
    inputs["enemies.valid"][:, 0] = True
    p = probabilities(policy(policy_gain=0.01), inputs)
    uniform = inputs["enemies.valid"] / inputs["enemies.valid"].sum(-1, keepdim=True)
    assert (p - uniform).abs().max() < 0.03


def test_under_autocast_logits_are_float32_and_close():
    net, inputs = policy(), draw(AIMED, 16)
    inputs["enemies.valid"][:] = True
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = logits(net, inputs)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, logits(net, inputs), atol=0.05, rtol=0.05)


def test_a_separate_critic_does_not_attend():
    net = policy(critic="separate")
    net(draw(AIMED, 4)).value.sum().backward()
    assert all(p.grad is None for p in net.heads["target"].parameters())


CHAIN = Role(
    INPUTS,
    {
        "button": Discrete(3),
        "target": Discrete(6, masked=True, given="button", active=(False, True, True)),
        "lead": Continuous(-1.0, 1.0, (2,), given="target", active=(True,) * 5 + (False,)),
        "friend": Discrete(3, given="button", active=(True, False, False)),
    },
)
AMONG = {"target": "enemies", "friend": ("allies",)}


def chain(size: int) -> tuple[Policy, dict[str, Tensor], Tensor]:
    """The policy, inputs, and a mask `[size, 3, 6]` in which each row leaves a valid unit or none."""
    net, inputs = policy(CHAIN, AMONG, log_std="network"), draw(CHAIN, size)
    inputs["allies.valid"][:, 1] = True
    mask = torch.rand(size, 3, 6) < 0.5
    mask[..., 5] |= ~(mask[..., :5] & inputs["enemies.valid"].unsqueeze(1)).any(-1)
    return net, inputs, mask


def test_a_mask_that_depends_on_the_button_and_attention_bind_together():
    """Each target is legal in the row of the button, and valid; its probability is that of a choice among those alone."""
    net, inputs, mask = chain(500)
    parameters = net(inputs).heads
    actions = sample(CHAIN, net.heads, parameters, {"target": mask}, torch.Generator().manual_seed(0))
    rows = mask[torch.arange(500), actions["button"]]
    allowed = rows & torch.cat([inputs["enemies.valid"], torch.ones(500, 1, dtype=torch.bool)], -1)
    assert allowed.gather(1, actions["target"].unsqueeze(1)).all()
    assert inputs["allies.valid"].gather(1, actions["friend"].unsqueeze(1)).all()
    found = evaluate(CHAIN, net.heads, parameters, actions, {"target": mask})
    active = actions["button"] > 0
    p = torch.where(allowed, parameters["target"].logits, -torch.inf).softmax(-1)
    expected = p.gather(1, actions["target"].unsqueeze(1)).squeeze(1).log()
    torch.testing.assert_close(found["target"].log_prob[active], expected[active])
    torch.testing.assert_close(found["target"].entropy[active], torch.special.entr(p).sum(-1)[active])
    assert (found["target"].log_prob[~active] == 0).all() and (found["target"].entropy[~active] == 0).all()
    assert torch.equal(found["target"].active, active) and torch.equal(found["friend"].active, ~active)
    assert torch.equal(found["lead"].active, active & (actions["target"] < 5))
    assert (found["friend"].log_prob[active] == 0).all() and (found["friend"].entropy[active] == 0).all()


def test_an_inactive_head_that_attends_moves_nothing():
    net, inputs, mask = chain(40)
    parameters = net(inputs).heads
    actions = sample(CHAIN, net.heads, parameters, {"target": mask}) | {"button": torch.zeros(40, dtype=torch.int64)}
    found = evaluate(CHAIN, net.heads, parameters, actions, {"target": mask})
    (found["target"].log_prob + found["target"].entropy + found["friend"].log_prob).sum().backward()
    assert all((p.grad == 0).all() for p in net.heads["target"].parameters())
    assert (net.heads["friend"].attention.query.weight.grad != 0).any()


@pytest.mark.parametrize("greedy", [False, True])
def test_actors_without_torch_draw_and_count_as_the_learner_does(greedy):
    net, inputs, mask = chain(400)
    inference = Inference(export(net))
    outputs = inference({name: x.numpy() for name, x in inputs.items()})
    actions, log_probs = Sampler(CHAIN, greedy=greedy)(outputs, {"target": mask.numpy()}, np.random.default_rng(0))
    given = {name: torch.from_numpy(action) for name, action in actions.items()}
    with torch.no_grad():
        found = evaluate(CHAIN, net.heads, net(inputs).heads, given, {"target": mask})
    for name in CHAIN.heads:
        np.testing.assert_allclose(log_probs[name], found[name].log_prob.numpy(), rtol=2e-3, atol=2e-3, err_msg=name)
    valid = np.concatenate([inputs["enemies.valid"].numpy(), np.ones((400, 1), bool)], -1)
    assert valid[np.arange(400), actions["target"]].all()


def test_a_mask_that_leaves_only_invalid_units_is_kept_to_by_actor_and_learner_alike():
    """The game's mask comes first: what it forbids never comes, whichever units are valid."""
    net, inputs = policy(role(target=Discrete(5, masked=True))), draw(AIMED, 300)
    inputs["enemies.valid"][:] = torch.tensor([True, True, True, False, False])
    mask = torch.tensor([False, False, False, True, True]).expand(300, 5)
    outputs = Inference(export(net))({name: x.numpy() for name, x in inputs.items()})
    actions, log_probs = Sampler(net.role)(outputs, {"target": mask.numpy()}, np.random.default_rng(0))
    assert set(actions["target"]) == {3, 4}
    np.testing.assert_allclose(log_probs["target"], np.log(0.5), rtol=1e-6)
    found = net.heads["target"].evaluate(net(inputs).heads["target"], torch.from_numpy(actions["target"]), mask)
    np.testing.assert_allclose(found[0].detach(), np.log(0.5), rtol=1e-6)


TYPED = {"embeddings": {"enemies": Embedding(column=2, types=4, size=5)}}


def typed(size: int) -> dict[str, Tensor]:
    inputs = draw(AIMED, size)
    inputs["enemies"][..., 2] = torch.randint(4, (size, 5)).float()
    return inputs


def test_a_types_embedding_stands_behind_the_other_columns_in_place_of_the_number():
    net, inputs = policy(**TYPED, units=(), attention={"target": "enemies"}), typed(3)
    table = net.encoder.inputs["enemies"].embedding.table.weight
    assert table.shape == (4, 5)
    encodings = net.encoder(inputs).units["enemies"].encodings
    kinds = inputs["enemies"][..., 2].long()
    torch.testing.assert_close(encodings, torch.cat([inputs["enemies"][..., [0, 1, 3, 4, 5]], table[kinds]], -1))


@pytest.mark.parametrize("column", [0, 5])
def test_the_type_may_be_in_any_column(column):
    net, inputs = policy(embeddings={"enemies": Embedding(column=column, types=4, size=2)}, units=()), draw(AIMED, 2)
    inputs["enemies"][..., column] = 3.0
    encodings = net.encoder(inputs).units["enemies"].encodings
    others = [index for index in range(6) if index != column]
    torch.testing.assert_close(encodings[..., :5], inputs["enemies"][..., others])
    torch.testing.assert_close(encodings[0, 0, 5:], net.encoder.inputs["enemies"].embedding.table.weight[3])


def test_an_embedding_learns_from_the_units_of_its_type_alone():
    net, inputs = policy(**TYPED), typed(8)
    inputs["enemies"][..., 2] = torch.tensor([0.0, 3.0, 0.0, 3.0, 0.0])
    inputs["enemies.valid"][:] = torch.tensor([True, True, True, True, False])
    net(inputs).value.sum().backward()
    gradient = net.encoder.inputs["enemies"].embedding.table.weight.grad
    assert (gradient[[1, 2]] == 0).all() and (gradient[[0, 3]] != 0).any(-1).all()


@pytest.mark.parametrize("kind", [4.0, -1.0, float("nan")])
def test_a_type_out_of_range_is_named_unless_its_unit_is_invalid(kind):
    net, inputs = policy(**TYPED), typed(3)
    inputs["enemies"][1, 2, 2] = kind
    inputs["enemies.valid"][1, 2] = True
    with pytest.raises(
        ContractError, match=rf"'enemies', column 2, holds the type {kind:g}; the network knows 0 to 3; .*embeddings.enemies.types"
    ):
        net(inputs)
    inputs["enemies.valid"][1, 2] = False
    if kind == kind:  # an invalid unit holds what it likes, as long as it is finite
        assert torch.isfinite(net(inputs).value).all()


def test_an_exported_graph_takes_the_nearest_type():
    net, inputs = policy(**TYPED), typed(6)
    run = Inference(export(net))
    near = {name: x.numpy().copy() for name, x in inputs.items()}
    near["enemies"][..., 2] = np.where(np.arange(5) % 2, 0, 3)
    far = near | {"enemies": near["enemies"].copy()}
    far["enemies"][..., 2] = np.where(np.arange(5) % 2, -7, 99)
    expected = run(near)
    for name, x in run(far).items():
        np.testing.assert_array_equal(x, expected[name])


def test_separate_critics_have_embeddings_of_their_own():
    shared, separate = (policy(critic=critic, **TYPED) for critic in ("shared", "separate"))
    assert parameter_count(separate) == parameter_count(shared) + parameter_count(shared.encoder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": {"targt": "enemies"}}, r"`attention`: 'targt' is no discrete head .* target, move"),
        ({"attention": {"aim": "enemies"}}, r"`attention`: 'aim' is no discrete head"),
        ({"attention": {"target": "foes"}}, r"`attention.target`: 'foes' is no input of units; .* allies, enemies"),
        ({"attention": {"target": "x"}}, r"`attention.target`: 'x' is no input of units"),
        ({"attention": {"target": ("allies", "allies")}}, r"`attention.target`: given allies, allies; each input may come once"),
        ({"attention": {"move": "enemies"}}, r"`attention.move`: enemies has 5 units, but head 'move' only 3 actions"),
        ({"attention": {"move": ("allies", "enemies")}}, r"allies and enemies have 8 units"),
        ({"embeddings": {"x": Embedding(column=0, types=2)}}, r"`embeddings`: 'x' is no input of units"),
        ({"embeddings": {"allies": Embedding(column=4, types=2)}}, r"input 'allies' has 4 columns, 0 to 3; there is no column 4"),
    ],
)
def test_what_does_not_fit_the_game_is_refused_by_name(settings, message):
    spec = role(target=Discrete(8), move=Discrete(3), aim=Continuous(-1.0, 1.0, (2,)))
    with pytest.raises(RecipeError, match=message):
        build(Policy, spec, 0, **settings)
