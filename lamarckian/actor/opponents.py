"""Who sits opposite the learner in each of an actor's matches, where a league plays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from lamarckian.actor.policy import ActingPolicy
from lamarckian.errors import CheckpointError
from lamarckian.mdp import Bot
from lamarckian.record.league import SELF, Opponent
from lamarckian.seeding import generator

ROUNDS = 2
"""Matches that each place of a slot plays, on the average, before the slot's next draw."""
ATTEMPTS = 3


class Opponents(Protocol):
    """Where an actor learns whom it may meet; `lamarckian.record.league.LeagueFolder` on one machine."""

    def opponents(self) -> list[Opponent]:
        """All of them, with the share of each now."""
        ...

    def parameters(self, version: int) -> np.ndarray:
        """What a past version holds, float32, flat."""
        ...


Make: TypeAlias = Callable[[str, np.random.Generator], ActingPolicy]
"""The policy of an opponent, by name, that draws its actions from this stream."""


class Seating:
    """Draws opponents for M matches, and holds the policies of those that sit somewhere.

    Matches m with the same m mod S share a *slot*, for which one opponent is drawn. When `ROUNDS` matches a place have begun since, and
    nobody of the draw before is left, the slot draws anew, whatever it drew before: so each opponent is met as often as its share says, and
    with S = `distinct` // 2 there are never more than `distinct` at a time. A match keeps its opponent to its end.

    Each draw has a random stream of its own, and is made in `settle`, between the ends and beginnings of the matches of one tick and the
    decisions after them: so the order of matches within a tick makes no difference.

    bots: opponents that are not policies. make: the policies of all others; those of past versions get their parameters here.
    names: who sits in each match. guests: the policies among them but for the newest version, by name.
    """

    def __init__(
        self,
        source: Opponents,
        bots: Collection[str],
        make: Make,
        matches: int,
        distinct: int,
        seed: int,
    ) -> None:
        slots = max(1, min(distinct // 2, matches))
        self.names = [""] * matches
        self.guests: dict[str, ActingPolicy] = {}
        self._source = source
        self._bots = frozenset(bots)
        self._make = make
        self._seed = seed
        self._slot = np.arange(matches) % slots
        self._quota = ROUNDS * np.bincount(self._slot)
        self._draw = np.full(matches, -1)  # which draw of its slot each match plays
        self._draws = np.zeros(slots, np.int64)
        self._begun = np.zeros(slots, np.int64)
        self._drawn = [""] * slots
        self._groups: dict[str, np.ndarray] | None = None

    def start(self) -> None:
        """The first draws, before any match begins."""
        for slot in range(len(self._draws)):
            self._drawn[slot] = self._pick(slot)

    def begin(self, match: int) -> str:
        """A match begins; who sits in it."""
        slot = self._slot[match]
        self._draw[match] = self._draws[slot]
        self._begun[slot] += 1
        self.names[match] = self._drawn[slot]
        self._groups = None
        return self.names[match]

    def settle(self) -> None:
        """Draws anew where it is time to."""
        due = np.nonzero(self._begun >= self._quota)[0]
        for slot in due.tolist():
            if (self._draw[self._slot == slot] == self._draws[slot]).all():
                self._draws[slot] += 1
                self._begun[slot] = 0
                self._drawn[slot] = self._pick(slot)

    def groups(self) -> dict[str, np.ndarray]:
        """The matches of each opponent that sits somewhere, ascending; opponents by name."""
        if self._groups is None:
            names = np.array(self.names)
            self._groups = {str(name): np.nonzero(names == name)[0] for name in np.unique(names)}
        return self._groups

    def save(self) -> dict[str, Any]:
        """All that goes on from here; with the parameters of past versions, which the league may have dropped since."""
        return {
            "names": list(self.names),
            "drawn": list(self._drawn),
            "draw": self._draw.copy(),
            "draws": self._draws.copy(),
            "begun": self._begun.copy(),
            "guests": {
                name: {
                    "version": guest.version,
                    "parameters": guest.parameters.copy() if guest.version >= 0 else None,
                    "generator": guest.generator.bit_generator.state,
                    "states": guest.states.save(),
                }
                for name, guest in self.guests.items()
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`; what recurrent guests remember follows in `remember`."""
        self.names, self._drawn = list(state["names"]), list(state["drawn"])
        self._draw[:], self._draws[:], self._begun[:] = state["draw"], state["draws"], state["begun"]
        self._groups = None
        for name, saved in state["guests"].items():
            self.guests[name] = self._make(name, generator(self._seed))
            self.guests[name].generator.bit_generator.state = saved["generator"]
            if saved["parameters"] is not None:
                self.guests[name].hold(saved["version"], saved["parameters"])

    def remember(self, state: Mapping[str, Any]) -> None:
        """Gives recurrent guests their states back, once all matches of `state` have begun again."""
        for name, saved in state["guests"].items():
            self.guests[name].states.load(saved["states"])

    def _pick(self, slot: int) -> str:
        random = generator(self._seed, "opponents", slot, int(self._draws[slot]))
        for attempt in range(1, ATTEMPTS + 1):
            opponents = self._source.opponents()
            shares = np.array([opponent.share for opponent in opponents])
            chosen = opponents[random.choice(len(opponents), p=shares / shares.sum())]
            try:
                self._admit(chosen, random)
                break
            except CheckpointError:  # the league has dropped it since it was in the index
                if attempt == ATTEMPTS:
                    raise
        wanted = {chosen.name, *self.names, *(drawn for other, drawn in enumerate(self._drawn) if other != slot)}
        self.guests = {name: policy for name, policy in self.guests.items() if name in wanted}
        return chosen.name

    def _admit(self, opponent: Opponent, random: np.random.Generator) -> None:
        name = opponent.name
        if name == SELF or name in self._bots or name in self.guests:
            return
        policy = self._make(name, random)
        if opponent.version is not None:
            policy.hold(opponent.version, self._source.parameters(opponent.version))
        self.guests[name] = policy


@dataclass(frozen=True)
class League:
    """The roles that a league plays in an actor: who sits where, and what makes its bots, by name."""

    seating: Seating
    roles: Sequence[str]
    bots: Mapping[str, Callable[[], Bot]]
