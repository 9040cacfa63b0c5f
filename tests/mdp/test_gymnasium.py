"""Gymnasium's environments as games: spaces, matches, the batched way, and what is refused."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from lamarckian.errors import ContractError, GameError
from lamarckian.mdp import Continuous, Discrete, Image, Loop, Vector
from lamarckian.mdp.adapters.gymnasium import Gymnasium
from lamarckian.mdp.adapters.solo import env_seed
from lamarckian.mdp.adapters.spaces import doing, seeing
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.conform import draw
from lamarckian.plugins import Section, build, settings_model
from lamarckian.seeding import match_seed
from tests.mdp.toys import Steps


def now(coroutine):
    """What a coroutine returns that never suspends."""
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


class Echo(gymnasium.Env):
    """Observes what its space samples, remembers the actions it got, and ends after `length` steps."""

    metadata = {"render_modes": ["rgb_array"]}
    made = 0

    def __init__(self, observation_space=None, action_space=None, length=5, render_mode=None):
        Echo.made += 1
        self.observation_space = observation_space or spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.length = length
        self.render_mode = render_mode
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.actions = []
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        return self.observation_space.sample(), 0.5, len(self.actions) == self.length, False, {}

    def render(self):
        return np.full((4, 6, 3), 7, np.uint8)

    def close(self):
        self.closed = True


# Spaces.

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


# Matches.


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake-v1", "MountainCarContinuous-v0"])
def test_gymnasiums_own_keep_the_contract(id):
    check_mdp(Gymnasium(id), steps=60)


def test_a_game_plays_as_the_environment_does():
    game, env = Gymnasium("Pendulum-v1"), gymnasium.make("Pendulum-v1")
    assert game.roles["player"].heads == {"action": Continuous(-2.0, 2.0, (1,))} and game.roles["player"].rewards == ("score",)
    match = game.start(11)
    player = match.controllers["player"]
    seen, _ = env.reset(seed=env_seed(11))
    observation = now(player.reset())
    rng, total = np.random.default_rng(0), 0.0
    for t in range(200):
        assert np.array_equal(observation.inputs["observation"], seen)
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        step = now(player.step({"action": action}))
        seen, reward, terminated, truncated, _ = env.step(action)
        total += reward
        observation = step.observation
        assert step.reward == (reward,) and (step.terminated, step.truncated) == (terminated, truncated) == (False, t == 199)
    assert player.result().score == total
    with pytest.raises(ContractError, match="over"):
        now(player.step({"action": action}))


def test_the_clock_waits_for_the_player_and_for_the_end():
    loop, match, ended = Loop(), Gymnasium(Echo).start(0), []
    loop.spawn(match.run(), lambda _: ended.append("clock"))
    loop.run()
    assert not ended
    player = match.controllers["player"]
    now(player.reset())
    for _ in range(5):
        step = now(player.step({"action": 0}))
    loop.run()
    assert ended == ["clock"] and step.terminated

    loop, match = Loop(), Gymnasium(Echo).start(0)
    loop.spawn(match.run(), lambda _: ended.append("clock"))
    loop.settle()
    match.controllers["player"].leave()
    loop.run()
    assert ended == ["clock"] * 2


def test_environments_are_used_again_once_their_match_is_closed():
    game = Gymnasium(Echo)
    made = Echo.made
    first, second = game.start(1), game.start(2)
    assert Echo.made == made + 1  # one was there from finding out about the spaces
    first.close()
    first.close()
    third, fourth = game.start(3), game.start(4)
    assert Echo.made == made + 2
    with pytest.raises(ContractError, match="over"):
        now(first.controllers["player"].reset())
    for match in (second, third, fourth):
        now(match.controllers["player"].reset())
    environments = {id(match._env) for match in (second, third, fourth)}
    assert len(environments) == 3


def test_a_truncated_match_and_settings():
    game = Gymnasium(Echo, {"length": 9}, max_episode_steps=3)
    player = game.start(0).controllers["player"]
    now(player.reset())
    steps = Steps()
    for _ in range(3):
        steps.record(now(player.step({"action": 1})))
    assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, False), (False, True)]
    assert player.result().score == 1.5


def test_rendered_matches_have_an_environment_of_their_own():
    game = Gymnasium(Echo)
    match = game.start_rendered(0)
    assert match.render().shape == (4, 6, 3)
    match.close()
    assert match._env.closed and match._env is not game.start(0)._env
    with pytest.raises(GameError, match="cannot be made with the arguments"):
        Gymnasium(Plain).start_rendered(0)


class Plain(Echo):
    def __init__(self):
        super().__init__()


def test_legal_actions_from_info():
    game = Gymnasium("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", action_mask=True)
    assert game.roles["player"].heads["action"].masked
    check_mdp(game, steps=80)
    with pytest.raises(GameError, match="action_mask needs one Discrete action"):
        Gymnasium(Echo, action_mask=True)
    with pytest.raises(GameError, match="action_mask needs one Discrete action"):
        Gymnasium("Pendulum-v1", action_mask=True)


def test_pickled_games_play_alike_and_leave_environments_behind():
    game = Gymnasium("CartPole-v1", max_episode_steps=20)
    copy = pickle.loads(pickle.dumps(game))
    assert copy.roles == game.roles and copy._pool is not game._pool
    assert pickle.loads(pickle.dumps(Gymnasium(Echo, {"length": 2}))).roles == Gymnasium(Echo).roles


def test_names_that_lead_nowhere():
    with pytest.raises(GameError, match=r"no Gymnasium environment 'CartPol-v1'; nearest known id: CartPole-v1"):
        Gymnasium("CartPol-v1")
    with pytest.raises(GameError, match="no Gymnasium environment 'Zzz'; environments of other packages are named module:callable"):
        Gymnasium("Zzz")
    with pytest.raises(GameError, match="cannot be made: No module named 'no_such_module'"):
        Gymnasium("no_such_module:Game")
    with pytest.raises(GameError, match=r"cannot be made with the arguments \{'colour': 3\}"):
        Gymnasium("CartPole-v1", {"colour": 3})


def test_a_missing_extra_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for id in [id for id in gymnasium.registry if id.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, id)
    with pytest.raises(GameError, match=r"Atari games need ale-py: pip install 'lamarckian\[atari\]'"):
        Gymnasium("ALE/Pong-v5")
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(GameError, match=r"pip install .*gymnasium\[box2d\]"):
        Gymnasium("LunarLander-v3")


def test_module_and_callable_in_a_recipe():
    game = build("game", Section(name="gymnasium", id="tests.mdp.test_gymnasium:Echo", kwargs={"length": 2}))
    assert game.roles["player"].heads == {"action": Discrete(3)}
    check_mdp(game)
    properties = settings_model(Gymnasium).model_json_schema()["properties"]
    assert properties["id"]["type"] == "string" and set(properties) == {"id", "kwargs", "max_episode_steps", "action_mask"}


# The batched way.


def drive(game, matches, steps, seed=3):
    rng = np.random.default_rng(1)
    games = game.start_many(matches, seed)
    observations, log = games.reset()["player"], []
    for _ in range(steps):
        drawn = [draw(game.roles["player"], {}, rng) for _ in range(matches)]
        actions = {head: np.array([action[head] for action in drawn]) for head in game.roles["player"].heads}
        log.append((observations, games.step({"player": actions})["player"]))
        observations = log[-1][1].observations
    games.close()
    return log


def test_cartpole_batched_keeps_the_contract_though_its_lanes_restart_themselves():
    game = Gymnasium("CartPole-v1", max_episode_steps=30)
    assert game.batchable and not game.exact
    check_mdp(game, steps=100)
    log = drive(game, 5, 120)
    returns, restarting, truncated = np.zeros(5), np.zeros(5, bool), 0
    for observations, steps in log:
        assert (observations.learn is None and not restarting.any()) or np.array_equal(observations.learn, ~restarting)
        assert np.array_equal(steps.reward[:, 0], (~restarting).astype(np.float32))
        returns += steps.reward[:, 0]
        ended = steps.terminated | steps.truncated
        assert not (ended & restarting).any()
        assert steps.results == [(b, type(steps.results[0][1])(returns[b])) for b in np.nonzero(ended)[0]]
        if steps.truncated.any():
            truncated += steps.truncated.sum()
            assert np.array_equal(steps.final.inputs["observation"], steps.observations.inputs["observation"][steps.truncated])
        returns[ended], restarting = 0, ended
    assert truncated and any(steps.terminated.any() for _, steps in log)


def test_cartpole_batched_moves_as_single_matches_do():
    game = Gymnasium("CartPole-v1")
    games, env = game.start_many(4, 0), gymnasium.make("CartPole-v1")
    first = games.reset()["player"]
    envs = games._envs
    env.reset(seed=0)
    env.unwrapped.state = envs.state[:, 2].copy()
    assert np.array_equal(first.inputs["observation"][2], envs.state[:, 2].astype(np.float32))
    for t in range(9):
        move = np.array([0, 1, t % 2, 1])
        steps = games.step({"player": {"action": move}})["player"]
        seen, *_ = env.step(t % 2)
        assert np.array_equal(steps.observations.inputs["observation"][2], seen)


class Drift(gymnasium.Env):
    """Adds noise to a number, and says which action came; ends by chance."""

    def __init__(self, bound=1.0):
        self.observation_space = spaces.Dict({"at": spaces.Box(-bound, bound, (1,), np.float32), "last": spaces.Discrete(2)})
        self.action_space = spaces.Discrete(2, start=3)

    def see(self):
        return {"at": np.array([self.at], np.float32), "last": self.last}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.last = self.np_random.uniform(-0.5, 0.5), 0
        return self.see(), {}

    def step(self, action):
        assert action in (3, 4)
        self.at, self.last = float(np.clip(self.at + self.np_random.normal() / 4, -1, 1)), int(action - 3)
        return self.see(), self.at, abs(self.at) > 0.9, False, {}


class Drifts(VectorEnv):
    """The same, many at once, with lanes that restart alone from seeds of their own."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}
    Lane = Drift

    def __init__(self, num_envs, bound=1.0, autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=None):
        assert autoreset_mode == AutoresetMode.DISABLED
        self.num_envs, self.limit = num_envs, max_episode_steps
        self.lanes = [self.Lane(bound) for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = self.lanes[0].observation_space, self.lanes[0].action_space
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.steps = np.zeros(num_envs, int)

    def see(self):
        return {"at": np.array([[lane.at] for lane in self.lanes], np.float32), "last": np.array([lane.last for lane in self.lanes])}

    def reset(self, *, seed=None, options=None):
        for b in np.nonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))[0]:
            self.lanes[b].reset(seed=seed[b])
            self.steps[b] = 0
        return self.see(), {}

    def step(self, actions):
        outcome = [lane.step(action) for lane, action in zip(self.lanes, actions, strict=True)]
        self.steps += 1
        truncated = self.steps >= self.limit if self.limit else np.zeros(self.num_envs, bool)
        return self.see(), np.array([o[1] for o in outcome]), np.array([o[2] for o in outcome]), truncated, {}


