"""Pong as an MDP: one match at a time behind controllers, or many in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lamarckian.errors import CheckpointError, ContractError, GameError
from lamarckian.games.pong.bots import Interceptor, Random, Stay, Tracker
from lamarckian.games.pong.rules import LEFT, RIGHT, SIZE, STAY
from lamarckian.games.pong.table import Table
from lamarckian.games.pong.view import frame
from lamarckian.games.settings import checked
from lamarckian.mdp import Action, AsynchronousMatch, Discrete, Image, Observation, Observations, Result, Role, Steps, Vector
from lamarckian.seeding import match_seed

SEAT = {"left": LEFT, "right": RIGHT}
MOVE_NAMES = ("stay", "up", "down")
ALLOWED = ", ".join(f"{move} ({name})" for move, name in enumerate(MOVE_NAMES))

Seat = Literal["left", "right"]
Period = Annotated[int, Field(ge=1)]
Latency = Annotated[int, Field(ge=0)]


class Pong:
    """Two-player Pong on a field of 160 × 126 pixels; roles `left` and `right`, actions 0 stay, 1 up, 2 down.

    Both roles see themselves on the left. The input `vector` holds the y of the own and the other bat, then x and y of the
    last four ball positions, oldest first: centres as fractions of the field. With `observation="image"` the role's input is
    `image` `[image_frames, image_size, image_size]`, the newest frame last; its observations hold `vector` besides, which the
    role does not declare, so that networks never see it and bots still play.

    The reward is ±1 a point. A result's score is (own − other points + rounds) / (2 · rounds); its objectives `busy` and
    `lazy` are the fractions of ticks in which the bat moved and stayed where it was.
    """

    bots: ClassVar[Mapping[str, type]] = {"tracker": Tracker, "interceptor": Interceptor, "random": Random, "stay": Stay}

    @checked
    def __init__(
        self,
        *,
        rounds: Annotated[int, Field(ge=1, description="rounds of a match")] = 20,
        rally_ticks: Annotated[int, Field(ge=1, description="ticks after which a round without a point is drawn")] = 1000,
        observation: Annotated[Literal["vector", "image"], Field(description="what the roles see")] = "vector",
        image_size: Annotated[int, Field(ge=32, le=512, description="height and width of an image, in pixels")] = 84,
        image_frames: Annotated[int, Field(ge=1, le=16, description="frames of an image, one a tick")] = 4,
        period: Annotated[Period | dict[Seat, Period], Field(description="ticks between two decisions, for both roles or for each")] = 1,
        latency: Annotated[Latency | dict[Seat, Latency], Field(description="ticks from an observation to the action's effect")] = 0,
    ) -> None:
        self._limits = rounds, rally_ticks
        self._image = (image_size, image_frames) if observation == "image" else None
        self._period = _by_role(period, 1)
        self._latency = _by_role(latency, 0)
        sees = Image(image_frames, image_size, image_size) if observation == "image" else Vector(SIZE)
        role = Role({observation: sees}, {"move": Discrete(len(MOVE_NAMES))})
        self.roles: Mapping[str, Role] = dict.fromkeys(SEAT, role)

    @property
    def batchable(self) -> bool:
        """Whether `start_many` plays this game: there every role decides every tick, and at once."""
        return set(self._period.values()) == {1} and set(self._latency.values()) == {0}

    def start(self, seed: int) -> PongMatch:
        """Starts a match."""
        table = Table(1, *self._limits, self._image)
        table.begin(np.zeros(1, np.int64), [seed])
        return PongMatch(table, self.roles, self._period, self._latency)

    def start_many(self, size: int, seed: int) -> PongMatches:
        """`size` matches in step; match b's k-th game starts from `match_seed(seed, b, k)`."""
        if not self.batchable:
            raise GameError(f"many matches of Pong in one call need period 1 and latency 0; these are {self._period} and {self._latency}")
        if size < 1:
            raise GameError(f"Pong needs at least one match, not {size}")
        return PongMatches(Table(size, *self._limits, self._image), seed)


def _by_role(setting: int | dict[Seat, int], default: int) -> dict[str, int]:
    if isinstance(setting, int):
        return dict.fromkeys(SEAT, setting)
    return dict.fromkeys(SEAT, default) | dict(setting)


