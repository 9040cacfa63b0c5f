"""Plays many matches of a game that steps them in one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian.actor.opponents import Crowd, League
from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.sampling import EmptyMask, empty_row
from lamarckian.actor.tally import Tally
from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp import BatchedMDP, Bot, Observations, Role, Steps
from lamarckian.seeding import agent_seed, match_seed


@dataclass(frozen=True)
class Part:
    """A role in some of the matches, ascending, which a policy plays; its first seat there."""

    role: str
    matches: np.ndarray
    first: int


class BatchedRollout:
    """Plays `matches` matches in step; `turn` is one decision of every role in every match.

    The same seeds give the same fragments as `lamarckian.actor.coroutines.CoroutineRollout`.
    others: for each role that does not learn, the bot or the policy that plays it. league: the rest of the roles, where there are more.
    """

    def __init__(
        self,
        mdp: BatchedMDP,
        policy: ActingPolicy,
        recorder: Recorder,
        tally: Tally,
        learners: Sequence[str],
        others: Mapping[str, ActingPolicy | Bot],
        matches: int,
        seed: int,
        league: League | None = None,
    ) -> None:
        role: Role = mdp.roles[learners[0]]  # type: ignore[attr-defined]
        self.tally = tally
        self._games = mdp.start_many(matches, seed)
        self._policy = policy
        self._recorder = recorder
        self._learners = list(learners)
        self._matches = matches
        self._seed = seed
        self._names = list(role.arrays())
        self._lanes = np.arange(len(learners) * matches)
        self._wait(np.zeros(matches, np.bool_))
        self._league = league
        self._league_bots = {} if league is None else {role: {name: make() for name, make in league.bots.items()} for role in league.roles}
        self._all = np.arange(matches)
        self._bots = [(name, player) for name, player in others.items() if not isinstance(player, ActingPolicy)]
        self._policies: dict[int, tuple[ActingPolicy, list[Part]]] = {id(policy): (policy, [])}
        for name, player in {**dict.fromkeys(learners, policy), **others}.items():
            if isinstance(player, ActingPolicy):
                parts = self._policies.setdefault(id(player), (player, []))[1]
                parts.append(Part(name, self._all, len(parts) * matches))
        self._numbers = np.zeros(matches, np.int64)
        self._now: Mapping[str, Observations] = {}
        self._finals: list[tuple[np.ndarray, Observations]] = []

    def start(self) -> None:
        """Begins the first matches."""
        if self._league is not None:
            self._league.seating.start()
        self._now = self._games.reset()
        self._seat(self._all)

    def turn(self) -> None:
        """One decision of every role in every match."""
        start = time.perf_counter()
        if self._league is not None:
            self._league.seating.settle()
        tally, inference = self.tally, self._inference_s()
        self._policy.adopt()
        actions: dict[str, dict[str, np.ndarray]] = {}
        for policy, parts in self._sitting():
            self._decide(policy, parts, actions)
        played = time.perf_counter()
        self._ask_bots(actions)
        steps = self._games.step(actions)
        end = time.perf_counter()
        self._now = {name: step.observations for name, step in steps.items()}
        self._finals = self._outcomes([steps[name] for name in self._learners])
        self._restart(steps[self._learners[0]])
        spent = self._inference_s() - inference
        tally.inference_s += spent
        tally.bookkeeping_s += played - start - spent + time.perf_counter() - end
        tally.environment_s += end - played

    def close(self) -> None:
        """Ends every match where it stands."""
        self._games.close()

    def _sitting(self) -> list[tuple[ActingPolicy | Crowd, list[Part]]]:
        """Every policy that plays now, with its parts; the learner's first, and its learning roles first of all."""
        fixed: list[tuple[ActingPolicy | Crowd, list[Part]]] = list(self._policies.values())
        if self._league is None:
            return fixed
        league, (home, parts) = self._league, fixed[0]
        own, others = league.seating.places()
        if len(own):
            fixed[0] = home, parts + [Part(role, own, (len(parts) + k) * self._matches) for k, role in enumerate(league.roles)]
        if len(others):
            fixed.append((league.crowd, [Part(role, others, k * self._matches) for k, role in enumerate(league.roles)]))
        return fixed

    def _inference_s(self) -> float:
        crowd = 0.0 if self._league is None else self._league.crowd.inference_s
        return crowd + sum(policy.inference_s for policy, _ in self._policies.values())

    def _decide(self, policy: ActingPolicy | Crowd, parts: list[Part], actions: dict[str, dict[str, np.ndarray]]) -> None:
        home = policy is self._policy
        finals = self._finals if home else []
        now = [self._now[part.role] for part in parts]
        rows = [slice(None) if len(part.matches) == self._matches else part.matches for part in parts]
        inputs = {
            name: _join([*(o.inputs[name][at] for o, at in zip(now, rows, strict=True)), *(final.inputs[name] for _, final in finals)])
            for name in self._names
        }
        legal = {name: _join([o.legal[name][at] for o, at in zip(now, rows, strict=True)]) for name in now[0].legal}
        for name, array in inputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0][0])
                raise NumericsError(f"input '{name}' is not finite: {array[row]} ({self._where(parts, row)}); check the game's observation")
        seats = np.concatenate([*(part.first + part.matches for part in parts), *(lanes for lanes, _ in finals)])
        try:
            decision = policy.decide(inputs, legal, seats, sum(len(part.matches) for part in parts))
        except EmptyMask as fault:
            raise ContractError(f"{fault} ({self._where(parts, empty_row(legal))})") from None
        if home:
            if finals:
                lanes = np.concatenate([lanes for lanes, _ in finals])
                self._recorder.bootstrap(lanes, decision.value[-len(lanes) :])
            learn = _join([np.ones(self._matches, np.bool_) if o.learn is None else o.learn for o in now[: len(self._learners)]])
            if len(self._playing) == len(self._lanes):
                self._recorder.decision(self._lanes, inputs, legal, learn, decision, policy.version)
            else:  # learning roles come first, so a lane's row is its number
                lanes = self._playing
                self._recorder.decision(lanes, inputs, legal, learn[lanes], decision, policy.version, lanes)
        end = 0
        for part in parts:
            start, end = end, end + len(part.matches)
            self._play(actions, part.role, part.matches, {name: array[start:end] for name, array in decision.played.items()})

    def _where(self, parts: Sequence[Part], row: int) -> str:
        """Which observation a row of a batch is."""
        for part in parts:
            if row < len(part.matches):
                match = int(part.matches[row])
                return f"role '{part.role}', match {match}, step {self.tally.length(match) + 1}"
            row -= len(part.matches)
        return "a final observation"

    def _ask_bots(self, actions: dict[str, dict[str, np.ndarray]]) -> None:
        for role, bot in self._bots:
            actions[role] = dict(bot.act(self._now[role]))
        for role, bots in self._league_bots.items():
            for name, bot in bots.items():
                matches = self._league.seating.of(name)  # type: ignore[union-attr]
                if len(matches):
                    acted = bot.act(self._now[role])
                    self._play(actions, role, matches, {head: array[matches] for head, array in acted.items()})

    def _play(self, actions: dict[str, dict[str, np.ndarray]], role: str, matches: np.ndarray, played: Mapping[str, np.ndarray]) -> None:
        """Puts a role's actions in these matches among the others'."""
        if len(matches) == self._matches:
            actions[role] = dict(played)
            return
        heads = actions.setdefault(role, {})
        for name, array in played.items():
            if name not in heads:
                heads[name] = np.empty((self._matches, *array.shape[1:]), array.dtype)
            heads[name][matches] = array

    def _outcomes(self, steps: Sequence[Steps]) -> list[tuple[np.ndarray, Observations]]:
        """Records what came of the decisions; the lanes that were truncated, with their final observations."""
        reward = _join([step.reward for step in steps])
        terminated = _join([step.terminated for step in steps])
        truncated = _join([step.truncated for step in steps])
        missed = _join([np.zeros(self._matches, np.int32) if step.missed is None else step.missed for step in steps])
        lanes = self._playing
        if len(lanes) < len(self._lanes):
            reward, terminated, truncated, missed = (x[lanes] for x in (reward, terminated, truncated, missed))
        self.tally.steps(lanes, reward)
        self._recorder.outcome(lanes, reward, terminated, truncated, missed)
        finals = []
        for k, step in enumerate(steps):
            for match, result in step.results:
                opponent = "" if self._league is None else self._league.seating.names[match]
                lane = k * self._matches + match
                self.tally.end(lane, result, opponent)
                self._recorder.end(lane, result.outcome)
            if step.final is not None and step.truncated.any():
                finals.append((np.nonzero(step.truncated)[0] + k * self._matches, step.final))
        return finals

    def _restart(self, steps: Steps) -> None:
        waiting = np.zeros(self._matches, np.bool_) if steps.waiting is None else steps.waiting.copy()
        begun = np.nonzero((steps.terminated | steps.truncated | self._waiting) & ~waiting)[0]
        self._wait(waiting)
        if len(begun):
            self._numbers[begun] += 1
            self._seat(begun)
            for policy, parts in self._sitting():
                policy.begin(np.concatenate([part.first + np.intersect1d(part.matches, begun) for part in parts]))

    def _wait(self, waiting: np.ndarray) -> None:
        """The next step of these matches, bool `[B]`, comes before they begin."""
        self._waiting = waiting
        self._playing = self._lanes[~np.tile(waiting, len(self._learners))] if waiting.any() else self._lanes

    def _seat(self, matches: np.ndarray) -> None:
        """Matches begin: seats who comes from the league, and starts bots, those too that sit elsewhere."""
        if self._league is not None:
            for match in matches.tolist():
                self._league.seating.begin(match)
        for name, bot in self._every_bot():
            seeds = [match_seed(self._seed, int(m), int(self._numbers[m])) for m in matches]
            bot.start(matches, [agent_seed(seed, name) for seed in seeds])

    def _every_bot(self) -> list[tuple[str, Bot]]:
        """With the role it plays."""
        return self._bots + [(role, bot) for role, bots in self._league_bots.items() for bot in bots.values()]

    def save(self) -> dict[str, Any]:
        """Where every match stands, to go on from exactly; between two turns, for games and bots that save."""
        return {
            "finals": [{"lanes": lanes, "inputs": dict(final.inputs)} for lanes, final in self._finals],
            "tally": self.tally.save(),
            "numbers": self._numbers.copy(),
            "waiting": self._waiting,
            "games": self._games.save(),  # type: ignore[attr-defined]
            "bots": [bot.save() for _, bot in self._every_bot()],  # type: ignore[attr-defined]
            "league": None if self._league is None else self._league.save(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`."""
        self.tally.load(state["tally"])
        self._numbers[:] = state["numbers"]
        self._wait(state["waiting"])
        self._finals = [(final["lanes"], Observations(final["inputs"])) for final in state["finals"]]
        self._now = self._games.load(state["games"])  # type: ignore[attr-defined]
        for (_, bot), saved in zip(self._every_bot(), state["bots"], strict=True):
            bot.load(saved)  # type: ignore[attr-defined]
        if self._league is not None:
            self._league.load(state["league"])


def _join(arrays: Sequence[Any]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
