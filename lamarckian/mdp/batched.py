"""Games that step many matches in one call, and agents that answer many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lamarckian.mdp.interface import NO_MASKS, Action, Agent, Observation, Result


@dataclass(slots=True)
class Observations:
    """One role's observations in B matches: `inputs[name]` `[B, …]`, `legal[head]` `[B, …]`, `learn` bool `[B]` or None for all True."""

    inputs: Mapping[str, np.ndarray]
    legal: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_MASKS)
    learn: np.ndarray | None = None


@dataclass(slots=True)
class Steps:
    """What came of one role's actions in B matches.

    observations: to act on next; in a match that has just ended these are the first of the next match, unless it waits.
    reward: float32 `[B, R]`. terminated, truncated: bool `[B]`. missed: int32 `[B]` or None for all 0.
    final: the last observation of each match that was truncated, in the order of `truncated.nonzero()`; may be missing
        where none was.
    results: (match, result) of each match that ended.
    waiting: bool `[B]` or None for nowhere: whether the next match begins one step late. The step in between belongs to no match:
        whatever is done in it comes to nothing, and nobody records or counts it.
    """

    observations: Observations
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: Observations | None = None
    missed: np.ndarray | None = None
    results: Sequence[tuple[int, Result]] = ()
    waiting: np.ndarray | None = None


class Batched(Protocol):
    """B matches of a game that go in step. Match b plays its k-th game from the seed `match_seed(seed, b, k)`.

    Arrays that are handed out may be written to again by the next call.
    """

    size: int

    def reset(self) -> Mapping[str, Observations]:
        """Starts every match; the first observations of each role."""
        ...

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, Steps]:
        """One decision of every role: `actions[role][head]` is `[B, …]`. Ended matches start anew."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Saves(Protocol):
    """A batched game whose matches can be saved in the middle, for exact resume."""

    def save(self) -> dict[str, np.ndarray]: ...

    def load(self, state: Mapping[str, np.ndarray]) -> Mapping[str, Observations]:
        """Goes on from `state`; gives the observations that were current then."""
        ...


@runtime_checkable
class BatchedMDP(Protocol):
    """A game that can be played by the batched way; its `start` and `start_many` play the same matches.

    A game that has the method but cannot use it as it is set says `batchable = False`; one whose two ways play matches that
    differ in what chance brings says `exact = False`.
    """

    def start_many(self, size: int, seed: int) -> Batched: ...


class Bot(Protocol):
    """An agent that plays the same seat in B matches at once; the built-in players of a game are of this kind."""

    def start(self, matches: np.ndarray, seeds: Sequence[int]) -> None:
        """New matches begin at these indices, int `[K]`, each with its seed."""
        ...

    def act(self, observations: Observations) -> Mapping[str, np.ndarray]:
        """An action for each match, `[B, …]` per head."""
        ...


class _Answered:
    __slots__ = ("_value",)

    def __init__(self, value: Action) -> None:
        self._value = value

    def __await__(self) -> Any:
        return self._value
        yield


class BotAgent(Agent):
    """A bot of one match as an agent."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot

    def start(self, seed: int) -> None:
        self._bot.start(np.zeros(1, np.int64), [seed])

    def act(self, observation: Observation) -> _Answered:
        actions = self._bot.act(
            Observations(
                {name: array[None] for name, array in observation.inputs.items()},
                {name: mask[None] for name, mask in observation.legal.items()},
            )
        )
        return _Answered({head: values[0] for head, values in actions.items()})
