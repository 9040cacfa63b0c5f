"""Gymnasium's environments as games: spaces, matches, the batched way, and what is refused."""

from __future__ import annotations

import pickle
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lamarckian.errors import ContractError, GameError
from lamarckian.mdp import Continuous, Discrete, Loop
from lamarckian.mdp.adapters.gymnasium import Gymnasium
from lamarckian.mdp.adapters.solo import env_seed
from lamarckian.mdp.check import check_mdp
from lamarckian.plugins import Section, build, settings_model
from tests.mdp.toys import Steps, now


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
