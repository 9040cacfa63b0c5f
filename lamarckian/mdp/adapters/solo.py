"""Matches of a single-player environment that has Gymnasium's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from lamarckian.errors import ContractError, GameError
from lamarckian.mdp.interface import NO_MASKS, Action, Controller, Observation, Result, Step
from lamarckian.mdp.loop import Handoff
from lamarckian.mdp.spaces import Role

PLAYER = "player"

_new = tuple.__new__  # named tuples at half the price: this module is all that a step costs above the environment's own

See: TypeAlias = Callable[[Any], Mapping[str, np.ndarray]]
Act: TypeAlias = Callable[[Action], Any]
Legal: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]]


class Environment(Protocol):
    """What is used of a `gymnasium.Env`."""

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...

    def render(self) -> Any: ...


def env_seed(seed: int) -> int:
    """A match's seed as environments take it: 31 bits, which fits the C integers that many of them hold it in."""
    return seed % 2**31


class Player:
    """The controller of the only role. `step` steps the environment at once, and never suspends."""

    __slots__ = ("_act", "_left", "_legal", "_over", "_reset", "_return", "_see", "_step", "role")

    def __init__(self, env: Environment, role: Role, see: See, act: Act, legal: Legal | None, seed: int) -> None:
        self.role = role
        self._see = see
        self._act = act
        self._legal = legal
        self._reset: Callable[[], Any] = lambda: env.reset(seed=seed)
        limited = isinstance(env, TimeLimit)  # its steps are counted here, at a tenth of what the wrapper costs
        self._left = env._max_episode_steps if limited else -1  # type: ignore[attr-defined]
        self._step: Callable[[Any], Any] = env.env.step if limited else env.step  # type: ignore[attr-defined]
        self._over: Handoff[None] = Handoff()
        self._return = 0.0

    async def reset(self) -> Observation:
        observation, info = self._reset()
        return Observation(self._see(observation), NO_MASKS if self._legal is None else self._legal(info), True)

    async def step(self, action: Action) -> Step:
        observation, reward, terminated, truncated, info = self._step(self._act(action))
        self._left -= 1
        if not self._left:
            truncated = True
        reward = float(reward)
        self._return += reward
        if terminated or truncated:
            self.leave()
        legal = NO_MASKS if self._legal is None else self._legal(info)
        seen = _new(Observation, (self._see(observation), legal, True))
        return _new(Step, (seen, (reward,), terminated, truncated, 0, info))

    def leave(self) -> None:
        self._step = self._reset = _is_over
        self._over.put(None)

    def result(self) -> Result:
        return Result(self._return)

    async def over(self) -> None:
        """Waits until the player is done."""
        await self._over


def _is_over(*_: Any) -> Any:
    raise ContractError("this match is over; start another")


class SoloMatch:
    """A match of one player, who is the clock: it waits for nobody else. The result's score is the sum of rewards.

    see: inputs of an environment's observation. act: the environment's action of ours. legal: the masks of its info, if any.
    release: gets the environment back when the match is closed.
    """

    waits = True

    def __init__(
        self, env: Environment, role: Role, see: See, act: Act, legal: Legal | None, seed: int, release: Callable[[Any], None]
    ) -> None:
        self._env = env
        self._release: Callable[[Any], None] | None = release
        self._player = Player(env, role, see, act, legal, env_seed(seed))
        self.controllers: Mapping[str, Controller] = {PLAYER: self._player}

    async def run(self) -> None:
        await self._player.over()

    def render(self) -> np.ndarray:
        """The match as it stands, RGB uint8 `[height, width, 3]`."""
        try:
            return self._env.render()
        except (ImportError, gymnasium.error.Error) as error:
            raise GameError(f"this game cannot be drawn: {error}") from error

    def close(self) -> None:
        if self._release is not None:
            self._player.leave()
            self._release(self._env)
            self._release = None
