"""What is chosen, and that it is only a matter of speed."""

import pytest
import torch

from lamarckian.mdp import Discrete, Image, Role, Vector
from lamarckian.nets import Policy, build, choose, precision

CPU = torch.device("cpu")


def image(channels: int) -> Role:
    return Role({"camera": Image(channels, 84, 84)}, {"move": Discrete(3)})


def vector() -> Role:
    return Role({"x": Vector(10)}, {"move": Discrete(3)})


@pytest.mark.parametrize("native", [True, False])
def test_auto_goes_by_what_the_processor_can_do(native, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_is_native", lambda device: native)
    expected = torch.bfloat16 if native else torch.float32
    network = build(Policy, image(4), 0, convolutions="halving")
    chosen = choose(network, image(4), CPU)
    assert chosen.dtype == expected and chosen.channels_last
    assert chosen.rows == (64 if native else 32)
    chosen = choose(build(Policy, vector(), 0), vector(), CPU)
    assert chosen.dtype == expected and not chosen.channels_last and chosen.rows == precision.ROWS
    assert choose(build(Policy, vector(), 0, hidden=(32, 32)), vector(), CPU).dtype == torch.float32


def test_what_is_asked_for_is_kept():
    network = build(Policy, image(1), 0, convolutions="halving")
    chosen = choose(network, image(1), CPU, "float32", "contiguous")
    assert chosen.dtype == torch.float32 and not chosen.channels_last


@pytest.mark.parametrize("channels", [1, 4])
def test_channels_last_is_seen_as_such_and_holds_the_same(channels):
    x = torch.randint(0, 256, (3, channels, 84, 84), dtype=torch.uint8)
    last = precision.channels_last(x)
    assert torch.equal(x, last) and last.stride()[1] == 1
    inputs = {"camera": x.float()}
    arranged = precision.channels_last(inputs["camera"])
    out = torch.nn.functional.conv2d(arranged, torch.randn(8, channels, 4, 4), stride=2)
    assert out.is_contiguous(memory_format=torch.channels_last)
