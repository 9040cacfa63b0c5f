"""PettingZoo's environments as games of several roles, which act all at once or in turns."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from gymnasium import spaces
from pydantic import Field, WithJsonSchema

from lamarckian.errors import GameError
from lamarckian.mdp.adapters.pool import Pool
from lamarckian.mdp.adapters.solo import env_seed
from lamarckian.mdp.adapters.spaces import doing, seeing, some_legal
from lamarckian.mdp.interface import NO_MASKS, Action, Observation, Result
from lamarckian.mdp.spaces import Discrete, Role
from lamarckian.mdp.synchronous import SynchronousMatch


class PettingZoo:
    """Any PettingZoo environment; each possible agent is a role with the reward `score`.

    `lamarckian.mdp.adapters.spaces` says what becomes of its spaces. Where an agent's observation has an entry `action_mask`
    and its action is one choice, that is the mask, and the other entries are what it sees. A result's score is the sum of the
    agent's rewards. For a role that has left, the first legal choice is played, and zeros, as far as bounds allow.

    Raises GameError for an unknown environment, a missing dependency, or a space that has no counterpart.
    """

    def __init__(
        self,
        env: Annotated[
            str | Callable[..., Any],
            WithJsonSchema({"type": "string"}),
            Field(description="a module such as pettingzoo.classic.tictactoe_v3, or module:callable that makes the environment"),
        ],
        api: Annotated[Literal["parallel", "aec"], Field(description="whether agents act all at once or in turns")] = "parallel",
        kwargs: Annotated[dict[str, Any] | None, Field(description="arguments of what makes the environment")] = None,
    ) -> None:
        self._settings: dict[str, Any] = {"env": env, "api": api, "kwargs": kwargs}
        self._name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
        self._rules = ParallelTurns if api == "parallel" else SequentialTurns
        self._make = partial(_make, env, api, kwargs or {})
        self._pool: Pool[Any] = Pool(self._make)
        game = self._pool.take()
        self._places = {str(agent): _place(game, agent, f"{self._name}, agent '{agent}'") for agent in game.possible_agents}
        self.roles: Mapping[str, Role] = {name: place.role for name, place in self._places.items()}
        self._pool.give(game)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PettingZoo, **self._settings), ()

    def start(self, seed: int) -> PettingZooMatch:
        """Starts a match; its environment is used again once it is closed."""
        return self._match(self._pool.take(), seed, self._pool.give)

    def start_rendered(self, seed: int) -> PettingZooMatch:
        """Starts a match that can be looked at by its `render()`, in an environment of its own."""
        return self._match(self._make(render_mode="rgb_array"), seed, lambda game: game.close())

    def _match(self, game: Any, seed: int, release: Callable[[Any], None]) -> PettingZooMatch:
        return PettingZooMatch(self._rules(game, self._places, env_seed(seed)), self.roles, partial(release, game))


class PettingZooMatch(SynchronousMatch):
    """A match of a PettingZoo environment."""

    def __init__(self, rules: ParallelTurns | SequentialTurns, roles: Mapping[str, Role], close: Callable[[], None]) -> None:
        super().__init__(rules, roles, close)
        self._game = rules.game

    def render(self) -> np.ndarray:
        """The match as it stands, RGB uint8 `[height, width, 3]`."""
        return self._game.render()


@dataclass(frozen=True)
class Place:
    """How one agent's values are converted. `nothing`: an observation of its space, for what it never saw."""

    agent: Any
    role: Role
    see: Callable[[Any], Observation]
    act: Callable[[Action], Any]
    nothing: Any

    def default(self, seen: Observation) -> Any:
        """The environment's action for an agent whose role has left."""
        action = {name: np.zeros(head.action.shape, head.action.dtype) for name, head in self.role.heads.items()}
        return self.act(action | {name: np.argmax(mask) for name, mask in seen.legal.items()})


class ParallelTurns:
    """The rules of a match of a parallel environment."""

    def __init__(self, game: Any, places: Mapping[str, Place], seed: int) -> None:
        self.game = game
        self._places = places
        self._returns = dict.fromkeys(places, 0.0)
        self._ended: dict[str, tuple[bool, bool]] = {}
        self._seen = {place.agent: place.nothing for place in places.values()} | game.reset(seed=seed)[0]

    def to_act(self) -> Collection[str]:
        return [str(agent) for agent in self.game.agents]

    def observe(self, role: str) -> Observation:
        place = self._places[role]
        return place.see(self._seen[place.agent])

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        played = {}
        for role, action in actions.items():
            place = self._places[role]
            played[place.agent] = place.default(self.observe(role)) if action is None else place.act(action)
        seen, rewards, terminated, truncated, _ = self.game.step(played)
        self._seen.update(seen)
        self._ended |= {str(agent): (bool(terminated[agent]), bool(truncated[agent])) for agent in terminated}
        return _credit(self._returns, rewards)

    def ended(self, role: str) -> tuple[bool, bool]:
        return self._ended.get(role, (False, False)) if self.game.agents else self._ended.get(role, (True, False))

    def result(self, role: str) -> Result:
        return Result(self._returns[role])


