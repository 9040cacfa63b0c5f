"""Who sits opposite the learner in each of an actor's matches, where a league plays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from lamarckian.actor.policy import ActingPolicy, Decision
from lamarckian.errors import CheckpointError
from lamarckian.mdp import Bot
from lamarckian.record.league import SELF, Opponent
from lamarckian.seeding import generator

ROUNDS = 2
"""Matches that each place of a slot plays, on the average, before the slot's next draw."""
ATTEMPTS = 3
NOWHERE = np.zeros(0, np.int64)


class Opponents(Protocol):
    """Where an actor learns whom it may meet; `lamarckian.record.league.LeagueFolder` on one machine."""

    def opponents(self) -> list[Opponent]:
        """All of them, with the share of each now."""
        ...

    def parameters(self, version: int) -> np.ndarray:
        """What a past version holds, float32, flat."""
        ...


class Seating:
    """Draws opponents for M matches, and holds the policies of those that sit somewhere.

    Matches m with the same m mod S share a *slot*, for which one opponent is drawn. When `ROUNDS` matches a place have begun since, and
    nobody of the draw before is left, the slot draws anew, whatever it drew before: so each opponent is met as often as its share says, and
    with S = `distinct` // 2 there are never more than `distinct` at a time. A match keeps its opponent to its end.

    Each draw has a random stream of its own, and is made in `settle`, between the ends and beginnings of the matches of one tick and the
    decisions after them: so the order of matches within a tick makes no difference.

    bots: opponents that are not policies. make: the policies of all others by name; past versions' get their parameters here.
    names: who sits in each match; changes: how often that has changed. guests: the policies but for the newest version, by name.
    """

    def __init__(
        self,
        source: Opponents,
        bots: Collection[str],
        make: Callable[[str], ActingPolicy],
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
        self.changes = 0
        self._found: tuple[int, dict[str, np.ndarray]] = -1, {}

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
        self.changes += 1
        return self.names[match]

    def settle(self) -> None:
        """Draws anew where it is time to."""
        due = np.nonzero(self._begun >= self._quota)[0]
        for slot in due.tolist():
            if (self._draw[self._slot == slot] == self._draws[slot]).all():
                self._draws[slot] += 1
                self._begun[slot] = 0
                self._drawn[slot] = self._pick(slot)

    def of(self, name: str) -> np.ndarray:
        """The matches where this opponent sits, ascending."""
        if self._found[0] != self.changes:
            names = np.array(self.names)
            self._found = self.changes, {name: np.nonzero(names == name)[0] for name in set(self.names)}
        return self._found[1].get(name, NOWHERE)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The matches where the newest version sits, and where guests do, ascending."""
        guests = [matches for guest in self.guests if len(matches := self.of(guest))]
        return self.of(SELF), np.sort(np.concatenate(guests)) if guests else NOWHERE

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
                    "states": guest.states.save(),
                }
                for name, guest in self.guests.items()
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`."""
        self.names, self._drawn = list(state["names"]), list(state["drawn"])
        self._draw[:], self._draws[:], self._begun[:] = state["draw"], state["draws"], state["begun"]
        self.changes += 1
        for name, saved in state["guests"].items():
            self.guests[name] = self._make(name)
            if saved["parameters"] is not None:
                self.guests[name].hold(saved["version"], saved["parameters"])
            self.guests[name].states.load(saved["states"])

    def _pick(self, slot: int) -> str:
        random = generator(self._seed, "opponents", slot, int(self._draws[slot]))
        for attempt in range(1, ATTEMPTS + 1):
            opponents = self._source.opponents()
            shares = np.array([opponent.share for opponent in opponents])
            chosen = opponents[random.choice(len(opponents), p=shares / shares.sum())]
            try:
                self._admit(chosen)
                break
            except CheckpointError:  # the league has dropped it since it was in the index
                if attempt == ATTEMPTS:
                    raise
        wanted = {chosen.name, *self.names, *(drawn for other, drawn in enumerate(self._drawn) if other != slot)}
        self.guests = {name: policy for name, policy in self.guests.items() if name in wanted}
        return chosen.name

    def _admit(self, opponent: Opponent) -> None:
        name = opponent.name
        if name == SELF or name in self._bots or name in self.guests:
            return
        policy = self._make(name)
        if opponent.version is not None:
            policy.hold(opponent.version, self._source.parameters(opponent.version))
        self.guests[name] = policy


class Crowd:
    """All guests of a seating as one policy, which answers a batch of observations whoever of them made which.

    Each guest's network gets its own rows; all else, such as drawing actions, is done at once for all whose networks say alike what to do,
    since it costs as much for few rows as for many. So four guests take little more time than one.
    """

    version = -1

    def __init__(self, seating: Seating, random: np.random.Generator) -> None:
        self.generator = random
        self.inference_s = 0.0
        self._seating = seating
        self._sorted: tuple[int, np.ndarray, list[tuple[ActingPolicy, np.ndarray]]] | None = None

    def adopt(self) -> None:
        """Guests keep their versions."""

    def begin(self, seats: np.ndarray) -> None:
        """Matches begin at these seats, int `[K]`."""
        for policy, rows in self._parts(seats):
            policy.begin(seats[rows])

    def decide(self, inputs: Mapping[str, np.ndarray], legal: Mapping[str, np.ndarray], seats: np.ndarray, count: int) -> Decision:
        """What all of them play; nothing else, for nobody learns from it. seats: seat % M is the match."""
        parts = self._parts(seats)
        order = np.concatenate([rows for _, rows in parts])
        sorted_inputs = {name: array[order] for name, array in inputs.items()}
        sorted_legal = {name: mask[order] for name, mask in legal.items()}
        played: dict[str, np.ndarray] = {}
        end = 0
        for _, group in groupby(parts, lambda part: part[0].outputs):
            first, outputs = end, []
            for policy, rows in group:
                start, end = end, end + len(rows)
                began = policy.inference_s
                outputs.append(policy.infer({name: array[start:end] for name, array in sorted_inputs.items()}, seats[rows], len(rows))[0])
                self.inference_s += policy.inference_s - began
            joined = {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0] if name != "value"}
            _, _, actions = policy.sample(joined, {name: mask[first:end] for name, mask in sorted_legal.items()})
            for name, array in actions.items():
                if name not in played:
                    played[name] = np.empty((count, *array.shape[1:]), array.dtype)
                played[name][order[first:end]] = array
        return Decision({}, {}, played, np.empty((0, 0), np.float32))

    def _parts(self, seats: np.ndarray) -> list[tuple[ActingPolicy, np.ndarray]]:
        """Each guest that sits in one of these seats, with the places of its seats among them."""
        if self._sorted is not None and self._sorted[0] == self._seating.changes and np.array_equal(self._sorted[1], seats):
            return self._sorted[2]
        guests, names = self._seating.guests, np.array(self._seating.names)[seats % len(self._seating.names)]
        present = sorted(set(names.tolist()), key=lambda name: (guests[name].outputs, name))
        parts = [(guests[name], np.nonzero(names == name)[0]) for name in present]
        self._sorted = self._seating.changes, seats, parts
        return parts


@dataclass(frozen=True)
class League:
    """The roles that a league plays in an actor: who sits where, the policies among them as one, and what makes its bots, by name."""

    seating: Seating
    crowd: Crowd
    roles: Sequence[str]
    bots: Mapping[str, Callable[[], Bot]]

    def save(self) -> dict[str, Any]:
        return {"seating": self.seating.save(), "generator": self.crowd.generator.bit_generator.state}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of starting."""
        self.seating.load(state["seating"])
        self.crowd.generator.bit_generator.state = state["generator"]
