"""Plays many matches as coroutines, and answers their agents in one batched inference call a turn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from lamarckian.actor.desk import Chair, Desk, Lane, Replay, rows
from lamarckian.actor.opponents import League
from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.tally import Tally
from lamarckian.errors import ContractError
from lamarckian.mdp import MDP, Action, Agent, BotAgent, Loop, Observation, Result, Step, spar, train
from lamarckian.seeding import agent_seed, match_seed

by_lane = itemgetter(0)


class Table:
    """One place where matches are played, one after another."""

    def __init__(self, rollout: CoroutineRollout, index: int, agents: Mapping[str, Agent | Chair]) -> None:
        self.index = index
        self.number = 0
        self.started = 0
        self.agents: dict[str, Agent] = {}
        self._rollout = rollout
        self._places = agents
        self._opponent = ""
        self._seated = 0

    def start(self, tapes: Mapping[str, Any] | None = None) -> None:
        """Begins the next match; with the `tapes` of its lanes, one that stood in the middle."""
        rollout, loop = self._rollout, self._rollout.loop
        seed = match_seed(rollout.seed, self.index, self.number)
        self.started = loop.ticks
        self.match = rollout.mdp.start(seed)
        self._opponent = rollout.opponent(self.index, tapes is None)
        self.agents = {role: place.taken(self._opponent) if isinstance(place, Chair) else place for role, place in self._places.items()}
        self._seated = len(self.agents)
        for role, agent in self.agents.items():
            seat: Any = agent
            if tapes is not None and isinstance(agent, Lane):
                seat = Replay(agent, list(rows(tapes[role]["actions"])), tapes[role]["over"])
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
            lane.opponent = self._opponent
            lane.over = True
        self._seated -= 1
        if not self._seated:
            self._rollout.loop.cancel(self._clock)
            self.match.close()
            self.number += 1
            self.start()


class CoroutineRollout:
    """Plays `matches` matches of any game at once; `turn` goes on by one batched inference call, or by one tick.

    others: for each role that does not learn, its agents (one a table), or the policy that plays it. league: of the rest of the roles.
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
        league: League | None = None,
    ) -> None:
        self.mdp = mdp
        self.seed = seed
        self.learners = tuple(learners)
        self.tally = tally
        self.loop = Loop(self._answer)
        self._recorder = recorder
        self._told: list[tuple[int, Step]] = []
        self._busy_s = 0.0
        self._league = league
        role = mdp.roles[learners[0]]
        self._home = Desk(policy, role, tally, taped)
        self._desks: dict[int, Desk] = {id(policy): self._home}
        self._lanes = [
            Lane(name, m, k * matches + m, policy, self._home.asked, self._told) for k, name in enumerate(learners) for m in range(matches)
        ]
        seats: dict[str, Sequence[Agent | Chair]] = {name: self._lanes[k * matches : (k + 1) * matches] for k, name in enumerate(learners)}
        for name, player in others.items():
            if isinstance(player, ActingPolicy):
                desk = self._desks.setdefault(id(player), Desk(player, mdp.roles[name], tally, taped))
                first = len(learners) * matches * (len(self._desks) + list(others).index(name))
                seats[name] = [Lane(name, m, first + m, player, desk.guests, []) for m in range(matches)]
            else:
                seats[name] = player
        if league is not None:
            seats |= self._chairs(league, len(learners) * (len(self._desks) + len(others) + 1), taped)
        self.tables = [Table(self, m, {name: agents[m] for name, agents in seats.items()}) for m in range(matches)]

    def start(self) -> None:
        """Begins the first matches."""
        if self._league is not None:
            self._league.seating.start()
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

    def opponent(self, match: int, begins: bool) -> str:
        """Who from the league sits in a match, which begins or stood in the middle; nothing where no league plays."""
        if self._league is None:
            return ""
        return self._league.seating.begin(match) if begins else self._league.seating.names[match]

    def _chairs(self, league: League, rows: int, taped: bool) -> dict[str, list[Chair]]:
        """For each role of the league, its seats at the tables; `rows` times the tables are seats of others."""
        matches = len(self._lanes) // len(self.learners)
        crowd = self._desks[id(league.crowd)] = Desk(league.crowd, self.mdp.roles[self.learners[0]], self.tally, taped)
        return {
            name: [
                Chair(
                    Lane(name, m, (rows + k) * matches + m, league.crowd, crowd.guests, []),
                    self._home,
                    crowd,
                    {bot: BotAgent(make()) for bot, make in league.bots.items()},
                )
                for m in range(matches)
            ]
            for k, name in enumerate(league.roles)
        }

    def _answer(self) -> bool:
        start = time.perf_counter()
        finals = self._outcomes()
        if self._league is not None:
            self._league.seating.settle()
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
        self.tally.steps(lanes, reward)
        self._recorder.outcome(lanes, reward, terminated, truncated, np.array(missed) if any(missed) else 0)
        ended = terminated | truncated
        finals = []
        if ended.any():
            for lane in lanes[ended].tolist():
                result = self._lanes[lane].result
                self.tally.end(lane, result, self._lanes[lane].opponent)
                self._recorder.end(lane, None if result is None else result.outcome)
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
            "league": None if self._league is None else self._league.save(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`: plays each match again up to where it stood."""
        self.tally.load(state["tally"])
        if self._league is not None:
            self._league.load(state["league"])
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


def _columns(tape: Sequence[Action]) -> dict[str, np.ndarray]:
    return {name: np.array([action[name] for action in tape]) for name in (tape[0] if tape else {})}