class SequentialTurns:
    """The rules of a match of an environment whose agents act in turns (AEC: agent environment cycle)."""

    def __init__(self, game: Any, places: Mapping[str, Place], seed: int) -> None:
        self.game = game
        self._places = places
        self._returns = dict.fromkeys(places, 0.0)
        game.reset(seed=seed)

    def to_act(self) -> Collection[str]:
        game = self.game
        while game.agents and any(self.ended(str(game.agent_selection))):
            game.step(None)  # takes an agent whose match is over off the list
        return [str(game.agent_selection)] if game.agents else []

    def observe(self, role: str) -> Observation:
        place = self._places[role]
        return place.see(self.game.observe(place.agent))

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        for role, action in actions.items():
            place = self._places[role]
            self.game.step(place.default(self.observe(role)) if action is None else place.act(action))
        return _credit(self._returns, self.game.rewards)

    def ended(self, role: str) -> tuple[bool, bool]:
        agent = self._places[role].agent
        return bool(self.game.terminations.get(agent, True)), bool(self.game.truncations.get(agent, False))

    def result(self, role: str) -> Result:
        return Result(self._returns[role])


def _credit(returns: dict[str, float], rewards: Mapping[Any, float]) -> dict[str, tuple[float]]:
    credit = {str(agent): (float(reward),) for agent, reward in rewards.items()}
    for role, (reward,) in credit.items():
        returns[role] += reward
    return credit


def _place(game: Any, agent: Any, name: str) -> Place:
    space = game.observation_space(agent)
    acts = doing(game.action_space(agent), name)
    head = acts.heads.get("action")
    if isinstance(space, spaces.Dict) and "action_mask" in space.spaces and isinstance(head, Discrete):
        sees = seeing(spaces.Dict({key: inner for key, inner in space.items() if key != "action_mask"}), name)
        role = Role(sees.inputs, {"action": replace(head, masked=True)})
        see = lambda value: Observation(sees.observe(value), {"action": some_legal(value["action_mask"])})  # noqa: E731
    else:
        sees = seeing(space, name)
        role = Role(sees.inputs, acts.heads)
        see = lambda value: Observation(sees.observe(value), NO_MASKS)  # noqa: E731
    return Place(agent, role, see, acts.act, _zeros(space))


def _zeros(space: spaces.Space) -> Any:
    """A value of `space` as empty as it can be."""
    if isinstance(space, spaces.Dict):
        return {key: _zeros(inner) for key, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(_zeros, space))
    start = getattr(space, "start", 0)
    return np.zeros(space.shape or (), space.dtype) + start


def _make(env: Any, api: str, kwargs: dict[str, Any], **more: Any) -> Any:
    try:
        return (env if callable(env) else _factory(env, api))(**kwargs, **more)
    except TypeError as error:
        raise GameError(f"PettingZoo environment '{env}' cannot be made with the arguments {kwargs | more}: {error}") from error


def _factory(env: str, api: str) -> Callable[..., Any]:
    module, _, name = env.partition(":")
    name = name or {"parallel": "parallel_env", "aec": "env"}[api]
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise GameError(f"PettingZoo environment '{env}' cannot be imported: {error}{_advice(module, error.name or '')}") from error
    if found is None:
        other = "aec" if api == "parallel" else "parallel"
        raise GameError(f"{module} has no '{name}'" + ("" if ":" in env else f"; perhaps the environment is for api: {other}"))
    return found


def _advice(module: str, missing: str) -> str:
    if missing == "pettingzoo":
        return "; pip install 'lamarckian[pettingzoo]'"
    parent, _, name = module.rpartition(".")
    if missing != module:
        return f"; pip install 'pettingzoo[{parent.rpartition('.')[2]}]'" if module.startswith("pettingzoo.") else ""
    path = getattr(importlib.import_module(parent), "__path__", []) if parent else []
    near = difflib.get_close_matches(name, [found.name for found in pkgutil.iter_modules(path)], 1, 0.5)
    return f"; nearest: {parent}.{near[0]}" if near else ""
