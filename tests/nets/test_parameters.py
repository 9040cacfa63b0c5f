"""Parameters as one flat vector."""

import numpy as np
import pytest
import torch

from lamarckian.nets import FlatParameters, Policy, build, flatten, manifest, parameter_count
from lamarckian.nets.parameters import assign
from tests.nets.roles import SMALL, draw, role


def policy(seed: int = 0) -> Policy:
    return build(Policy, role("fusion"), seed, **SMALL)


def test_the_manifest_says_where_each_parameter_lies():
    net = policy()
    flat, named = flatten(net), dict(net.named_parameters())
    assert flat.dtype == np.float32 and len(flat) == parameter_count(net)
    for name, shape, offset in manifest(net):
        part = flat[offset : offset + named[name].numel()].reshape(shape)
        np.testing.assert_array_equal(part, named.pop(name).detach().numpy())
    assert not named


def test_rebound_parameters_are_views_and_compute_the_same():
    net, inputs = policy(), draw(role("fusion"), 3)
    before = net(inputs).value
    flat = FlatParameters(net)
    torch.testing.assert_close(net(inputs).value, before)
    np.testing.assert_array_equal(flat.array(), flatten(net))
    with torch.no_grad():
        net.critic.bias.fill_(7)
    assert (flat.array() == 7).sum() == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_are_views_of_the_flat_gradient(layout):
    net, plain, inputs = policy(), policy(), draw(role("fusion"), 3)
    inputs["camera"] = inputs["camera"].contiguous(memory_format=layout)
    flat = FlatParameters(net)
    plain(inputs).value.sum().backward()
    for _ in range(2):  # it adds up, as gradients do
        net(inputs).value.sum().backward()
    expected = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in plain.parameters()])
    torch.testing.assert_close(flat.gradient, 2 * expected)
    flat.zero_gradient()
    assert all((p.grad == 0).all() for p in net.parameters())


def test_an_optimiser_of_the_flat_parameter_moves_the_network():
    net, inputs = policy(), draw(role("fusion"), 3)
    flat = FlatParameters(net)
    before = net.critic.weight.clone()
    net(inputs).value.sum().backward()
    torch.optim.SGD([flat.parameter], lr=0.1).step()
    torch.testing.assert_close(net.critic.weight, before - 0.1 * net.critic.weight.grad)


def test_a_policy_takes_the_flat_parameters_of_another():
    one, other, inputs = policy(0), policy(1), draw(role("fusion"), 3)
    flat = flatten(other)
    assign(one, flat)
    flat[:] = 0  # they are copied
    torch.testing.assert_close(one(inputs).value, other(inputs).value)
    with pytest.raises(ValueError, match=r"parameters are expected, an array of shape \(2,\) came"):
        assign(one, np.zeros(2, np.float32))
