"""Wrappers that fit any game, asynchronous or not: they stand between a controller and whoever holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from lamarckian.errors import GameError
from lamarckian.mdp.interface import MDP, Action, Controller, Match, Observation, Result, Step
from lamarckian.mdp.spaces import Role

Script: TypeAlias = Callable[[str, Observation], Action | None]
"""From a role's name and what it sees to the action that it must play, or None where the agent decides."""


def frame_skip(mdp: MDP, n: int) -> Wrapped:
    """Repeats each action for `n` steps of its controller; rewards and missed ticks add up, and the end ends it early.

    An action is repeated whether or not the masks in between allow it. Raises GameError where `n` is below 1.
    """
    if n < 1:
        raise GameError(f"frame_skip repeats an action at least once; given {n}")
    return Wrapped(mdp, partial(Repeated, n=n))


def scripted(mdp: MDP, script: Script) -> Wrapped:
    """Lets `script` decide where it gives an action: that is what is played, and the observation says `learn=False`.

    `script(role_name, observation)` is asked once per observation, and must be picklable for the game to be so.
    """
    return Wrapped(mdp, partial(Scripted, script=script))


class Repeated:
    """A controller whose actions last `n` steps."""

    def __init__(self, name: str, controller: Controller, n: int) -> None:
        self.role = controller.role
        self._controller = controller
        self._n = n

    async def reset(self) -> Observation:
        return await self._controller.reset()

    async def step(self, action: Action) -> Step:
        total = [0.0] * len(self.role.rewards)
        missed = 0
        for _ in range(self._n):
            step = await self._controller.step(action)
            total = [sum(pair) for pair in zip(total, step.reward, strict=True)]
            missed += step.missed
            if step.terminated or step.truncated:
                break
        return step._replace(reward=total, missed=missed)

    def leave(self) -> None:
        self._controller.leave()

    def result(self) -> Result:
        return self._controller.result()


class Scripted:
    """A controller that a script may overrule."""

    def __init__(self, name: str, controller: Controller, script: Script) -> None:
        self.role = controller.role
        self._name = name
        self._controller = controller
        self._script = script
        self._forced: Action | None = None

    async def reset(self) -> Observation:
        return self._consult(await self._controller.reset())

    async def step(self, action: Action) -> Step:
        step = await self._controller.step(action if self._forced is None else self._forced)
        if step.terminated or step.truncated:
            return step
        return step._replace(observation=self._consult(step.observation))

    def _consult(self, observation: Observation) -> Observation:
        self._forced = self._script(self._name, observation)
        return observation if self._forced is None else observation._replace(learn=False)

    def leave(self) -> None:
        self._controller.leave()

    def result(self) -> Result:
        return self._controller.result()


@dataclass(frozen=True)
class Wrapped:
    """A game whose controllers are wrapped, each by `wrap(name, controller)`."""

    mdp: MDP
    wrap: Callable[[str, Controller], Controller]

    @property
    def roles(self) -> Mapping[str, Role]:
        return self.mdp.roles

    @property
    def bots(self) -> Mapping[str, type]:
        """The bots of the game, which play as well behind wrapped controllers."""
        return getattr(self.mdp, "bots", {})

    def start(self, seed: int) -> WrappedMatch:
        return WrappedMatch(self.mdp.start(seed), self.wrap)

    def start_rendered(self, seed: int) -> WrappedMatch:
        """Starts a match that can be looked at, where the game has such."""
        return WrappedMatch(getattr(self.mdp, "start_rendered", self.mdp.start)(seed), self.wrap)


class WrappedMatch:
    """A match whose controllers are wrapped; all else, such as `render`, is the match's own."""

    def __init__(self, match: Match, wrap: Callable[[str, Controller], Controller]) -> None:
        self._match = match
        self.controllers: Mapping[str, Controller] = {name: wrap(name, controller) for name, controller in match.controllers.items()}

    async def run(self) -> None:
        await self._match.run()

    def close(self) -> None:
        self._match.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._match, name)