class Deaf(Drifts):
    """Restarts all lanes whenever asked to restart one."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class SameStep(Drifts):
    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}


class Wide(Drifts):
    Lane = staticmethod(lambda bound: Drift(2 * bound))


@pytest.fixture
def register(monkeypatch):
    def registered(vector, limit=7):
        monkeypatch.setattr(gymnasium.envs.registration, "registry", registry := dict(gymnasium.registry))
        monkeypatch.setattr(gymnasium, "registry", registry)
        gymnasium.register("Drift-v0", Drift, vector_entry_point=vector, max_episode_steps=limit)
        return Gymnasium("Drift-v0")

    return registered


def test_a_vector_environment_that_restarts_lanes_from_seeds_plays_the_same_matches(register):
    game = register(Drifts)
    assert game.batchable and game.exact
    check_mdp(game, steps=60)
    log = drive(game, 4, 60)
    assert any(steps.terminated.any() for _, steps in log) and any(steps.truncated.any() for _, steps in log)
    assert all(steps.observations.learn is None for _, steps in log)


@pytest.mark.parametrize("vector", [Deaf, SameStep, Wide, None])
def test_vector_environments_that_would_play_something_else_are_left_alone(register, vector):
    game = register(vector)
    assert not game.batchable and not game.exact
    check_mdp(game, steps=20)
    with pytest.raises(GameError, match="Drift-v0 has no vector implementation with the same spaces"):
        game.start_many(2, 0)


def test_many_seeds_are_the_matches_seeds(register):
    game = register(Drifts)
    games = game.start_many(3, 9)
    first = games.reset()["player"].inputs["at"][:, 0]
    for b in range(3):
        seen = now(game.start(match_seed(9, b, 0)).controllers["player"].reset())
        assert seen.inputs["at"][0] == first[b]