class PongRules:
    """One match for `AsynchronousMatch`: the only one of a table."""

    truncated = False

    def __init__(self, table: Table) -> None:
        self.terminated = False
        self._table = table
        self._moves = np.zeros((2, 1), np.int64)

    def observe(self, role: str) -> Observation:
        return Observation({name: array[0].copy() for name, array in self._table.inputs[SEAT[role]].items()})

    def advance(self, actions: Mapping[str, Action | None]) -> Mapping[str, Sequence[float]]:
        for role, seat in SEAT.items():
            action = actions[role]
            self._moves[seat] = STAY if action is None else _move(role, action)
        self.terminated = self._table.advance(self._moves) > 0
        rewards = self._table.rewards[:, 0].tolist()
        return {role: rewards[seat] for role, seat in SEAT.items()}

    def result(self, role: str) -> Result:
        return self._table.result(0, SEAT[role])


def _move(role: str, action: Action) -> int:
    try:
        move = index(action["move"])
    except (TypeError, LookupError):
        move = -1
    if not 0 <= move < len(MOVE_NAMES):
        raise ContractError(f"role '{role}', head 'move': the action {action!r} is not one of {ALLOWED}")
    return move


class PongMatch(AsynchronousMatch):
    """A match of Pong that can be looked at."""

    def __init__(self, table: Table, roles: Mapping[str, Role], period: Mapping[str, int], latency: Mapping[str, int]) -> None:
        super().__init__(PongRules(table), roles, period, latency)
        self._table = table

    def render(self) -> np.ndarray:
        """The match as it stands, RGB uint8 `[480, 480, 3]`."""
        return frame(self._table.matches[0])


class PongMatches:
    """Many matches of Pong in step: `lamarckian.mdp.Batched`, which also saves."""

    def __init__(self, table: Table, seed: int) -> None:
        self.size = len(table.matches)
        self._table = table
        self._seed = seed
        self._game = np.zeros(self.size, np.int64)
        self._moves = np.zeros((2, self.size), np.int64)
        self._never = np.zeros(self.size, np.bool_)
        self._observations = {role: Observations(table.inputs[seat]) for role, seat in SEAT.items()}

    def reset(self) -> Mapping[str, Observations]:
        self._game[:] = 0
        self._begin(np.arange(self.size))
        return self._observations

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, Steps]:
        table = self._table
        for role, seat in SEAT.items():
            self._moves[seat] = self._checked(role, actions)
        results: dict[str, list[tuple[int, Result]]] = {role: [] for role in SEAT}
        count = table.advance(self._moves)
        if count < 0:
            raise ContractError(self._fault())
        if count:
            lanes = table.ended.nonzero()[0]
            for role, seat in SEAT.items():
                results[role] = [(b, table.result(b, seat)) for b in lanes.tolist()]
            self._game[lanes] += 1
            self._begin(lanes)
        return {
            role: Steps(self._observations[role], table.rewards[seat], table.ended, self._never, results=results[role])
            for role, seat in SEAT.items()
        }

    def close(self) -> None:
        """Holds nothing that needs to be freed."""

    def save(self) -> dict[str, np.ndarray]:
        return {"game": self._game.copy()} | self._table.save()

    def load(self, state: Mapping[str, np.ndarray]) -> Mapping[str, Observations]:
        if "game" not in state or state["game"].shape != self._game.shape:
            raise CheckpointError(f"saved matches of Pong: 'game' must have the shape {self._game.shape}")
        self._table.load(state)
        self._game[:] = state["game"]
        return self._observations

    def _begin(self, lanes: np.ndarray) -> None:
        games = zip(lanes.tolist(), self._game[lanes].tolist(), strict=True)
        self._table.begin(lanes, [match_seed(self._seed, b, k) for b, k in games])

    def _checked(self, role: str, actions: Mapping[str, Mapping[str, Any]]) -> np.ndarray:
        try:
            moves = np.asarray(actions[role]["move"])
        except (TypeError, LookupError):
            raise ContractError(f"role '{role}', head 'move': there are no actions; allowed are {ALLOWED}") from None
        if moves.shape != (self.size,) or moves.dtype.kind not in "iu":
            raise ContractError(
                f"role '{role}', head 'move': actions must be integers [{self.size}], not {moves.dtype} {list(moves.shape)}"
            )
        return moves

    def _fault(self) -> str:
        seat, b = np.argwhere((self._moves < 0) | (self._moves >= len(MOVE_NAMES)))[0]
        role = list(SEAT)[seat]
        return f"role '{role}', head 'move': the action {self._moves[seat, b]} in match {b} is not one of {ALLOWED}"
