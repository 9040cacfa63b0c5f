"""Games that wait for their players, from their rules alone: all at once, or in turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from lamarckian.mdp.interface import Action, Observation, Result, Step
from lamarckian.mdp.loop import Handoff, tick
from lamarckian.mdp.seat import Seat
from lamarckian.mdp.spaces import Role


class Turns(Protocol):
    """The rules of one match of a game that waits."""

    def to_act(self) -> Collection[str]:
        """The roles whose actions the next `advance` takes; none when every role's match is over."""
        ...

    def observe(self, role: str) -> Observation:
        """What `role` sees now."""
        ...

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        """Plays the actions of `to_act()`. None stands for a role that has left: the game's default applies.

        Gives the rewards of each role that got any.
        """
        ...

    def ended(self, role: str) -> tuple[bool, bool]:
        """Whether the match is over for `role`: terminated, truncated."""
        ...

    def result(self, role: str) -> Result:
        """The result of `role` so far."""
        ...


class WaitingSeat(Seat):
    """A controller of a match that waits. `decided` is called once for each action that was waited for."""

    def __init__(self, name: str, role: Role, rules: Turns, decided: Callable[[], None]) -> None:
        super().__init__(name, role, rules)
        self._decided = decided
        self._pending = False
        self._action: Action | None = None

    async def step(self, action: Action) -> Step:
        self._action = action
        self._decide()
        return await self._next()

    def leave(self) -> None:
        self.online = False
        self._decide()

    def _decide(self) -> None:
        if self._pending:
            self._pending = False
            self._decided()

    def offer(self) -> bool:
        """Hands the observation to the role's coroutine, now or when it asks. Says whether to wait for an action."""
        if self.online:
            self._pending = True
            self._news.put(self._summary(False, False))
        return self.online

    def take(self) -> Action | None:
        """The action that was decided on; None where the role has left."""
        action, self._action = self._action, None
        return action if self.online else None


class SynchronousMatch:
    """A match that waits for every role that is to act. A role that leaves is no longer waited for.

    close: called once, when the match is closed.
    """

    waits = True

    def __init__(self, rules: Turns, roles: Mapping[str, Role], close: Callable[[], None] | None = None) -> None:
        self._rules = rules
        self._close = close
        self._missing = 0
        self._decided: Handoff[None] = Handoff()
        self.controllers = {name: WaitingSeat(name, role, rules, self._count) for name, role in roles.items()}

    def _count(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._decided.put(None)

    async def run(self) -> None:
        rules, playing = self._rules, dict(self.controllers)
        while (acting := rules.to_act()) and any(seat.online for seat in playing.values()):
            seats = [playing[name] for name in acting]
            self._missing = sum([seat.offer() for seat in seats])
            await (self._decided if self._missing else tick())
            rewards = rules.advance({seat.name: seat.take() for seat in seats})
            for name in list(playing):
                if name in rewards:
                    playing[name].credit(rewards[name])
                terminated, truncated = rules.ended(name)
                if terminated or truncated:
                    playing.pop(name).end(terminated, truncated)

    def close(self) -> None:
        if self._close is not None:
            self._close()
            self._close = None
