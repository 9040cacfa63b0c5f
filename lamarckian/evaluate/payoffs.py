"""Who beat whom in a league: the matrix of its members, the row of the present version, and the ratings that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamarckian.evaluate.rating import Payoff, elo, log_odds, nash, tally


class Payoffs:
    """Results of N members and of the present version, which is on its way to become one.

    fixed: members that are no versions (bots, runs); they come first. decay: what a result still counts in `recent` after one more match
    against the same member.
    names: of the members. row: `[2, N]`, points of the present version against each, and matches, since a version became a member last.
    """

    def __init__(self, fixed: Sequence[str], decay: float) -> None:
        self.names = list(fixed)
        self._fixed = len(self.names)
        self._decay = decay
        size = len(self.names)
        self._points, self._counts = np.zeros((size, size)), np.zeros((size, size))
        self.row, self._recent = np.zeros((2, size)), np.zeros((2, size))

    @property
    def recent(self) -> np.ndarray:
        """`[2, N]`: the score of late against each member, one drawn match more taken for played, and the matches behind it, decayed."""
        points, counts = self._recent
        return np.stack([(points + 0.5) / (counts + 1), counts])

    def count(self, name: str, points: float) -> bool:
        """The present version has made so many points in a match against a member; False where there is none of this name."""
        if name not in self.names:
            return False
        at = self.names.index(name)
        self.row[:, at] += points, 1
        self._recent[:, at] *= self._decay
        self._recent[:, at] += points, 1
        return True

    def settle(self, name: str) -> None:
        """The present version becomes a member: its row is the matrix's last; another begins."""
        points, counts = self.row
        size = len(self.names)
        self.seat([*self.names, name])
        self._points[size, :size], self._points[:size, size] = points, counts - points
        self._counts[size, :size] = self._counts[:size, size] = counts
        self.row[:] = 0

    def seat(self, names: Sequence[str]) -> None:
        """Makes these the members: what is known of them stays, what is known of others goes."""
        old = {name: index for index, name in enumerate(self.names)}
        here = [index for index, name in enumerate(names) if name in old]
        there = [old[name] for name in names if name in old]
        for field in ("_points", "_counts"):
            matrix = np.zeros((len(names), len(names)))
            matrix[np.ix_(here, here)] = getattr(self, field)[np.ix_(there, there)]
            setattr(self, field, matrix)
        for field in ("row", "_recent"):
            rows = np.zeros((2, len(names)))
            rows[:, here] = getattr(self, field)[:, there]
            setattr(self, field, rows)
        self.names = list(names)

    def scores(self) -> dict[str, float]:
        """The score of late against each member that was met."""
        points, counts = self._recent
        return {name: float(points[at] / counts[at]) for at, name in enumerate(self.names) if counts[at] > 0}

    def present(self) -> tuple[float, float]:
        """The rating of the present version, and half of its 95% interval; the first version's is 1500."""
        _, ratings, intervals, _ = self._rated()
        return float(ratings[-1]), float(intervals[-1])

    def table(self) -> dict[str, Any]:
        """All ratings, Nash weights and scores, as JSON has them; the payoff matrix has the present version last.

        Where two have not met, the payoff is None, and Nash averaging takes what their ratings say.
        """
        who, ratings, intervals, payoff = self._rated()
        met = payoff.counts > 0
        weights, _ = nash(np.where(met, log_odds(payoff, np.ones(met.shape)), ratings[:, None] - ratings))
        scores = self.scores()
        members = []
        for place, name in enumerate(who[:-1]):
            at = self.names.index(name)
            members.append(
                {
                    "name": name,
                    "elo": float(ratings[place]),
                    "elo_interval": float(intervals[place]),
                    "nash_weight": float(weights[place]),
                    "score_against": scores.get(name),
                    "matches": int(self.row[1, at]),
                }
            )
        matrix = np.where(met, payoff.scores, np.nan).tolist()
        matrix = [[None if np.isnan(score) else score for score in row] for row in matrix]
        present = {"elo": float(ratings[-1]), "elo_interval": float(intervals[-1]), "nash_weight": float(weights[-1])}
        return {"present": present, "members": members, "payoff": matrix}

    def save(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "points": self._points.tolist(),
            "counts": self._counts.tolist(),
            "row": self.row.tolist(),
            "recent": self._recent.tolist(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `save` gave, whoever the members were."""
        self.names = list(state["names"])
        size = len(self.names)
        self._points, self._counts = (np.array(state[name], float).reshape(size, size) for name in ("points", "counts"))
        self.row, self._recent = (np.array(state[name], float).reshape(2, size) for name in ("row", "recent"))

    def _rated(self) -> tuple[list[str], np.ndarray, np.ndarray, Payoff]:
        """Names of those who are rated, the present version last; ratings, intervals, and their payoff.

        Everybody who met anyone, and all versions: each is taken to have drawn one match with the version before it, which it comes from,
        and with whom it met.
        """
        size = len(self.names)
        points, counts = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size + 1))
        points[:size, :size], counts[:size, :size] = self._points, self._counts
        points[size, :size], points[:size, size] = self.row[0], self.row[1] - self.row[0]
        counts[size, :size] = counts[:size, size] = self.row[1]
        prior = (counts > 0).astype(float)
        chain = np.arange(self._fixed, size)
        prior[chain, chain + 1] = prior[chain + 1, chain] = 1.0
        rated = np.nonzero(prior.any(axis=0))[0]
        within = np.ix_(rated, rated)
        payoff = tally(points[within], counts[within])
        anchor = int((rated < self._fixed).sum())
        ratings, intervals = elo(payoff, prior[within], anchor)
        return [[*self.names, "present"][at] for at in rated], ratings, intervals, payoff
