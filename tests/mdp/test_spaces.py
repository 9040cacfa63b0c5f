"""What roles and spaces refuse, and the arrays they say."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.errors import GameError
from lamarckian.mdp import ArraySpec, Continuous, Discrete, Image, Role, Units, Vector

SEES = {"view": Vector(3)}


@pytest.mark.parametrize(
    ("inputs", "heads", "rewards", "message"),
    [
        ({}, {"a": Discrete(2)}, ("score",), "at least one input"),
        (SEES, {}, ("score",), "at least one input, one head"),
        (SEES, {"a": Discrete(2)}, (), "one reward name"),
        (SEES, {"a": Discrete(2, active=(True, False))}, ("score",), "`active` needs `given`"),
        (SEES, {"a": Discrete(2, given="b"), "b": Discrete(2)}, ("score",), "earlier discrete head, .*not 'b'"),
        (SEES, {"a": Continuous(-1, 1, (1,)), "b": Discrete(2, given="a")}, ("score",), "earlier discrete head, .*not 'a'"),
        (SEES, {"a": Discrete(3), "b": Discrete(2, given="a", active=(True,))}, ("score",), "must have 3 entries, .* not 1"),
    ],
)
def test_a_role_that_makes_no_sense_is_refused(inputs, heads, rewards, message):
    with pytest.raises(GameError, match=message):
        Role(inputs, heads, rewards)


def test_a_role_says_its_arrays_and_masks():
    role = Role(
        {"view": Vector(3), "screen": Image(4, 8, 9), "troops": Units(5, 2)},
        {"button": Discrete(3, masked=True), "target": Discrete(4, masked=True, given="button"), "power": Discrete(7)},
    )
    assert role.arrays() == {
        "view": ArraySpec((3,), np.dtype(np.float32)),
        "screen": ArraySpec((4, 8, 9), np.dtype(np.uint8)),
        "troops": ArraySpec((5, 2), np.dtype(np.float32)),
        "troops.valid": ArraySpec((5,), np.dtype(np.bool_)),
    }
    assert role.masks() == {"button": ArraySpec((3,), np.dtype(np.bool_)), "target": ArraySpec((3, 4), np.dtype(np.bool_))}


def test_bounds_are_of_the_heads_shape():
    low, high = Continuous(-1.0, (2.0, 3.0), (2,)).bounds()
    assert low.tolist() == [-1, -1] and high.tolist() == [2, 3] and low.dtype == high.dtype == np.float32
