"""Sides swapped at random: in each match the roles sit in seats that its seed deals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from lamarckian.errors import CheckpointError, GameError
from lamarckian.mdp.batched import Batched, Observations, Saves, Steps
from lamarckian.mdp.interface import Match, Result
from lamarckian.mdp.wrappers import MatchWrapper, WrappedMatch
from lamarckian.seeding import generator, match_seed


def swapped(mdp: Any) -> Swapped:
    """Seats whoever plays a role in the place of any role, all places being as likely.

    So a policy learns to play from every side, though the recipe names one role for it; and no side's advantage counts for or against it.
    Raises GameError where the roles do not all see and do the same.
    """
    roles = list(mdp.roles.values())
    if any(role != roles[0] for role in roles):
        raise GameError(f"sides can be swapped where all roles see and do the same; those of this game differ: {', '.join(mdp.roles)}")
    return Swapped(mdp)


class Swapped(MatchWrapper):
    """A game whose seats are dealt anew in each match; `k`-th role of the game sits in seat `deal[k]`."""

    def start_many(self, size: int, seed: int) -> SwappedMatches:
        return SwappedMatches(self._mdp.start_many(size, seed), list(self.roles), seed)

    def _around(self, match: Match, seed: int) -> Match:
        return _seated(match, seed)


def deal(seed: int, roles: int) -> np.ndarray:
    """The seats of the roles in the match of this seed, a permutation `[R]`."""
    return generator(seed, "sides").permutation(roles)


def _seated(match: Match, seed: int) -> WrappedMatch:
    wrapped = WrappedMatch(match, lambda name, controller: controller)
    names = list(match.controllers)
    wrapped.controllers = {name: match.controllers[names[seat]] for name, seat in zip(names, deal(seed, len(names)), strict=True)}
    return wrapped


class SwappedMatches:
    """Batched matches whose seats are dealt anew; they save where the game's do. A match ends for all its roles at once."""

    def __init__(self, games: Batched, names: Sequence[str], seed: int) -> None:
        self.size = games.size
        self._games = games
        self._names = names
        self._seed = seed
        self._numbers = np.zeros(games.size, np.int64)
        self._seats = np.zeros((len(names), games.size), np.int64)
        if isinstance(games, Saves):
            self.save, self.load = self._save, self._load

    def reset(self) -> Mapping[str, Observations]:
        self._numbers[:] = 0
        self._deal(range(self.size))
        return self._seen(self._games.reset())

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, Steps]:
        given = [actions[name] for name in self._names]
        played = {
            name: {head: roles.pick([own[head] for own in given]) for head in given[0]}
            for name, roles in zip(self._names, self._by_seat, strict=True)
        }
        steps = self._games.step(played)
        ordered = [steps[name] for name in self._names]
        outcomes = [self._outcome(ordered, deal) for deal in self._by_role]
        ended = np.nonzero(ordered[0].terminated | ordered[0].truncated)[0].tolist()
        if ended:
            self._numbers[ended] += 1
            self._deal(ended)
        seen = self._seen({name: step.observations for name, step in steps.items()})
        for name, outcome in zip(self._names, outcomes, strict=True):
            outcome.observations = seen[name]
        return dict(zip(self._names, outcomes, strict=True))

    def close(self) -> None:
        self._games.close()

    def _deal(self, matches: Sequence[int]) -> None:
        roles = len(self._names)
        for b in matches:
            self._seats[:, b] = deal(match_seed(self._seed, b, int(self._numbers[b])), roles)
        self._by_role = [Deal(seats, roles) for seats in self._seats]
        self._by_seat = [Deal(sitting, roles) for sitting in np.argsort(self._seats, axis=0)]

    def _seen(self, observations: Mapping[str, Observations]) -> dict[str, Observations]:
        ordered = [observations[name] for name in self._names]
        return {name: _view(ordered, seats) for name, seats in zip(self._names, self._by_role, strict=True)}

    def _outcome(self, ordered: Sequence[Steps], seats: Deal) -> Steps:
        """What came of the actions of the role in these seats; the observations follow, for where a match has ended they are another's."""
        results: list[tuple[int, Result]] = []
        for seat, own in enumerate(ordered):
            results += [(match, result) for match, result in own.results if seats.which[match] == seat]
        truncated = seats.pick([own.truncated for own in ordered])
        missed = None
        if any(own.missed is not None for own in ordered):
            missed = seats.pick([np.zeros(self.size, np.int32) if own.missed is None else own.missed for own in ordered])
        return Steps(
            ordered[0].observations,
            seats.pick([own.reward for own in ordered]),
            seats.pick([own.terminated for own in ordered]),
            truncated,
            _final(ordered, Deal(seats.which[truncated], len(ordered))) if truncated.any() else None,
            missed,
            sorted(results, key=itemgetter(0)),
            ordered[0].waiting,
        )

    def _save(self) -> dict[str, np.ndarray]:
        return {**self._games.save(), "sides.number": self._numbers.copy()}  # type: ignore[attr-defined]

    def _load(self, state: Mapping[str, np.ndarray]) -> Mapping[str, Observations]:
        if "sides.number" not in state or state["sides.number"].shape != self._numbers.shape:
            raise CheckpointError(f"saved matches: 'sides.number' must have the shape {self._numbers.shape}; were sides swapped then?")
        self._numbers[:] = state["sides.number"]
        self._deal(range(self.size))
        return self._seen(self._games.load(state))  # type: ignore[attr-defined]


class Deal:
    """For each match b, which of R arrays its row b is taken from: `which`, int `[B]`."""

    def __init__(self, which: np.ndarray, arrays: int) -> None:
        self.which = which
        self._rows = [np.nonzero(which == index)[0] for index in range(1, arrays)]

    def pick(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        first, *others = arrays
        if all(array is first for array in others):
            return first
        picked = first.copy()
        for rows, array in zip(self._rows, others, strict=True):
            picked[rows] = array[rows]
        return picked


def _view(ordered: Sequence[Observations], seats: Deal) -> Observations:
    learn = None
    if any(own.learn is not None for own in ordered):
        learn = seats.pick([np.ones(len(seats.which), np.bool_) if own.learn is None else own.learn for own in ordered])
    inputs = {name: seats.pick([own.inputs[name] for own in ordered]) for name in ordered[0].inputs}
    legal = {name: seats.pick([own.legal[name] for own in ordered]) for name in ordered[0].legal}
    return Observations(inputs, legal, learn)


def _final(ordered: Sequence[Steps], seats: Deal) -> Observations | None:
    """Each role has a row for each match that was truncated, so all that is left to pick is whose."""
    finals = [own.final for own in ordered if own.final is not None]
    return _view(finals, seats) if len(finals) == len(ordered) else None
