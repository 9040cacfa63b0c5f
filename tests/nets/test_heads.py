"""The distributions of heads: against torch.distributions, and at the edges where they usually break."""

import math

import pytest
import torch
from torch.distributions import AffineTransform, Categorical, Independent, Normal, TanhTransform, TransformedDistribution

from lamarckian.errors import RecipeError
from lamarckian.mdp import Continuous, Discrete, Role, Vector
from lamarckian.nets import build, evaluate, mode, sample
from lamarckian.nets import heads as h
from lamarckian.nets.policy import Policy


def categorical(n: int) -> h.CategoricalHead:
    return h.CategoricalHead(Discrete(n), 4, "orthogonal", 1.0)


def gaussian(space: Continuous, squashed: bool = False, log_std: str = "parameter") -> h.GaussianHead:
    return h.GaussianHead("aim", space, 4, "orthogonal", 1.0, log_std=log_std, initial_log_std=-0.5, squashed=squashed)


def test_categorical_is_torchs():
    parameters, action = h.Categorical(torch.randn(7, 5)), torch.randint(5, (7,))
    log_prob, entropy = categorical(5).evaluate(parameters, action)
    reference = Categorical(logits=parameters.logits)
    torch.testing.assert_close(log_prob, reference.log_prob(action))
    torch.testing.assert_close(entropy, reference.entropy())


def test_masked_entries_have_no_probability_and_no_gradient():
    head, logits = categorical(4), torch.randn(6, 4, requires_grad=True)
    legal = torch.tensor([True, False, True, False]).expand(6, 4)
    every = torch.stack([head.evaluate(h.Categorical(logits), torch.full((6,), a), legal)[0] for a in range(4)], -1)
    assert (every.exp()[:, [1, 3]] == 0).all()
    torch.testing.assert_close(every.exp()[:, [0, 2]], torch.softmax(logits[:, [0, 2]], -1))
    log_prob, entropy = head.evaluate(h.Categorical(logits), torch.tensor([0, 2, 0, 2, 0, 2]), legal)
    torch.testing.assert_close(entropy, Categorical(logits=logits[:, [0, 2]]).entropy())
    (log_prob.sum() + entropy.sum()).backward()
    assert (logits.grad[:, [1, 3]] == 0).all()
    assert torch.isfinite(logits.grad).all() and (logits.grad[:, [0, 2]] != 0).all()
    drawn = torch.cat([head.sample(h.Categorical(logits), legal) for _ in range(50)])
    assert set(drawn.tolist()) == {0, 2}
    assert set(head.mode(h.Categorical(logits), legal).tolist()) <= {0, 2}


def test_one_legal_action_and_even_none_give_finite_numbers():
    logits = torch.randn(2, 3, requires_grad=True)
    legal = torch.tensor([[False, True, False], [False, False, False]])
    log_prob, entropy = categorical(3).evaluate(h.Categorical(logits), torch.tensor([1, 1]), legal)
    assert log_prob[0] == 0 and entropy[0] == 0
    (log_prob.sum() + entropy.sum()).backward()
    assert torch.isfinite(logits.grad).all()


def test_an_illegal_action_in_the_data_has_ratio_zero_and_not_nan():
    logits = torch.randn(1, 3, requires_grad=True)
    log_prob, _ = categorical(3).evaluate(h.Categorical(logits), torch.tensor([0]), torch.tensor([[False, True, True]]))
    assert log_prob.exp() == 0


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_gaussian_is_torchs(shape):
    head = gaussian(Continuous(-1.0, 1.0, shape))
    parameters = head(torch.randn(6, 4))
    action = torch.randn(6, *shape) * 3
    log_prob, entropy = head.evaluate(parameters, action)
    reference = Independent(Normal(parameters.mean, parameters.log_std.exp()), len(shape))
    torch.testing.assert_close(log_prob, reference.log_prob(action))
    torch.testing.assert_close(entropy, reference.entropy())
    assert log_prob.shape == entropy.shape == (6,)


