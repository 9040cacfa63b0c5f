"""Plays many matches as coroutines, and answers their agents in one batched inference call a turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import numpy as np

from lamarckian.actor.policy import ActingPolicy, Decision
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.states import States
from lamarckian.actor.tally import Tally
from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp import MDP, Action, Agent, Handoff, Loop, Observation, Result, Role, Step, spar, train
from lamarckian.seeding import agent_seed, match_seed

Arrays: TypeAlias = Mapping[str, np.ndarray]

by_index = attrgetter("index")
by_lane = itemgetter(0)


class Lane:
    """The seat of a policy at one table: asks its desk, and hands on what came of it."""

    __slots__ = ("asked", "handoff", "index", "observation", "over", "result", "states", "tape", "told")

    def __init__(self, index: int, states: States, asked: list[Lane], told: list[tuple[int, Step]]) -> None:
        self.index = index
        self.states = states
        self.asked = asked
        self.told = told
        self.handoff: Handoff[Action] = Handoff()
        self.observation: Observation
        self.result: Result | None = None
        self.tape: list[Action] = []
        self.over = False

    def start(self, seed: int) -> None:
        self.states.begin(np.array([self.index]))
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


class Desk:
    """Where the lanes of one policy ask. Those that learn come first in a batch, in the order of their index."""

    def __init__(self, policy: ActingPolicy, role: Role, taped: bool) -> None:
        self.policy = policy
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
        decision = self.policy.decide(inputs, legal, seats, len(lanes))
        if recorder is not None:
            self._record(recorder, decision, inputs, legal, ended)
        for lane, action in zip(lanes, _actions(decision.played), strict=True):
            lane.handoff.put(action)
            if self._taped:
                lane.tape.append(action)
        learners.clear()
        guests.clear()

    def _record(self, recorder: Recorder, decision: Decision, inputs: Arrays, legal: Arrays, finals: list[int]) -> None:
        if finals:
            recorder.bootstrap(np.array(finals), decision.value[-len(finals) :])
        learners = self.asked
        if not learners:
            return
        learn: np.ndarray | bool = True
        if not all(lane.observation.learn for lane in learners):
            learn = np.array([lane.observation.learn for lane in learners])
        recorder.decision(np.array([lane.index for lane in learners]), inputs, legal, learn, decision, self.policy.version)

    def _stack(self, observations: list[Observation], lanes: list[Lane]) -> dict[str, np.ndarray]:
        inputs = {}
        for name, spec in self._specs.items():
            array = _join([o.inputs[name] for o in observations], spec.shape, name)
            if array.dtype != spec.dtype:
                raise ContractError(f"input '{name}' must be {spec.dtype}, not {array.dtype}; convert it in the game")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0][0])
                where = f"lane {lanes[row].index}" if row < len(lanes) else "a final observation"
                raise NumericsError(f"input '{name}' is not finite: {array[row]} ({where}); check the game's observation")
            inputs[name] = array
        return inputs


class Table:
    """One place where matches are played, one after another."""

    def __init__(self, rollout: CoroutineRollout, index: int, agents: Mapping[str, Agent]) -> None:
        self.index = index
        self.number = 0
        self.started = 0
        self._rollout = rollout
        self.agents = agents
        self._seated = 0

    def start(self, tapes: Mapping[str, Any] | None = None) -> None:
        """Begins the next match; with the `tapes` of its lanes, one that stood in the middle."""
        rollout, loop = self._rollout, self._rollout.loop
        seed = match_seed(rollout.seed, self.index, self.number)
        self.started = loop.ticks
        self.match = rollout.mdp.start(seed)
        self._seated = len(self.agents)
        for role, agent in self.agents.items():
            seat: Any = agent
            if tapes is not None and isinstance(agent, Lane):
                seat = Replay(agent, list(_actions(tapes[role]["actions"])), tapes[role]["over"])
            seat.start(agent_seed(seed, role))
            controller = self.match.controllers[role]
            if role in rollout.learners:
                loop.spawn(train(controller, seat, seat), partial(self._rise, agent))
            else:
                loop.spawn(spar(controller, seat), partial(self._rise, None))
        self._clock = loop.spawn(self.match.run())  # last, so that it finds everybody seated

    def close(self) -> None:
        self.match.close()

    def _rise(self, lane: Any, result: Result) -> None:
        if lane is not None:
            lane.result = result
            lane.over = True
        self._seated -= 1
        if not self._seated:
            self._rollout.loop.cancel(self._clock)
            self.match.close()
            self.number += 1
            self.start()


class CoroutineRollout:
    """Plays `matches` matches of any game at once; `turn` goes on by one batched inference call, or by one tick.

    agents: for each role that does not learn, its agents (one a table), or the policy that plays it.
    Lane `k * matches + m` is the k-th learning role in match m.
    """

    def __init__(
        self,
        mdp: MDP,
        policy: ActingPolicy,
        recorder: Recorder,
        tally: Tally,
        learners: Sequence[str],
        others: Mapping[str, ActingPolicy | Sequence[Agent]],
        matches: int,
        seed: int,
        taped: bool = False,
    ) -> None:
        self.mdp = mdp
        self.seed = seed
        self.learners = tuple(learners)
        self.tally = tally
        self.loop = Loop(self._answer)
        self._recorder = recorder
        self._told: list[tuple[int, Step]] = []
        self._busy_s = 0.0
        role = mdp.roles[learners[0]]
        self._home = Desk(policy, role, taped)
        self._desks = {id(policy): self._home}
        self._lanes = [Lane(index, policy.states, self._home.asked, self._told) for index in range(len(learners) * matches)]
        seats: dict[str, Sequence[Agent]] = {name: self._lanes[k * matches : (k + 1) * matches] for k, name in enumerate(learners)}
        for name, player in others.items():
            if isinstance(player, ActingPolicy):
                desk = self._desks.setdefault(id(player), Desk(player, mdp.roles[name], taped))
                first = len(learners) * matches * (len(self._desks) + list(others).index(name))
                seats[name] = [Lane(first + m, player.states, desk.guests, []) for m in range(matches)]
            else:
                seats[name] = player
        self.tables = [Table(self, m, {name: agents[m] for name, agents in seats.items()}) for m in range(matches)]

    def start(self) -> None:
        """Begins the first matches."""
        for table in self.tables:
            table.start()

    def turn(self) -> None:
        """Goes on by one turn of the loop."""
        start = time.perf_counter()
        busy = self._busy_s
        if not self.loop.turn():
            raise ContractError("every match stands still: its clock and its controllers all wait for something that nobody gives")
        self.tally.environment_s += time.perf_counter() - start - (self._busy_s - busy)

    def close(self) -> None:
        """Ends every match where it stands."""
        self.loop.close()
        for table in self.tables:
            table.close()

    def _answer(self) -> bool:
        start = time.perf_counter()
        finals = self._outcomes()
        asked = False
        for desk in self._desks.values():
            home = desk is self._home
            if desk.asked or desk.guests or (home and finals):
                desk.policy.adopt()
                desk.answer(self._recorder if home else None, finals if home else ())
                asked = True
        busy = time.perf_counter() - start
        self._busy_s += busy
        inference = sum(desk.policy.inference_s for desk in self._desks.values())
        self.tally.bookkeeping_s += busy - (inference - self.tally.inference_s)
        self.tally.inference_s = inference
        return asked

    def _outcomes(self) -> list[tuple[int, Observation]]:
        """Records what lanes have told; the final observations of those that were truncated."""
        told = self._told
        if not told:
            return []
        told.sort(key=by_lane)
        lanes = np.array([lane for lane, _ in told])
        steps = [step for _, step in told]
        reward = np.array([step.reward for step in steps], np.float32)
        terminated = np.array([step.terminated for step in steps])
        truncated = np.array([step.truncated for step in steps])
        missed = [step.missed for step in steps]
        self._recorder.outcome(lanes, reward, terminated, truncated, np.array(missed) if any(missed) else 0)
        self.tally.steps(lanes, reward)
        ended = terminated | truncated
        finals = []
        if ended.any():
            for lane in lanes[ended].tolist():
                self.tally.end(lane, self._lanes[lane].result)
            finals = [(lane, step.observation) for lane, step in told if step.truncated and not step.terminated]
        told.clear()
        return finals

    def save(self) -> dict[str, Any]:
        """Where every match stands, to go on from exactly; between two turns, with `taped` set."""
        return {
            "tally": self.tally.save(),
            "ticks": self.loop.ticks,
            "tables": [
                {
                    "number": table.number,
                    "started": table.started,
                    "tapes": {
                        role: {"actions": _columns(agent.tape), "over": agent.over}
                        for role, agent in table.agents.items()
                        if isinstance(agent, Lane)
                    },
                }
                for table in self.tables
            ],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`: plays each match again up to where it stood."""
        self.tally.load(state["tally"])
        parked = []
        for table, saved in zip(self.tables, state["tables"], strict=True):
            table.number = saved["number"]
            self.loop.ticks = saved["started"]
            table.start(saved["tapes"])
            self.loop.settle()
            while self.loop.ticks < state["ticks"]:
                self.loop.pass_tick()
                self.loop.settle()
            parked.extend(self.loop.parked)
            self.loop.parked.clear()
        self.loop.parked = parked


def _join(arrays: list[np.ndarray], shape: tuple[int, ...], name: str) -> np.ndarray:
    """Stacks arrays of `shape`; for many small ones this is several times faster than `np.stack`."""
    try:
        return np.concatenate(arrays).reshape(len(arrays), *shape)
    except ValueError as error:
        shapes = {array.shape for array in arrays}
        raise ContractError(f"'{name}' must have shape {list(shape)} in every observation; shapes that came: {shapes}") from error


def _actions(actions: Mapping[str, np.ndarray]) -> Iterator[Action]:
    """The rows of the arrays, as games get them."""
    columns = [array.tolist() if array.ndim == 1 else list(array) for array in actions.values()]
    names = tuple(actions)
    if len(names) == 1:
        name = names[0]
        return ({name: value} for value in columns[0])
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _columns(tape: Sequence[Action]) -> dict[str, np.ndarray]:
    return {name: np.array([action[name] for action in tape]) for name in (tape[0] if tape else {})}
