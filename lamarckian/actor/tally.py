"""What an actor counts beside its fragments: finished matches, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from lamarckian.data.ledger import POINTS, MatchResult
from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp import Result


class Tally:
    """Sums of the running match of each lane, and the results of those that ended since `take`.

    Seconds: `environment_s` games and coroutines, `inference_s` the policy's network, `bookkeeping_s` all around it,
    `waiting_s` for a free slot.
    """

    def __init__(self, learners: Sequence[str], matches: int, rewards: int) -> None:
        self.environment_s = self.inference_s = self.bookkeeping_s = self.waiting_s = 0.0
        self._learners = tuple(learners)
        self._matches = matches
        self._length = np.zeros(len(learners) * matches, np.int64)
        self._returns = np.zeros((len(learners) * matches, rewards), np.float64)
        self._ended = np.zeros(matches, np.int64)  # learning roles that have ended the running match, and their points
        self._points = np.zeros(matches, np.float64)
        self._results: list[MatchResult] = []
        self._taken = (0.0, 0.0, 0.0, 0.0)

    def steps(self, lanes: np.ndarray, reward: np.ndarray) -> None:
        """Counts one step of each of `lanes`, with its rewards `[K, R]`. Raises NumericsError where one is not finite."""
        if not np.isfinite(reward).all():
            row = int(np.nonzero(~np.isfinite(reward).all(axis=1))[0][0])
            k, match = divmod(int(lanes[row]), self._matches)
            where = f"role '{self._learners[k]}', match {match}, step {self.length(int(lanes[row])) + 1}"
            raise NumericsError(f"a reward is not finite: {reward[row]} ({where}); check the game's reward")
        if len(lanes) == len(self._length):  # every lane, in order
            self._length += 1
            self._returns += reward
        else:
            self._length[lanes] += 1
            self._returns[lanes] += reward

    def length(self, lane: int) -> int:
        """Steps of the running match of `lane`."""
        return int(self._length[lane])

    def end(self, lane: int, result: Result | None, opponent: str = "") -> None:
        """Counts the match that has just ended on `lane`, against this opponent from the league, if there is one."""
        if result is None or not np.isfinite(result.score):
            raise ContractError(f"a match ended without a finite score: its result was {result}")
        self._results.append(
            MatchResult(
                self._learners[lane // self._matches],
                float(result.score),
                result.outcome,
                int(self._length[lane]),
                self._returns[lane].tolist(),
                {name: float(value) for name, value in result.objectives.items()},
                opponent,
                self._count(lane % self._matches, result.outcome),
            )
        )
        self._length[lane] = 0
        self._returns[lane] = 0.0

    def _count(self, match: int, outcome: str | None) -> float | None:
        """A learning role has ended this match; what the match counts, if it was the last to do so."""
        self._ended[match] += 1
        self._points[match] += np.nan if outcome is None else POINTS[outcome]
        if self._ended[match] < len(self._learners):
            return None
        points = float(self._points[match]) / len(self._learners)
        self._ended[match] = self._points[match] = 0
        return None if np.isnan(points) else points

    def take(self) -> tuple[list[MatchResult], dict[str, float]]:
        """Results and seconds since the last call."""
        now = (self.environment_s, self.inference_s, self.bookkeeping_s, self.waiting_s)
        names = ("environment_s", "inference_s", "bookkeeping_s", "waiting_s")
        spent = {name: new - old for name, new, old in zip(names, now, self._taken, strict=True)}
        results, self._results, self._taken = self._results, [], now
        return results, spent

    def save(self) -> dict[str, Any]:
        return {
            "length": self._length.copy(),
            "returns": self._returns.copy(),
            "ended": self._ended.copy(),
            "points": self._points.copy(),
            "results": msgspec.to_builtins(self._results),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._length[:] = state["length"]
        self._returns[:] = state["returns"]
        self._ended[:], self._points[:] = state["ended"], state["points"]
        self._results = msgspec.convert(state["results"], list[MatchResult])
