"""PettingZoo's environments: all at once, in turns, and agents that go before the others."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from pettingzoo import AECEnv, ParallelEnv

from lamarckian.errors import GameError
from lamarckian.mdp import Continuous, Discrete, Image, Loop, Vector, train
from lamarckian.mdp.adapters.pettingzoo import PettingZoo
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.conform import draw
from tests.mdp.toys import Now, Steps


class Melt(ParallelEnv):
    """Agents melt: the first after two steps, the second after four, the third after six. Warmth is free."""

    metadata = {"name": "melt_v0", "render_modes": ["rgb_array"]}

    def __init__(self, lives=(2, 4, 6), render_mode=None):
        self.possible_agents = ["snow", "ice", "rock"]
        self.lives, self.render_mode = lives, render_mode

    def observation_space(self, agent):
        return spaces.Box(0, 255, (4, 4, 3), np.uint8) if agent == "rock" else spaces.Discrete(20)

    def action_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32) if agent == "rock" else spaces.Discrete(3, start=1)

    def see(self):
        return {agent: np.full((4, 4, 3), self.time, np.uint8) if agent == "rock" else self.time for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.log = list(self.possible_agents), 0, []
        return self.see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents) and all(self.action_space(agent).contains(action) for agent, action in actions.items())
        self.log.append(actions)
        self.time += 1
        seen, gone = self.see(), {agent: self.time >= life for agent, life in zip(self.possible_agents, self.lives, strict=True)}
        agents, self.agents = self.agents, [agent for agent in self.agents if not gone[agent]]
        rewards = {agent: float(self.time) for agent in agents}
        terminated = {agent: gone[agent] and agent != "rock" for agent in agents}
        truncated = {agent: gone[agent] and agent == "rock" for agent in agents}
        return seen, rewards, terminated, truncated, {agent: {} for agent in agents}

    def render(self):
        return np.zeros((5, 5, 3), np.uint8)


class Stones(AECEnv):
    """Three take one to three stones in turns. Who takes the last pays everyone else; `out` may be thrown out early."""

    metadata = {"name": "stones_v0", "render_modes": ["rgb_array"]}

    def __init__(self, stones=11, out=None, render_mode=None):
        super().__init__()
        self.possible_agents = ["a", "b", "c"]
        self.stones, self.out, self.render_mode = stones, out, render_mode

    def observation_space(self, agent):
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": spaces.Box(0, 99, (1,), np.float32), "action_mask": mask})

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self, agent):
        mask = np.array([self.left > 0, self.left > 1, self.left > 2], np.int8) * (agent == self.agent_selection)
        return {"observation": np.array([self.left], np.float32), "action_mask": mask}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.left = self.stones + np.random.default_rng(seed).integers(3)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"
        self.log = []

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            return self._was_dead_step(action)
        assert self.observe(agent)["action_mask"][action]
        self.log.append((agent, int(action)))
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.left -= action + 1
        self.rewards[agent] += 0.5
        if self.left == 0:
            self.rewards |= {other: self.rewards[other] + (1.0 if other != agent else -2.0) for other in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        elif agent == self.out and len(self.log) > 3:
            self.terminations[agent] = True
        alive = [other for other in self.agents if not self.terminations[other] or other == agent]
        self.agent_selection = alive[(alive.index(agent) + 1) % len(alive)]
        self._accumulate_rewards()
        self._deads_step_first()

    def render(self):
        return np.zeros((3, 3, 3), np.uint8)


class Random:
    def __init__(self, role, seed=0):
        self.role, self.random = role, np.random.default_rng(seed)

    def start(self, seed):
        pass

    def act(self, observation):
        return Now(draw(self.role, observation.legal, self.random))


def play(game, seed=0, without=()):
    match, loop, steps = game.start(seed), Loop(), {name: Steps() for name in game.roles}
    clock = loop.spawn(match.run())
    for name, controller in match.controllers.items():
        if name in without:
            controller.leave()
        else:
            loop.spawn(train(controller, Random(controller.role), steps[name]))
    loop.run()
    assert clock.done and not loop.alive
    return match, steps


def test_all_at_once_with_agents_that_go_early():
    game = PettingZoo(Melt)
    assert {name: role.inputs for name, role in game.roles.items()} == {
        "snow": {"observation": Vector(20)},
        "ice": {"observation": Vector(20)},
        "rock": {"observation": Image(3, 4, 4)},
    }
    assert game.roles["snow"].heads == {"action": Discrete(3)} and game.roles["rock"].heads == {"action": Continuous(-1.0, 1.0, (1,))}
    match, steps = play(game)
    assert {name: [step.reward[0] for step in each] for name, each in steps.items()} == {
        "snow": [1, 2],
        "ice": [1, 2, 3, 4],
        "rock": [1, 2, 3, 4, 5, 6],
    }
    assert {name: (each[-1].terminated, each[-1].truncated) for name, each in steps.items()} == {
        "snow": (True, False),
        "ice": (True, False),
        "rock": (False, True),
    }
    assert steps["snow"][-1].observation.inputs["observation"].argmax() == 2
    assert {name: controller.result().score for name, controller in match.controllers.items()} == {"snow": 3, "ice": 10, "rock": 21}


def test_roles_that_leave_play_on_with_the_default():
    match, steps = play(PettingZoo(Melt), without=("ice", "rock"))
    assert len(steps["snow"]) == 2 and steps["snow"][-1].terminated
    assert [actions["ice"] for actions in match._game.log] == [1] * len(match._game.log)
    assert all(actions["rock"] == 0 for actions in match._game.log)


def test_in_turns_each_role_earns_what_came_since_it_acted():
    game = PettingZoo(Stones, api="aec")
    assert game.roles["a"].inputs == {"observation": Vector(1)} and game.roles["a"].heads == {"action": Discrete(3, masked=True)}
    for seed in range(5):
        match, steps = play(game, seed)
        log = match._game.log
        assert [agent for agent, _ in log] == [("a", "b", "c")[t % 3] for t in range(len(log))]
        last = log[-1][0]
        for name, each in steps.items():
            acted = [agent for agent, _ in log].count(name)
            assert len(each) == acted and each[-1].terminated and not any(step.terminated for step in each[:-1])
            assert sum(step.reward[0] for step in each) == match.controllers[name].result().score == acted / 2 + (1 if name != last else -2)
            assert [step.reward[0] for step in each[:-1]] == [0.5] * (acted - 1)


def test_in_turns_an_agent_that_dies_early_gets_its_last_step_then():
    match, steps = play(PettingZoo(Stones, "aec", {"stones": 30, "out": "b"}))
    acted = [agent for agent, _ in match._game.log]
    assert acted[:5] == ["a", "b", "c", "a", "b"] and "b" not in acted[5:] and set(acted[5:]) == {"a", "c"}
    assert len(steps["b"]) == 2 and steps["b"][-1].terminated and steps["b"][-1].reward == (0.5,)
    assert len(steps["a"]) == acted.count("a") and steps["a"][-1].terminated


def test_in_turns_a_role_that_leaves_takes_the_first_legal_choice():
    match, steps = play(PettingZoo(Stones, api="aec"), without=("b",))
    assert {action for agent, action in match._game.log if agent == "b"} == {0} and steps["a"][-1].terminated


@pytest.mark.parametrize("game", [PettingZoo(Melt), PettingZoo(Stones, "aec"), PettingZoo(Stones, "aec", {"out": "c", "stones": 20})])
def test_the_contract(game):
    check_mdp(game, seed=2, steps=30)


def test_games_are_pickled_rendered_and_used_again():
    game = PettingZoo("tests.mdp.test_pettingzoo:Melt", kwargs={"lives": [1, 1, 1]})
    copy = pickle.loads(pickle.dumps(game))
    assert copy.roles == game.roles and len(play(copy)[1]["rock"]) == 1
    match = game.start(0)
    first = match._game
    match.close()
    match.close()
    assert game.start(0)._game is first and game.start(0)._game is not first
    shown = game.start_rendered(0)
    assert shown._game.render_mode == "rgb_array" and shown.render().shape == (5, 5, 3)
    shown.close()


class Silent(Melt):
    def observation_space(self, agent):
        return spaces.Text(3)


def test_what_cannot_be_played_is_refused():
    with pytest.raises(GameError, match="Silent, agent 'snow': observation space 'observation' is Text; supported: Box"):
        PettingZoo(Silent)
    with pytest.raises(GameError, match=r"No module named 'pettingzoo.classic.tictacto_v3'; nearest: pettingzoo.classic.tictactoe_v3"):
        PettingZoo("pettingzoo.classic.tictacto_v3", "aec")
    with pytest.raises(GameError, match=r"tests.mdp.toys has no 'parallel_env'; perhaps the environment is for api: aec"):
        PettingZoo("tests.mdp.toys")
    with pytest.raises(GameError, match=r"cannot be made with the arguments \{'wind': 3\}"):
        PettingZoo(Melt, kwargs={"wind": 3})


def test_a_missing_extra_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    for name in [name for name in sys.modules if name.startswith("pettingzoo.classic.rps")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(GameError, match=r"pip install 'pettingzoo\[classic\]'"):
        PettingZoo("pettingzoo.classic.rps_v2")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("env", "api"), [("pettingzoo.classic.tictactoe_v3", "aec"), ("pettingzoo.classic.rps_v2", "parallel")])
def test_pettingzoos_own(env, api):
    pytest.importorskip("pygame")
    with suppress(KeyError):
        del os.environ["DISPLAY"]
    check_mdp(PettingZoo(env, api), steps=40)
