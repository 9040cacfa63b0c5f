"""Games whose clock does not wait, from their rules alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lamarckian.mdp.interface import Action, Observation, Result, Step
from lamarckian.mdp.loop import tick
from lamarckian.mdp.seat import Seat
from lamarckian.mdp.spaces import Role


class Rules(Protocol):
    """The rules of one match: no clock, no seats, no I/O."""

    terminated: bool
    truncated: bool

    def observe(self, role: str) -> Observation:
        """What `role` sees now."""
        ...

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        """One tick. None stands for a role that has no action now: the game's default applies. Gives each role's rewards."""
        ...

    def result(self, role: str) -> Result:
        """The result of `role` so far."""
        ...


class TimedSeat(Seat):
    """A controller of an asynchronous match.

    period: ticks between two decisions; an action stays in effect that long.
    latency: ticks from the observation to the effect of the action that answers it.
    """

    def __init__(self, name: str, role: Role, rules: Rules, period: int, latency: int) -> None:
        super().__init__(name, role, rules)
        self._period = period
        self._latency = latency
        self._now = 0
        self._due = 0
        self._expires = 0
        self._action: Action | None = None
        self._queue: deque[tuple[int, Action]] = deque()

    async def step(self, action: Action) -> Step:
        self._queue.append((self._now + self._latency, action))
        self._due = self._now + self._period
        return await self._next()

    def leave(self) -> None:
        self.online = False
        self._queue.clear()

    def offer(self, now: int) -> None:
        """Hands the observation of tick `now` to the role's coroutine, if it is due and asks for one."""
        self._now = now
        if now >= self._due and self._news.awaited:
            self._news.put(self._summary(False, False))

    def take(self, now: int) -> Action | None:
        """The action in effect at tick `now`; None counts as a missed tick."""
        while self._queue and self._queue[0][0] <= now:
            effect, self._action = self._queue.popleft()
            self._expires = effect + self._period
        if self.online and now < self._expires:
            return self._action
        self._missed += 1
        return None


class AsynchronousMatch:
    """A match whose tick never waits: a role that is late gets the default action, and its `missed` grows.

    period, latency: per role, in ticks (see `TimedSeat`); 1 and 0 where a role is not named.
    close: called once, when the match is closed.
    """

    def __init__(
        self,
        rules: Rules,
        roles: Mapping[str, Role],
        period: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._rules = rules
        self._close = close
        self._seats = [
            TimedSeat(name, role, rules, (period or {}).get(name, 1), (latency or {}).get(name, 0)) for name, role in roles.items()
        ]
        self.controllers = {seat.name: seat for seat in self._seats}

    async def run(self) -> None:
        rules, seats, now = self._rules, self._seats, 0
        if not all(seat.waits for seat in seats):
            await tick()  # their coroutines sit down
        while not (rules.terminated or rules.truncated):
            for seat in seats:
                seat.offer(now)
            await tick()
            rewards = rules.advance({seat.name: seat.take(now) for seat in seats})
            for seat in seats:
                seat.credit(rewards[seat.name])
            now += 1
        for seat in seats:
            seat.end(rules.terminated, rules.truncated)

    def close(self) -> None:
        if self._close is not None:
            self._close()
            self._close = None
