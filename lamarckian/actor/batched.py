"""Plays many matches of a game that steps them in one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.tally import Tally
from lamarckian.errors import NumericsError
from lamarckian.mdp import BatchedMDP, Bot, Observations, Role, Steps
from lamarckian.seeding import agent_seed, match_seed


class BatchedRollout:
    """Plays `matches` matches in step; `turn` is one decision of every role in every match.

    The same seeds give the same fragments as `lamarckian.actor.coroutines.CoroutineRollout`.
    others: for each role that does not learn, the bot or the policy that plays it.
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
        self._bots = {name: player for name, player in others.items() if not isinstance(player, ActingPolicy)}
        self._policies: dict[int, tuple[ActingPolicy, list[str]]] = {id(policy): (policy, list(learners))}
        for name, player in others.items():
            if isinstance(player, ActingPolicy):
                self._policies.setdefault(id(player), (player, []))[1].append(name)
        self._numbers = np.zeros(matches, np.int64)
        self._now: Mapping[str, Observations] = {}
        self._finals: list[tuple[np.ndarray, Observations]] = []

    def start(self) -> None:
        """Begins the first matches."""
        self._now = self._games.reset()
        self._start_bots(np.arange(self._matches))

    def turn(self) -> None:
        """One decision of every role in every match."""
        start = time.perf_counter()
        tally, inference = self.tally, sum(policy.inference_s for policy, _ in self._policies.values())
        self._policy.adopt()
        actions: dict[str, Mapping[str, np.ndarray]] = {}
        for policy, roles in self._policies.values():
            actions.update(self._decide(policy, roles))
        played = time.perf_counter()
        for name, bot in self._bots.items():
            actions[name] = bot.act(self._now[name])
        steps = self._games.step(actions)
        end = time.perf_counter()
        self._now = {name: step.observations for name, step in steps.items()}
        self._finals = self._outcomes([steps[name] for name in self._learners])
        self._restart(steps[self._learners[0]])
        spent = sum(policy.inference_s for policy, _ in self._policies.values()) - inference
        tally.inference_s += spent
        tally.bookkeeping_s += played - start - spent + time.perf_counter() - end
        tally.environment_s += end - played

    def close(self) -> None:
        """Ends every match where it stands."""
        self._games.close()

    def _decide(self, policy: ActingPolicy, roles: list[str]) -> dict[str, dict]:
        home = policy is self._policy
        finals = self._finals if home else []
        now = [self._now[name] for name in roles]
        ends = [observations for _, observations in finals]
        inputs = {name: _join([o.inputs[name] for o in now + ends]) for name in self._names}
        legal = {name: _join([o.legal[name] for o in now]) for name in now[0].legal}
        for name, array in inputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.nonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0][0])
                raise NumericsError(f"input '{name}' is not finite: {array[row]} (lane {row}); check the game's observation")
        count = len(roles) * self._matches
        seats = np.concatenate([np.arange(count), *(lanes for lanes, _ in finals)])
        decision = policy.decide(inputs, legal, seats, count)
        if home:
            if finals:
                lanes = np.concatenate([lanes for lanes, _ in finals])
                self._recorder.bootstrap(lanes, decision.value[-len(lanes) :])
            learn = _join([np.ones(self._matches, np.bool_) if o.learn is None else o.learn for o in now[: len(self._learners)]])
            self._recorder.decision(self._lanes, inputs, legal, learn, decision, policy.version)
        return {
            role: {name: array[k * self._matches : (k + 1) * self._matches] for name, array in decision.played.items()}
            for k, role in enumerate(roles)
        }

    def _outcomes(self, steps: Sequence[Steps]) -> list[tuple[np.ndarray, Observations]]:
        """Records what came of the decisions; the lanes that were truncated, with their final observations."""
        reward = _join([step.reward for step in steps])
        terminated = _join([step.terminated for step in steps])
        truncated = _join([step.truncated for step in steps])
        missed = _join([np.zeros(self._matches, np.int32) if step.missed is None else step.missed for step in steps])
        self._recorder.outcome(self._lanes, reward, terminated, truncated, missed)
        self.tally.steps(self._lanes, reward)
        finals = []
        for k, step in enumerate(steps):
            for match, result in step.results:
                self.tally.end(k * self._matches + match, result)
            if step.final is not None and step.truncated.any():
                finals.append((np.nonzero(step.truncated)[0] + k * self._matches, step.final))
        return finals

    def _restart(self, steps: Steps) -> None:
        ended = np.nonzero(steps.terminated | steps.truncated)[0]
        if len(ended):
            self._numbers[ended] += 1
            self._start_bots(ended)
            for policy, roles in self._policies.values():
                policy.states.begin(np.concatenate([ended + k * self._matches for k in range(len(roles))]))

    def _start_bots(self, matches: np.ndarray) -> None:
        for name, bot in self._bots.items():
            seeds = [match_seed(self._seed, int(m), int(self._numbers[m])) for m in matches]
            bot.start(matches, [agent_seed(seed, name) for seed in seeds])

    def save(self) -> dict[str, Any]:
        """Where every match stands, to go on from exactly; between two turns, for games and bots that save."""
        return {
            "finals": [{"lanes": lanes, "inputs": dict(final.inputs)} for lanes, final in self._finals],
            "tally": self.tally.save(),
            "numbers": self._numbers.copy(),
            "games": self._games.save(),  # type: ignore[attr-defined]
            "bots": {name: bot.save() for name, bot in self._bots.items()},  # type: ignore[attr-defined]
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of `start`."""
        self.tally.load(state["tally"])
        self._numbers[:] = state["numbers"]
        self._finals = [(final["lanes"], Observations(final["inputs"])) for final in state["finals"]]
        self._now = self._games.load(state["games"])  # type: ignore[attr-defined]
        for name, bot in self._bots.items():
            bot.load(state["bots"][name])  # type: ignore[attr-defined]


def _join(arrays: Sequence[Any]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
