"""What becomes of Gymnasium's spaces, and which are refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lamarckian.errors import GameError
from lamarckian.mdp import Continuous, Discrete, Image, Vector
from lamarckian.mdp.adapters.gymnasium import Gymnasium
from lamarckian.mdp.adapters.spaces import doing, seeing
from tests.mdp.test_gymnasium import Echo

FLOATS = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("space", "value", "inputs", "arrays"),
    [
        (FLOATS, np.array([0.5, 1], np.float32), {"observation": Vector(2)}, {"observation": [0.5, 1]}),
        (spaces.Box(-9, 9, (2,), np.float64), np.array([0.5, 8.0]), {"observation": Vector(2)}, {"observation": [0.5, 8]}),
        (spaces.Box(-9, 9, (), np.float32), np.float32(3), {"observation": Vector(1)}, {"observation": [3]}),
        (spaces.Box(-9, 9, (2, 2), np.int64), np.array([[1, 2], [3, 4]]), {"observation": Vector(4)}, {"observation": [1, 2, 3, 4]}),
        (spaces.Box(0, 1, (1, 2, 2), np.uint8), np.ones((1, 2, 2), np.uint8), {"observation": Vector(4)}, {"observation": [1, 1, 1, 1]}),
        (spaces.Discrete(3), np.int64(1), {"observation": Vector(3)}, {"observation": [0, 1, 0]}),
        (spaces.Discrete(3, start=-1), np.int64(1), {"observation": Vector(3)}, {"observation": [0, 0, 1]}),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), {"observation": Vector(5)}, {"observation": [0, 1, 1, 0, 0]}),
        (
            spaces.MultiDiscrete([[2], [2]], start=[[5], [6]]),
            np.array([[5], [7]]),
            {"observation": Vector(4)},
            {"observation": [1, 0, 0, 1]},
        ),
        (spaces.MultiBinary((2, 2)), np.array([[1, 0], [0, 1]], np.int8), {"observation": Vector(4)}, {"observation": [1, 0, 0, 1]}),
        (
            spaces.Dict({"own": FLOATS, "all": spaces.Dict({"it": spaces.Tuple([spaces.Discrete(2), FLOATS])})}),
            {"own": np.zeros(2, np.float32), "all": {"it": (1, np.ones(2, np.float32))}},
            {"own": Vector(2), "all.it.0": Vector(2), "all.it.1": Vector(2)},
            {"own": [0, 0], "all.it.0": [0, 1], "all.it.1": [1, 1]},
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (0, 1), {"0": Vector(2), "1": Vector(2)}, {"0": [1, 0], "1": [0, 1]}),
        (spaces.Dict({"observation": spaces.Discrete(2)}), {"observation": 1}, {"observation": Vector(2)}, {"observation": [0, 1]}),
    ],
)
def test_observation_spaces(space, value, inputs, arrays):
    sees = seeing(space, "game")
    assert sees.inputs == inputs
    seen = sees.observe(value)
    assert {name: array.tolist() for name, array in seen.items()} == arrays
    assert all(array.dtype == np.float32 for array in seen.values())
    batch = gymnasium.vector.utils.create_empty_array(space, 3)
    batch = gymnasium.vector.utils.concatenate(space, [value] * 3, batch)
    assert {name: array.tolist() for name, array in sees.observe_batch(batch).items()} == {
        name: [each] * 3 for name, each in arrays.items()
    }


@pytest.mark.parametrize(
    ("shape", "image"), [((6, 5, 3), Image(3, 6, 5)), ((4, 6, 5), Image(4, 6, 5)), ((6, 5), Image(1, 6, 5)), ((1, 6, 5), Image(1, 6, 5))]
)
def test_images_have_their_channels_first(shape, image):
    sees = seeing(spaces.Box(0, 255, shape, np.uint8), "game")
    assert sees.inputs == {"observation": image}
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    seen = sees.observe(pixels)["observation"]
    expected = pixels.transpose(2, 0, 1) if shape == (6, 5, 3) else pixels.reshape(image.channels, image.height, image.width)
    assert np.array_equal(seen, expected) and seen.dtype == np.uint8 and seen.flags.c_contiguous and not np.shares_memory(seen, pixels)
    assert np.array_equal(sees.observe_batch(np.stack([pixels, pixels]))["observation"], np.stack([expected, expected]))


@pytest.mark.parametrize(
    ("space", "heads", "action", "result"),
    [
        (spaces.Discrete(3), {"action": Discrete(3)}, {"action": 2}, 2),
        (spaces.Discrete(3, start=5), {"action": Discrete(3)}, {"action": 2}, 7),
        (spaces.MultiDiscrete([2, 3]), {"action.0": Discrete(2), "action.1": Discrete(3)}, {"action.0": 1, "action.1": 2}, [1, 2]),
        (
            spaces.MultiDiscrete([[2], [3]], start=[[1], [1]]),
            {"action.0": Discrete(2), "action.1": Discrete(3)},
            {"action.0": 1, "action.1": 2},
            [[2], [3]],
        ),
        (spaces.MultiBinary(2), {"action.0": Discrete(2), "action.1": Discrete(2)}, {"action.0": 0, "action.1": 1}, [0, 1]),
        (
            spaces.Box(-2, 2, (1,), np.float32),
            {"action": Continuous(-2.0, 2.0, (1,))},
            {"action": np.array([1.5], np.float32)},
            np.array([1.5], np.float32),
        ),
        (
            spaces.Box(-2, 2, (1,), np.float32),
            {"action": Continuous(-2.0, 2.0, (1,))},
            {"action": np.array([2.5], np.float32)},
            np.array([2.0], np.float32),
        ),
        (
            spaces.Box(np.array([-1, 0]), np.array([1, 0.1]), dtype=np.float64),
            {"action": Continuous((-1.0, 0.0), (1.0, 0.1), (2,))},
            {"action": np.array([-3, 0.1], np.float32)},
            np.array([-1, 0.1]),
        ),
        (
            spaces.Dict({"move": spaces.Discrete(2), "aim": spaces.Tuple([spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)])}),
            {"move": Discrete(2), "aim.0": Continuous(0.0, 1.0, (1,)), "aim.1": Discrete(2)},
            {"move": 1, "aim.0": np.array([0.5], np.float32), "aim.1": 0},
            {"aim": (np.array([0.5], np.float32), 0), "move": 1},
        ),
    ],
)
def test_action_spaces(space, heads, action, result):
    does = doing(space, "game")
    assert does.heads == heads
    taken = does.act(action)
    assert repr(taken) == repr(np.array(result, space.dtype) if isinstance(result, list) else result)
    assert space.contains(taken)
    batch = does.act_batch({name: np.stack([value] * 3) for name, value in action.items()})
    assert gymnasium.vector.utils.batch_space(space, 3).contains(batch)
    for one in gymnasium.vector.utils.iterate(gymnasium.vector.utils.batch_space(space, 3), batch):
        assert np.all(one == taken) if not isinstance(space, spaces.Dict) else one["move"] == 1


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (spaces.Text(5), None, "observation space 'observation' is Text; supported: Box, Discrete"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Sequence(FLOATS)})}), None, "observation space 'a.b' is Sequence; supported"),
        (None, spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]), "action space '1' is Text; supported"),
        (None, spaces.Box(-np.inf, 1, (2,), np.float32), "action space 'action' is Box without bounds"),
        (None, spaces.Box(0, 5, (2,), np.int64), "action space 'action' is Box of int64, and of Box actions only floats"),
        (spaces.Dict({"a.b": FLOATS, "a": spaces.Dict({"b": FLOATS})}), None, "two observation spaces would be called 'a.b'"),
        (
            None,
            spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}),
            "two action spaces would be called 'a.b'",
        ),
    ],
)
def test_spaces_without_a_counterpart_are_refused_by_name(observation_space, action_space, message):
    with pytest.raises(GameError, match=f"Echo: {message}"):
        Gymnasium(Echo, {"observation_space": observation_space, "action_space": action_space})
