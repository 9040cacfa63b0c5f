"""Sides swapped at random: in each match the roles sit in seats that its seed deals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian.errors import CheckpointError, GameError
from lamarckian.mdp.batched import Batched, Observations, Saves, Steps
from lamarckian.mdp.interface import Match, Result
from lamarckian.mdp.spaces import Role
from lamarckian.mdp.wrappers import WrappedMatch
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


class Swapped:
    """A game whose seats are dealt anew in each match; `k`-th role of the game sits in seat `deal[k]`."""

    def __init__(self, mdp: Any) -> None:
        self.roles: Mapping[str, Role] = mdp.roles
        self.bots: Mapping[str, type] = getattr(mdp, "bots", {})
        self.batchable: bool = hasattr(mdp, "start_many") and getattr(mdp, "batchable", True)
        self.exact: bool = getattr(mdp, "exact", True)
        self._mdp = mdp

    def start(self, seed: int) -> Match:
        return _seated(self._mdp.start(seed), seed)

    def start_rendered(self, seed: int) -> Match:
        """Starts a match that can be looked at, where the game has such."""
        return _seated(getattr(self._mdp, "start_rendered", self._mdp.start)(seed), seed)

    def start_many(self, size: int, seed: int) -> SwappedMatches:
        return SwappedMatches(self._mdp.start_many(size, seed), list(self.roles), seed)


def deal(seed: int, roles: int) -> np.ndarray:
    """The seats of the roles in the match of this seed, a permutation `[R]`."""
    return generator(seed, "sides").permutation(roles)


def _seated(match: Match, seed: int) -> WrappedMatch:
    wrapped = WrappedMatch(match, lambda name, controller: controller)
    names = list(match.controllers)
    wrapped.controllers = {name: match.controllers[names[seat]] for name, seat in zip(names, deal(seed, len(names)), strict=True)}
    return wrapped


class SwappedMatches:
    """Batched matches whose seats are dealt anew; they save where the game's do."""

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
        played = {}
        for seat, name in enumerate(self._names):
            by = np.argmax(self._seats == seat, axis=0)
            given = [actions[other] for other in self._names]
            played[name] = {head: _pick(by, [own[head] for own in given]) for head in given[0]}
        steps = self._games.step(played)
        ordered = [steps[name] for name in self._names]
        outcomes = [self._outcome(ordered, seats) for seats in self._seats]
        ended = np.nonzero(ordered[0].terminated | ordered[0].truncated)[0].tolist()
        self._numbers[ended] += 1
        self._deal(ended)
        seen = self._seen({name: step.observations for name, step in steps.items()})
        return {name: replace(outcome, observations=seen[name]) for name, outcome in zip(self._names, outcomes, strict=True)}

    def close(self) -> None:
        self._games.close()

    def _deal(self, matches: Sequence[int]) -> None:
        for b in matches:
            self._seats[:, b] = deal(match_seed(self._seed, b, int(self._numbers[b])), len(self._names))

    def _seen(self, observations: Mapping[str, Observations]) -> dict[str, Observations]:
        ordered = [observations[name] for name in self._names]
        return {name: self._view(ordered, seats) for name, seats in zip(self._names, self._seats, strict=True)}

    def _view(self, ordered: Sequence[Observations], seats: np.ndarray) -> Observations:
        learn = None
        if any(own.learn is not None for own in ordered):
            learn = _pick(seats, [np.ones(len(seats), np.bool_) if own.learn is None else own.learn for own in ordered])
        inputs = {name: _pick(seats, [own.inputs[name] for own in ordered]) for name in ordered[0].inputs}
        legal = {name: _pick(seats, [own.legal[name] for own in ordered]) for name in ordered[0].legal}
        return Observations(inputs, legal, learn)

    def _outcome(self, ordered: Sequence[Steps], seats: np.ndarray) -> Steps:
        """What came of the actions of the role in these seats `[B]`; the observations are another match's where this one ended."""
        results: list[tuple[int, Result]] = []
        for seat, own in enumerate(ordered):
            results += [(match, result) for match, result in own.results if seats[match] == seat]
        truncated = _pick(seats, [own.truncated for own in ordered])
        missed = None
        if any(own.missed is not None for own in ordered):
            missed = _pick(seats, [np.zeros(len(seats), np.int32) if own.missed is None else own.missed for own in ordered])
        return Steps(
            ordered[0].observations,
            _pick(seats, [own.reward for own in ordered]),
            _pick(seats, [own.terminated for own in ordered]),
            truncated,
            self._final(ordered, seats, truncated) if truncated.any() else None,
            missed,
            sorted(results, key=lambda pair: pair[0]),
        )

    def _final(self, ordered: Sequence[Steps], seats: np.ndarray, truncated: np.ndarray) -> Observations | None:
        """Each role has a row for each match that was truncated, so all that is left to pick is whose."""
        finals = [own.final for own in ordered if own.final is not None]
        return self._view(finals, seats[truncated]) if finals else None

    def _save(self) -> dict[str, np.ndarray]:
        return {**self._games.save(), "sides.number": self._numbers.copy()}  # type: ignore[attr-defined]

    def _load(self, state: Mapping[str, np.ndarray]) -> Mapping[str, Observations]:
        if "sides.number" not in state or state["sides.number"].shape != self._numbers.shape:
            raise CheckpointError(f"saved matches: 'sides.number' must have the shape {self._numbers.shape}; were sides swapped then?")
        self._numbers[:] = state["sides.number"]
        self._deal(range(self.size))
        return self._seen(self._games.load(state))  # type: ignore[attr-defined]


def _pick(seats: np.ndarray, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Row b of the array of `seats[b]`, for each b."""
    picked = np.array(arrays[0])
    for seat, array in enumerate(arrays[1:], 1):
        rows = seats == seat
        picked[rows] = array[rows]
    return picked
