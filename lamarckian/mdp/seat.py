"""A role's place in a match: the controller that both kinds of match hand out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lamarckian.errors import ContractError
from lamarckian.mdp.interface import Observation, Result, Step
from lamarckian.mdp.loop import Handoff
from lamarckian.mdp.spaces import Role


class Seen(Protocol):
    """What a seat asks of the rules."""

    def observe(self, role: str) -> Observation: ...

    def result(self, role: str) -> Result: ...


class Seat:
    """Adds up what its role is owed, and hands it over when the role is to act next or its match is over.

    How an action gets in is for the kind of match to say: it gives `step`, and calls `offer`, `credit` and `end`.
    """

    def __init__(self, name: str, role: Role, rules: Seen) -> None:
        self.name = name
        self.role = role
        self.online = True
        self._rules = rules
        self._reward = [0.0] * len(role.rewards)
        self._missed = 0
        self._news: Handoff[Step] = Handoff()
        self._last: Step | None = None

    async def reset(self) -> Observation:
        return (await self._next()).observation

    async def _next(self) -> Step:
        if self._last is not None:
            last, self._last = self._last, self._last._replace(reward=(0.0,) * len(self._reward), missed=0)
            return last
        try:
            return await self._news
        except BaseException:
            self.leave()
            raise

    @property
    def waits(self) -> bool:
        """Whether the role's coroutine waits for what is next."""
        return self._news.awaited

    def leave(self) -> None:
        self.online = False

    def result(self) -> Result:
        return self._rules.result(self.name)

    def credit(self, reward: Sequence[float]) -> None:
        """Adds rewards, one per reward name."""
        if len(reward) != len(self._reward):
            raise ContractError(f"the rules gave role '{self.name}' {len(reward)} rewards; its reward names are {list(self.role.rewards)}")
        for index, value in enumerate(reward):
            self._reward[index] += value

    def end(self, terminated: bool, truncated: bool) -> None:
        """Tells the role's coroutine, as soon as it asks, that the match is over for it."""
        self._last = self._summary(terminated, truncated)
        if self.waits:
            self._news.put(self._last)
            self._last = self._last._replace(reward=(0.0,) * len(self._reward), missed=0)

    def _summary(self, terminated: bool, truncated: bool) -> Step:
        step = Step(self._rules.observe(self.name), tuple(self._reward), terminated, truncated, self._missed)
        self._reward = [0.0] * len(self._reward)
        self._missed = 0
        return step
