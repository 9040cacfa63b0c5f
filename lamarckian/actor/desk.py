"""Seats of policies at tables, and the desks where they ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from lamarckian.actor.opponents import Crowd
from lamarckian.actor.policy import ActingPolicy, Decision
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.sampling import EmptyMask, empty_row
from lamarckian.actor.tally import Tally
from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp import Action, Agent, Handoff, Observation, Result, Role, Step
from lamarckian.record.league import SELF

Arrays: TypeAlias = Mapping[str, np.ndarray]

by_index = attrgetter("index")


class Lane:
    """The seat of a policy at one table: asks its desk, and hands on what came of it."""

    __slots__ = (
        "asked",
        "handoff",
        "index",
        "match",
        "observation",
        "opponent",
        "over",
        "policy",
        "result",
        "role",
        "tape",
        "told",
    )

    def __init__(
        self, role: str, match: int, index: int, policy: ActingPolicy | Crowd, asked: list[Lane], told: list[tuple[int, Step]]
    ) -> None:
        self.role = role
        self.match = match
        self.index = index
        self.policy = policy
        self.asked = asked
        self.told = told
        self.handoff: Handoff[Action] = Handoff()
        self.observation: Observation
        self.result: Result | None = None
        self.opponent = ""
        self.tape: list[Action] = []
        self.over = False

    def start(self, seed: int) -> None:
        self.policy.begin(np.array([self.index]))
        self.clear()

    def clear(self) -> None:
        self.tape.clear()
        self.over = False

    def act(self, observation: Observation) -> Handoff[Action]:
        self.observation = observation
        self.asked.append(self)
        return self.handoff

    def record(self, step: Step) -> None:
        self.told.append((self.index, step))


class Replay:
    """A lane that first repeats the actions of its tape.

    What came of them was recorded before, but for the last; that too where the lane's match was over.
    """

    def __init__(self, lane: Lane, tape: Sequence[Action], over: bool) -> None:
        self._lane = lane
        self._tape = deque(tape)
        self._over = over

    def start(self, seed: int) -> None:
        self._lane.clear()

    async def act(self, observation: Observation) -> Action:
        if self._tape:
            self._lane.tape.append(self._tape[0])
            return self._tape.popleft()
        return await self._lane.act(observation)

    def record(self, step: Step) -> None:
        if not self._tape and not self._over:
            self._lane.record(step)


class Chair:
    """The seat of a league's role at one table: who sits there changes from match to match.

    lane: for policies. home: the desk of the newest version. crowd: of guests. bots: an agent for each of the league's bots, by name.
    """

    def __init__(self, lane: Lane, home: Desk, crowd: Desk, bots: Mapping[str, Agent]) -> None:
        self._lane = lane
        self._home = home
        self._crowd = crowd
        self._bots = bots

    def taken(self, name: str) -> Agent | Lane:
        """Who sits down."""
        if name in self._bots:
            return self._bots[name]
        desk = self._home if name == SELF else self._crowd
        self._lane.asked, self._lane.policy = desk.guests, desk.policy
        return self._lane


class Desk:
    """Where the lanes of one policy ask. Those that learn come first in a batch, in the order of their index."""

    def __init__(self, policy: ActingPolicy | Crowd, role: Role, tally: Tally, taped: bool) -> None:
        self.policy = policy
        self._tally = tally
        self.asked: list[Lane] = []
        self.guests: list[Lane] = []
        self._names = list(role.arrays())
        self._specs = role.arrays()
        self._masks = role.masks()
        self._taped = taped

    def answer(self, recorder: Recorder | None, finals: Sequence[tuple[int, Observation]] = ()) -> None:
        """Decides for all that asked; records the decisions of those that learn, and the values of `finals`."""
        learners, guests = self.asked, self.guests
        learners.sort(key=by_index)
        guests.sort(key=by_index)
        lanes = learners + guests
        observations = [lane.observation for lane in lanes]
        inputs = self._stack(observations + [observation for _, observation in finals], lanes)
        legal = {name: _join([o.legal[name] for o in observations], spec.shape, name) for name, spec in self._masks.items()}
        ended = [lane for lane, _ in finals]
        seats = np.array([lane.index for lane in lanes] + ended)
        if not lanes:
            recorder.bootstrap(seats, self.policy.value(inputs, seats))  # type: ignore[union-attr]
            return
        try:
            decision = self.policy.decide(inputs, legal, seats, len(lanes))
        except EmptyMask as fault:
            raise ContractError(f"{fault} ({self._where(lanes, empty_row(legal))})") from None
        if recorder is not None:
            self._record(recorder, decision, inputs, legal, seats, ended)
        for lane, action in zip(lanes, rows(decision.played), strict=True):
            lane.handoff.put(action)
            if self._taped:
                lane.tape.append(action)
        learners.clear()
        guests.clear()

    def _record(self, recorder: Recorder, decision: Decision, inputs: Arrays, legal: Arrays, seats: np.ndarray, finals: list[int]) -> None:
        if finals:
            recorder.bootstrap(np.array(finals), decision.value[-len(finals) :])
        learners = self.asked
        if not learners:
            return
        learn: np.ndarray | bool = True
        if not all(lane.observation.learn for lane in learners):
            learn = np.array([lane.observation.learn for lane in learners])
        recorder.decision(seats[: len(learners)], inputs, legal, learn, decision, self.policy.version)

    def _where(self, lanes: Sequence[Lane], row: int) -> str:
        """Which observation a row of a batch is."""
        if row >= len(lanes):
            return "a final observation"
        lane = lanes[row]
        return f"role '{lane.role}', match {lane.match}, step {self._tally.length(lane.match) + 1}"

    def _stack(self, observations: list[Observation], lanes: list[Lane]) -> dict[str, np.ndarray]:
        inputs = {}
        for name, spec in self._specs.items():
            array = _join([o.inputs[name] for o in observations], spec.shape, name)
            if array.dtype != spec.dtype:
                raise ContractError(f"input '{name}' must be {spec.dtype}, not {array.dtype}; convert it in the game")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0][0])
                raise NumericsError(f"input '{name}' is not finite: {array[row]} ({self._where(lanes, row)}); check the game's observation")
            inputs[name] = array
        return inputs


def _join(arrays: list[np.ndarray], shape: tuple[int, ...], name: str) -> np.ndarray:
    """Stacks arrays of `shape`; for many small ones this is several times faster than `np.stack`."""
    try:
        return np.concatenate(arrays).reshape(len(arrays), *shape)
    except ValueError as error:
        shapes = {array.shape for array in arrays}
        raise ContractError(f"'{name}' must have shape {list(shape)} in every observation; shapes that came: {shapes}") from error


def rows(actions: Mapping[str, np.ndarray]) -> Iterator[Action]:
    """The rows of the arrays, as games get them."""
    columns = [array.tolist() if array.ndim == 1 else list(array) for array in actions.values()]
    names = tuple(actions)
    if len(names) == 1:
        name = names[0]
        return ({name: value} for value in columns[0])
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