def test_squashed_gaussian_is_torchs_transformed_one():
    head = gaussian(Continuous((-2.0, 0.0), (1.0, 10.0), (2,)), squashed=True)
    parameters = h.Gaussian(torch.randn(50, 2), torch.randn(50, 2) * 0.3)
    action = head.sample(parameters, generator=torch.Generator().manual_seed(1))
    reference = TransformedDistribution(
        Normal(parameters.mean, parameters.log_std.exp()), [TanhTransform(cache_size=1), AffineTransform(head.center, head.reach)]
    )
    log_prob, _ = head.evaluate(parameters, action)
    torch.testing.assert_close(log_prob, reference.log_prob(action).sum(-1), rtol=1e-3, atol=1e-3)
    assert (action > torch.tensor([-2.0, 0.0])).all() and (action < torch.tensor([1.0, 10.0])).all()


def test_squashed_density_integrates_to_one():
    head = gaussian(Continuous(-1.0, 3.0, (1,)), squashed=True)
    grid = torch.linspace(-1, 3, 40_001)[1:-1].unsqueeze(-1)
    parameters = h.Gaussian(torch.full_like(grid, 0.4), torch.full_like(grid, -0.7))
    density = head.evaluate(parameters, grid)[0].exp()
    assert torch.trapezoid(density, grid.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-3)


def test_squashed_entropy_is_the_mean_of_minus_log_density():
    head = gaussian(Continuous(-1.0, 3.0, (2,)), squashed=True)
    count = 200_000
    parameters = h.Gaussian(torch.tensor([0.8, -0.3]).expand(count, 2), torch.tensor([-0.2, 0.3]).expand(count, 2))
    log_prob, entropy = head.evaluate(parameters, head.sample(parameters, generator=torch.Generator().manual_seed(0)))
    assert entropy[0].item() == pytest.approx(-log_prob.mean().item(), abs=0.02)


def test_squashed_actions_at_and_beyond_the_bounds_are_finite():
    head = gaussian(Continuous(-1.0, 1.0, (1,)), squashed=True)
    mean = torch.tensor([[30.0], [-30.0], [0.0]], requires_grad=True)
    parameters = h.Gaussian(mean, torch.zeros(3, 1))
    log_prob, entropy = head.evaluate(parameters, torch.tensor([[1.0], [-1.0], [1.5]]))
    (log_prob + entropy).sum().backward()
    assert torch.isfinite(log_prob).all() and torch.isfinite(entropy).all() and torch.isfinite(mean.grad).all()
    assert head.mode(parameters).abs().max() < 1


def test_squashing_needs_bounds():
    with pytest.raises(RecipeError, match="aim"):
        gaussian(Continuous(-math.inf, math.inf, (1,)), squashed=True)


def test_log_std_is_a_parameter_or_an_output():
    features = torch.randn(5, 4) * 100
    assert torch.equal(gaussian(Continuous(-1.0, 1.0, (2,)))(features).log_std, torch.full((5, 2), -0.5))
    given = gaussian(Continuous(-1.0, 1.0, (2,)), log_std="network")(features).log_std
    assert given.std() > 0 and (given >= h.LOG_STD_RANGE[0]).all() and (given <= h.LOG_STD_RANGE[1]).all()


DEPENDENT = Role(
    {"x": Vector(3)},
    {
        "button": Discrete(3),
        "target": Discrete(4, masked=True, given="button", active=(False, True, True)),
        "lead": Continuous(-1.0, 1.0, (2,), given="target", active=(True, False, True, True)),
        "mood": Discrete(2, masked=True, given="button"),
    },
)


def dependent() -> tuple[Policy, dict, dict, dict]:
    policy = build(Policy, DEPENDENT, 3, policy_gain=1.0)
    parameters = policy({"x": torch.randn(6, 3)}).heads
    actions = {
        "button": torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32),
        "target": torch.tensor([0, 1, 2, 3, 0, 1], dtype=torch.int32),
        "lead": torch.randn(6, 2),
        "mood": torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32),
    }
    target = torch.tensor([[True] * 4, [True, True, False, False], [False, True, True, False]])
    mood = torch.tensor([[True, True], [False, True], [True, True]])
    return policy, parameters, actions, {"target": target.expand(6, 3, 4), "mood": mood.expand(6, 3, 2)}


