"""The asynchronous MDP: a game as the platform sees it.

A match hands out one controller a role. Each controller is awaited by a coroutine of its own, and none waits for
another; the match's own coroutine, `run`, is the game's clock. See `lamarckian.mdp.loop` for what drives them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from lamarckian.mdp.spaces import Role

Action: TypeAlias = Mapping[str, Any]
"""One entry per head: an int for `Discrete`, a float32 array for `Continuous`."""

NO_MASKS: Mapping[str, np.ndarray] = {}


class Observation(NamedTuple):
    """What a role sees when it is to act.

    inputs: arrays as `Role.arrays()` says. The receiver may keep them: a game hands out fresh arrays, or never
        writes to one again.
    legal: a mask for each masked head, as `Role.masks()` says; at least one action of each row is legal.
    learn: False on a step that a script decides: kept in the fragment, left out of the loss.
    """

    inputs: Mapping[str, np.ndarray]
    legal: Mapping[str, np.ndarray] = NO_MASKS
    learn: bool = True


class Step(NamedTuple):
    """What came of an action, when this role is to act next or its match is over.

    reward: one float per reward name, in the order of `Role.rewards`, summed over the ticks since the last step.
    terminated, truncated: as Gymnasium means them; after either, the controller is done.
    missed: ticks that went by without an action of this role since the last step.
    """

    observation: Observation
    reward: Sequence[float]
    terminated: bool
    truncated: bool
    missed: int = 0
    info: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Result:
    """How a match went for one role.

    score: what the game counts, higher is better; a two-player game normalises it to [0, 1].
    objectives: other named measures, each to be maximised by whoever picks it.
    """

    score: float
    outcome: Literal["win", "draw", "loss"] | None = None
    objectives: Mapping[str, float] = field(default_factory=dict)


class Controller(Protocol):
    """One role's handle in one match, independent of every other controller."""

    role: Role

    async def reset(self) -> Observation:
        """Waits until this role is to act for the first time."""
        ...

    async def step(self, action: Action) -> Step:
        """Acts, and returns when this role is to act next, whatever the others do."""
        ...

    def leave(self) -> None:
        """Goes offline: the match goes on without this role. Harmless when repeated or when the match is over."""
        ...

    def result(self) -> Result:
        """The role's result so far; final once a step was terminated or truncated."""
        ...


class Match(Protocol):
    """One running instance of a game.

    One that waits for every role, instead of giving a late one the default action, says `waits = True`. One that can be
    looked at has a method `render() -> uint8 [height, width, 3]`, RGB.
    """

    controllers: Mapping[str, Controller]

    async def run(self) -> None:
        """The game's own clock; returns when the match is over."""
        ...

    def close(self) -> None:
        """Frees what the match holds; may be called at any time, and again."""
        ...


class MDP(Protocol):
    """A game: its roles, and how to start a match. Picklable and cheap to make."""

    @property
    def roles(self) -> Mapping[str, Role]: ...

    def start(self, seed: int) -> Match:
        """Starts a match; the same seed and the same actions give the same match."""
        ...


class Agent(Protocol):
    """Maps observations to actions: a policy, a script, a human, a remote client.

    One agent object plays one seat, one match after another. A method may answer at once with a finished awaitable.
    """

    def start(self, seed: int) -> None:
        """A new match begins; what the agent draws at random in it comes from `seed`."""
        ...

    def act(self, observation: Observation) -> Awaitable[Action]:
        """The action for `observation`; the game's clock need not wait for it."""
        ...


class Recorder(Protocol):
    """Where the training agent's outcomes go."""

    def record(self, step: Step) -> None:
        """Takes what came of the action that the agent gave last."""
        ...
