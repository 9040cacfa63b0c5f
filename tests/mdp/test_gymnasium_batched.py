"""Gymnasium's vector environments: the same matches where they can, and an honest word where not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from lamarckian.errors import GameError
from lamarckian.mdp.adapters.gymnasium import Gymnasium
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.conform import draw
from lamarckian.seeding import match_seed
from tests.mdp.toys import now


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
    for _, steps in log:
        assert np.array_equal(steps.reward[:, 0], (~restarting).astype(np.float32))
        returns += steps.reward[:, 0]
        ended = steps.terminated | steps.truncated
        assert not (ended & restarting).any()
        assert ended.any() == (steps.waiting is not None) and (not ended.any() or np.array_equal(steps.waiting, ended))
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
    assert all(steps.waiting is None for _, steps in log)


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