def test_inactive_heads_have_neither_log_probability_nor_entropy():
    policy, parameters, actions, legal = dependent()
    evaluations = evaluate(DEPENDENT, policy.heads, parameters, actions, legal)
    assert evaluations["button"].active is None and evaluations["mood"].active is None
    assert evaluations["target"].active.tolist() == [False, True, True, False, True, True]
    # Target 1 makes no lead; and where there is no target, there is none either.
    assert evaluations["lead"].active.tolist() == [False, False, True, False, True, False]
    for name in ("target", "lead"):
        inactive = ~evaluations[name].active
        assert (evaluations[name].log_prob[inactive] == 0).all() and (evaluations[name].entropy[inactive] == 0).all()
        assert (evaluations[name].log_prob[~inactive] != 0).all()


def test_inactive_heads_have_no_gradient():
    policy, parameters, actions, legal = dependent()
    evaluations = evaluate(DEPENDENT, policy.heads, parameters, actions, legal)
    logits = parameters["target"].logits
    grad = torch.autograd.grad(evaluations["target"].log_prob.sum() + evaluations["target"].entropy.sum(), logits)[0]
    assert (grad[[0, 3]] == 0).all() and (grad[[1, 2, 4, 5]] != 0).any(-1).all()


def test_a_conditional_mask_gives_the_row_of_the_earlier_action():
    policy, parameters, actions, legal = dependent()
    evaluations = evaluate(DEPENDENT, policy.heads, parameters, actions, legal)
    rows = legal["target"][0][actions["button"].long()]
    expected = policy.heads["target"].evaluate(parameters["target"], actions["target"], rows)[0]
    active = evaluations["target"].active
    torch.testing.assert_close(evaluations["target"].log_prob[active], expected[active])
    assert evaluations["mood"].log_prob[1] == 0 and evaluations["mood"].entropy[1] == 0


def test_samples_and_modes_keep_to_the_masks():
    policy, parameters, _, legal = dependent()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        drawn = sample(DEPENDENT, policy.heads, parameters, legal, generator)
        assert legal["target"][torch.arange(6), drawn["button"], drawn["target"]].all()
        assert legal["mood"][torch.arange(6), drawn["button"], drawn["mood"]].all()
    best = mode(DEPENDENT, policy.heads, parameters, legal)
    assert legal["target"][torch.arange(6), best["button"], best["target"]].all()
    assert torch.equal(best["lead"], parameters["lead"].mean)


def test_valid_actions_are_counted_in_the_row_that_applies():
    role = Role({"x": Vector(1)}, {"a": Discrete(2), "b": Discrete(3, masked=True, given="a"), "c": Continuous(-1.0, 1.0, (1,))})
    mask = torch.tensor([[[True, False, False], [True, True, True]]]).expand(2, -1, -1)
    parameters = {"a": h.Categorical(torch.randn(2, 2)), "b": h.Categorical(torch.randn(2, 3)), "c": h.Gaussian(mask, mask)}
    counts = h.valid_counts(role, parameters, {"a": torch.tensor([0, 1]), "b": torch.tensor([0, 0])}, {"b": mask})
    assert {name: count.tolist() for name, count in counts.items()} == {"a": [2, 2], "b": [1, 3]}


def test_ranks_count_what_is_likelier_and_legal():
    role = Role({"x": Vector(1)}, {"a": Discrete(4, masked=True), "c": Continuous(-1.0, 1.0, (1,))})
    policy = build(Policy, role, 0)
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0]] * 3)
    legal = torch.tensor([[True] * 4, [True] * 4, [False, True, True, True]])
    actions = {"a": torch.tensor([0, 3, 2])}
    found = h.ranks(role, policy.heads, {"a": h.Categorical(logits), "c": h.Gaussian(logits, logits)}, actions, {"a": legal})
    assert {name: rank.tolist() for name, rank in found.items()} == {"a": [0, 3, 1]}
