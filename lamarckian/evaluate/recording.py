"""Records matches among bots and trained agents, to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian import plugins, seeding
from lamarckian.actor.process import as_played
from lamarckian.errors import MisuseError
from lamarckian.evaluate.bout import TrainedAgent, bout
from lamarckian.evaluate.plan import check_player, game_recorded, trained
from lamarckian.mdp import Action, Agent, ArraySpec, BotAgent, Observation, Role, Step
from lamarckian.plugins import unknown
from lamarckian.recipe import AGENTS, Player, Recipe, build_bot
from lamarckian.record.recordings import Recorded, Recordings, begin_recordings
from lamarckian.record.signature import signature


class Scribe:
    """An agent whose every decision is written down, with what came of it."""

    def __init__(self, agent: Agent, role: Role) -> None:
        self._agent = agent
        self._role = role
        self._observations: list[Observation] = []
        self._actions: list[Action] = []
        self._steps: list[Step] = []

    def start(self, seed: int) -> None:
        self._observations, self._actions, self._steps = [], [], []
        self._agent.start(seed)

    async def act(self, observation: Observation) -> Action:
        action = await self._agent.act(observation)
        self._observations.append(observation)
        self._actions.append(action)
        return action

    def record(self, step: Step) -> None:
        self._steps.append(step)

    def arrays(self) -> dict[str, np.ndarray]:
        """The match so far, as `lamarckian.record.recordings` says."""
        seen, role = self._observations, self._role
        return {
            **{f"inputs.{name}": _stacked([o.inputs[name] for o in seen], spec) for name, spec in role.arrays().items()},
            **{f"legal.{name}": _stacked([o.legal[name] for o in seen], spec) for name, spec in role.masks().items()},
            **{f"action.{name}": _stacked([a[name] for a in self._actions], head.action) for name, head in role.heads.items()},
            "reward": _stacked([step.reward for step in self._steps], ArraySpec((len(role.rewards),), np.dtype(np.float32))),
            "terminated": np.array([step.terminated for step in self._steps], np.bool_),
            "truncated": np.array([step.truncated for step in self._steps], np.bool_),
            "learn": np.array([observation.learn for observation in seen], np.bool_),
        }


def record(recipe: Recipe, agents: Mapping[str, str], roles: Sequence[str], matches: int, folder: str | Path, seed: int) -> Recordings:
    """Plays `matches` matches of the recipe's game, and adds what `roles` did in them to a folder.

    agents: who plays, by role: a bot of the game, the folder of a run, or `module:Class`; roles that are not named are played by whom the
    recipe names. roles: none for those that learn in the recipe. The next matches of a folder are others than those that it has, also with
    the same seed. Raises a `MisuseError` where that cannot be.
    """
    game = plugins.build("game", recipe.game)
    mdp = as_played(game, recipe.rewards.zero_sum, recipe.actor.frame_skip)
    roles = list(roles) or list(recipe.learners)
    for option, names in (("--agents", agents), ("--roles", roles)):
        for name in names:
            if name not in game.roles:
                raise MisuseError(f"{option}: {unknown(name, game.roles, 'roles')}")
    others = [role for role in roles if game.roles[role] != game.roles[roles[0]]]
    if others:
        raise MisuseError(f"--roles: {others[0]} has other spaces than {roles[0]}; record them into folders of their own")
    seats = {role: _agent(recipe, mdp, role, agents.get(role)) for role in game.roles}
    names = {role: agents.get(role, recipe.roles[role].agent) for role in game.roles}
    recordings = begin_recordings(folder, game_recorded(recipe), signature(game.roles[roles[0]]))
    scribes = {role: Scribe(seats[role], game.roles[role]) for role in roles}
    first = max(recordings.matches, default=-1) + 1
    for number in range(first, first + matches):
        start = seeding.derive(seed, "record", number)
        results = bout(mdp, {**seats, **scribes}, start, scribes)
        parts = {role: scribe.arrays() for role, scribe in scribes.items()}
        entries = [
            Recorded(
                file=f"{number:06}-{role}.safetensors",
                match=number,
                seed=start,
                role=role,
                agents=names,
                steps=len(parts[role]["learn"]),
                score=float(results[role].score),
                outcome=results[role].outcome,
            )
            for role in roles
        ]
        recordings.add(parts, entries)
    return recordings


def _stacked(rows: Sequence[Any], spec: ArraySpec) -> np.ndarray:
    return np.array(rows, spec.dtype).reshape(len(rows), *spec.shape)


def _agent(recipe: Recipe, mdp: Any, role: str, name: str | None) -> Agent:
    """Who plays `role`: `name`, or whom the recipe names where that is None."""
    player, bots = recipe.roles[role] if name is None else Player(agent=name), getattr(mdp, "bots", {})
    names = f"a bot of the game ({', '.join(bots) or 'it has none'}), the folder of a run, or module:Class"
    folder, key = (player.settings["path"], f"roles.{role}.path") if name is None and player.agent == "run" else (player.agent, "--agents")
    if folder in AGENTS:
        what = f"nobody plays {role} yet, the recipe's is {folder!r}" if name is None else f"given {role}={name}, which says nobody"
        raise MisuseError(f"--agents: {what}; write {role}=NAME, where NAME is {names}")
    if (Path(folder) / "recipe.yaml").is_file():
        check_player(recipe, folder, key)
        return TrainedAgent(trained(folder, mdp.roles[role]), mdp.roles[role])
    if name is not None and name not in bots and ":" not in name:
        raise MisuseError(f"--agents: {unknown(name, bots, 'bots of the game')}; allowed for {role}: {names}")
    agent = build_bot(mdp, role, player)
    return BotAgent(agent) if player.agent in bots else agent
