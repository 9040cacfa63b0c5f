"""Wrappers that fit any game, asynchronous or not: they stand between a controller and whoever holds it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lamarckian.errors import ContractError, GameError
from lamarckian.mdp.asynchronous import AsynchronousMatch
from lamarckian.mdp.batched import Batched, Observations, Saves, Steps
from lamarckian.mdp.interface import MDP, Action, Controller, Match, Observation, Result, Step
from lamarckian.mdp.spaces import Role
from lamarckian.mdp.synchronous import SynchronousMatch

Script: TypeAlias = Callable[[str, Observation], Action | None]
"""From a role's name and what it sees to the action that it must play, or None where the agent decides."""

Potential: TypeAlias = Callable[[str, Observation], float]
"""From a role's name and what it sees to how good it is to be there."""


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


def shaped(mdp: MDP, potential: Potential, gamma: float, name: str = "shaping") -> ShapedGame:
    """Adds potential-based shaping to the reward `name`, which is made where the roles do not have it (Ng, Harada & Russell 1999).

    A step from s to s' is paid F = γ Φ(s') − Φ(s) more, with Φ = `potential(role_name, observation)`, and Φ = 0 where the match was
    terminated (not where it was truncated, for there the value goes on). An episode's discounted sum of F is then −Φ(s₀), whatever is
    done in it: with the learner's own `gamma`, and a weight like that of the rewards it helps, the best policy stays the best.

    `potential` must be picklable for the game to be so. A step is a decision of the role, so frames are to be skipped inside,
    `shaped(frame_skip(mdp, n), …)`, not around. Matches are stepped as coroutines. Raises GameError where `gamma` is not in [0, 1].
    """
    if not 0 <= gamma <= 1:
        raise GameError(f"shaped takes a discount gamma in [0, 1]; given {gamma}")
    return ShapedGame(mdp, partial(Shaped, potential=potential, gamma=gamma, reward=name), name)


def zero_sum(mdp: MDP) -> ZeroSum:
    """Pays each role, for each reward, its own less the mean of all other roles' over the same ticks.

    The rewards are settled tick by tick, where the rules give them. So they are exact at whatever pace the roles act, and two roles'
    rewards add up to 0 in every match. Both ways of stepping are supported.

    Raises GameError where there is one role, the roles' rewards have different names, or `mdp` is wrapped: other wrappers go around
    this one. `start` raises it where the match is not an `AsynchronousMatch` or `SynchronousMatch`.
    """
    rewards = {name: role.rewards for name, role in mdp.roles.items()}
    if len(rewards) < 2:
        raise GameError(f"zero_sum takes two roles or more; the game has {', '.join(rewards)}")
    if len(set(rewards.values())) > 1:
        raise GameError(f"zero_sum takes roles with the same rewards; the game's have {rewards}")
    if isinstance(mdp, Wrapped):
        raise GameError("zero_sum goes around the game itself; put other wrappers around it, as in frame_skip(zero_sum(game), 4)")
    return ZeroSum(mdp)


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


class Shaped:
    """A controller whose steps are paid by the change of a potential."""

    def __init__(self, name: str, controller: Controller, potential: Potential, gamma: float, reward: str) -> None:
        self.role = _with_reward(controller.role, reward)
        self._name = name
        self._controller = controller
        self._potential = potential
        self._gamma = gamma
        self._index = self.role.rewards.index(reward)
        self._before = 0.0

    async def reset(self) -> Observation:
        observation = await self._controller.reset()
        self._before = self._measure(observation)
        return observation

    async def step(self, action: Action) -> Step:
        step = await self._controller.step(action)
        after = 0.0 if step.terminated else self._measure(step.observation)
        reward = [*step.reward, *[0.0] * (len(self.role.rewards) - len(step.reward))]
        reward[self._index] += self._gamma * after - self._before
        self._before = after
        return step._replace(reward=reward)

    def _measure(self, observation: Observation) -> float:
        potential = float(self._potential(self._name, observation))
        if not math.isfinite(potential):
            raise ContractError(f"the potential of role '{self._name}' is {potential}; it must be finite wherever the role can be")
        return potential

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


@dataclass(frozen=True)
class ShapedGame(Wrapped):
    """A wrapped game whose roles have a reward `reward`, of their own or added."""

    reward: str

    @property
    def roles(self) -> Mapping[str, Role]:
        return {name: _with_reward(role, self.reward) for name, role in self.mdp.roles.items()}


def _with_reward(role: Role, name: str) -> Role:
    return role if name in role.rewards else replace(role, rewards=(*role.rewards, name))


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


class MatchWrapper(ABC):
    """A game that plays another's matches, each as `_around` makes it; the batched way is the subclass's affair."""

    def __init__(self, mdp: Any) -> None:
        self.roles: Mapping[str, Role] = mdp.roles
        self.bots: Mapping[str, type] = getattr(mdp, "bots", {})
        self.batchable: bool = hasattr(mdp, "start_many") and getattr(mdp, "batchable", True)
        self.exact: bool = getattr(mdp, "exact", True)
        self._mdp = mdp

    def start(self, seed: int) -> Match:
        return self._around(self._mdp.start(seed), seed)

    def start_rendered(self, seed: int) -> Match:
        """Starts a match that can be looked at, where the game has such."""
        return self._around(getattr(self._mdp, "start_rendered", self._mdp.start)(seed), seed)

    @abstractmethod
    def _around(self, match: Match, seed: int) -> Match:
        """The match of this seed as it is to be played."""


class ZeroSum(MatchWrapper):
    """A game in which what one role gains, the others lose."""

    def start_many(self, size: int, seed: int) -> ZeroSumMatches:
        return ZeroSumMatches(self._mdp.start_many(size, seed))

    def _around(self, match: Match, seed: int) -> Match:
        return _settle(match)


def _settle(match: Match) -> Match:
    if not isinstance(match, AsynchronousMatch | SynchronousMatch):
        match.close()
        raise GameError(f"zero_sum takes a match made of rules, an AsynchronousMatch or a SynchronousMatch, not a {type(match).__name__}")
    match._rules = ZeroSumRules(match._rules, match.controllers)
    return match


class ZeroSumRules:
    """The rules of a match, but for what they pay."""

    def __init__(self, rules: Any, controllers: Mapping[str, Controller]) -> None:
        self._rules = rules
        self._nothing = {name: (0.0,) * len(controller.role.rewards) for name, controller in controllers.items()}

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        paid = {**self._nothing, **self._rules.advance(actions)}
        if any(len(paid[name]) != len(nothing) for name, nothing in self._nothing.items()):
            return paid  # the match refuses these
        columns = {name: np.asarray(reward, np.float64) for name, reward in paid.items()}
        return {name: reward.tolist() for name, reward in _less_the_others(columns).items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rules, name)


class ZeroSumMatches:
    """Batched matches, but for what they pay; they save where the game's do."""

    def __init__(self, games: Batched) -> None:
        self.size = games.size
        self._games = games
        if isinstance(games, Saves):
            self.save, self.load = games.save, games.load

    def reset(self) -> Mapping[str, Observations]:
        return self._games.reset()

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, Steps]:
        steps = self._games.step(actions)
        rewards = _less_the_others({name: step.reward.astype(np.float64) for name, step in steps.items()})
        return {name: replace(step, reward=rewards[name].astype(np.float32)) for name, step in steps.items()}

    def close(self) -> None:
        self._games.close()


def _less_the_others(rewards: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each role's own rewards less the mean of the others', arrays of one shape."""
    return {
        name: own - sum(reward for other, reward in rewards.items() if other != name) / (len(rewards) - 1) for name, own in rewards.items()
    }
