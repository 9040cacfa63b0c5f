"""Who beat whom in a league: the matrix of its members, the row of the present version, and the ratings that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamarckian.evaluate.rating import Legacy, Payoff, elo, log_odds, nash, pass_on, tally


class Payoffs:
    """Results of N members and of the present version, which is on its way to become one.

    fixed: members that are no versions (bots, runs); they come first. decay: what a result still counts in `recent` after one more match
    against the same member.
    Of members that leave, what their matches say of the others stays in the ratings.
    names: of the members. row: `[2, N]`, points of the present version against each, and matches, since a version became a member last.
    """

    def __init__(self, fixed: Sequence[str], decay: float) -> None:
        self.names = list(fixed)
        self._fixed = len(self.names)
        self._decay = decay
        size = len(self.names)
        self._points, self._counts = np.zeros((size, size)), np.zeros((size, size))
        self.row, self._recent = np.zeros((2, size)), np.zeros((2, size))
        # Of members and the present version, which is the last: who comes from whom, and what those who have left say.
        self._line = np.zeros((size + 1, size + 1))
        self._legacy = Legacy(np.zeros(size + 1), np.zeros((size + 1, size + 1)))

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
        self.names.append(name)
        self._points, self._counts, self._line = (np.pad(matrix, (0, 1)) for matrix in (self._points, self._counts, self._line))
        self._points[size, :size], self._points[:size, size] = points, counts - points
        self._counts[size, :size] = self._counts[:size, size] = counts
        self._line[size, size + 1] = self._line[size + 1, size] = 1
        self._legacy = Legacy(*(np.pad(array, (0, 1)) for array in self._legacy))
        self.row, self._recent = np.zeros((2, size + 1)), np.pad(self._recent, ((0, 0), (0, 1)))

    def seat(self, names: Sequence[str]) -> None:
        """Makes these the members: what is known of them stays, and what others say of them; the rest of what is known of those goes."""
        self._pass_on(np.array([name not in names for name in self.names] + [False]))
        old = {name: index for index, name in enumerate(self.names)}
        here = [index for index, name in enumerate(names) if name in old]
        there = [old[name] for name in names if name in old]
        size, before = len(names), len(self.names)
        self._points, self._counts = (_moved(matrix, here, there, size) for matrix in (self._points, self._counts))
        rows = np.zeros((2, 2, size))
        rows[:, :, here] = np.stack([self.row, self._recent])[:, :, there]
        self.row, self._recent = rows
        here, there = [*here, size], [*there, before]
        self._line, curvature = (_moved(matrix, here, there, size + 1) for matrix in (self._line, self._legacy.curvature))
        slope = np.zeros(size + 1)
        slope[here] = self._legacy.slope[there]
        self._legacy = Legacy(slope, curvature)
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
            "line": self._line.tolist(),
            "legacy": [array.tolist() for array in self._legacy],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `save` gave, whoever the members were."""
        self.names = list(state["names"])
        size = len(self.names)
        self._points, self._counts = (np.array(state[name], float).reshape(size, size) for name in ("points", "counts"))
        self.row, self._recent = (np.array(state[name], float).reshape(2, size) for name in ("row", "recent"))
        self._line = np.array(state["line"], float)
        self._legacy = Legacy(*(np.array(array, float) for array in state["legacy"]))

    def _rated(self) -> tuple[list[str], np.ndarray, np.ndarray, Payoff]:
        """Names of those who are rated, the present version last; ratings, intervals, and their payoff."""
        rated, payoff, prior, legacy = self._known()
        ratings, intervals = elo(payoff, prior, int((rated < self._fixed).sum()), legacy)
        return [[*self.names, "present"][at] for at in rated], ratings, intervals, payoff

    def _known(self) -> tuple[np.ndarray, Payoff, np.ndarray, Legacy]:
        """Who is rated, by number, the present version last; and by what: payoff, prior, legacy.

        Everybody who met anyone, and all versions: each is taken to have drawn one match with the version before it, which it comes from,
        and with whom it met.
        """
        size = len(self.names)
        points, counts = np.pad(self._points, (0, 1)), np.pad(self._counts, (0, 1))
        points[size, :size], points[:size, size] = self.row[0], self.row[1] - self.row[0]
        counts[size, :size] = counts[:size, size] = self.row[1]
        prior = np.maximum(counts > 0, self._line)
        slope, curvature = self._legacy
        rated = np.nonzero(prior.any(axis=0) | curvature.any(axis=0))[0]
        within = np.ix_(rated, rated)
        return rated, tally(points[within], counts[within]), prior[within], Legacy(slope[rated], curvature[within])

    def _pass_on(self, gone: np.ndarray) -> None:
        """Puts into the legacy what those who leave, `[N + 1]`, say of the others."""
        rated, payoff, prior, legacy = self._known()
        leave, stay = gone[rated], rated[~gone[rated]]
        if not leave.any():
            return
        ratings, _ = elo(payoff, prior, legacy=legacy)
        left = pass_on(payoff, prior, legacy, ratings, leave)
        self._legacy = Legacy(np.zeros(len(gone)), np.zeros((len(gone), len(gone))))
        self._legacy.slope[stay], self._legacy.curvature[np.ix_(stay, stay)] = left


def _moved(matrix: np.ndarray, here: Sequence[int], there: Sequence[int], size: int) -> np.ndarray:
    """Zeros `[size, size]`, with rows and columns `there` of a matrix at `here`."""
    moved = np.zeros((size, size))
    moved[np.ix_(here, here)] = matrix[np.ix_(there, there)]
    return moved
