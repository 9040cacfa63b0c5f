"""Roles with inputs of every kind, and inputs of them drawn at random."""

import torch
from torch import Tensor

from lamarckian.mdp import Continuous, Discrete, Image, Role, Units, Vector
from lamarckian.nets import example
from lamarckian.nets.convolution import Convolution

INPUTS = {
    "vector": {"x": Vector(10)},
    "image": {"camera": Image(2, 20, 18)},
    "units": {"units": Units(5, 7)},
    "fusion": {"x": Vector(3), "camera": Image(1, 20, 20), "units": Units(4, 6), "type": Vector(2)},
}

SMALL = {
    "convolutions": (Convolution(channels=8, kernel=4, stride=2), Convolution(channels=8, kernel=3, padding=1)),
    "hidden": (32, 16),
}


def role(kind: str, rewards: tuple[str, ...] = ("score",)) -> Role:
    heads = {"move": Discrete(3), "values": Discrete(4, masked=True), "aim": Continuous(-1.0, 2.0, (2,)), "power": Continuous(0.0, 1.0, ())}
    return Role(INPUTS[kind], heads, rewards)


def draw(role: Role, size: int) -> dict[str, Tensor]:
    arrays = {}
    for name, x in example(role, size).items():
        if x.dtype == torch.uint8:
            arrays[name] = torch.randint(0, 256, x.shape, dtype=torch.uint8)
        else:
            arrays[name] = torch.rand(x.shape) < 0.5 if x.dtype == torch.bool else torch.randn(x.shape)
    return arrays
