"""The league of a training: past versions that the present one plays against, how it fares, and who is met how often from now on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian import plugins
from lamarckian.data.pool import MatchResult
from lamarckian.errors import GameError, MisuseError
from lamarckian.evaluate.additions import Since
from lamarckian.evaluate.payoffs import Payoffs
from lamarckian.evaluate.samplers import Pool
from lamarckian.recipe.league import League as Settings
from lamarckian.record.league import SELF, LeagueFolder, Opponent


class League:
    """Kept by the learner: `update` after each of its updates, `save` into each checkpoint.

    Members are, in this order, the recipe's bots and runs, and past versions, oldest first. The version that begins is the first of them
    and stays for good; of the others the oldest goes when there are more than `size`.

    folder: of the run's league. steps, version: of the learner, now. parameters: gives those of the present version, as opponents are to
    have them; asked when one is taken in. state: what `save` gave, to go on from there.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        steps: int,
        version: int,
        parameters: Callable[[], np.ndarray],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.version = version
        self._settings = settings
        self._parameters = parameters
        self._folder = LeagueFolder(folder)
        self._sampler = plugins.build("opponents", settings.opponents)
        self._rule = plugins.build("addition", settings.add)
        self._fixed = [*settings.bots, *settings.runs]
        self._steps = self._added_steps = steps
        self._added_version = version
        self._versions: dict[int, int] = {}  # version → the steps when it was taken in
        self._dropped: dict[int, tuple[int, int]] = {}  # version → the steps when it was taken in, and when it was let go
        self._payoffs = Payoffs(self._fixed, settings.decay)
        self._shares: dict[str, float] = {}
        self._published: list[Opponent] = []
        if state is None:
            self._add()
        else:
            self._load(state)
        self._publish()
        self._folder.keep(self._versions, self._dropped)  # not before: actors of other machines may still go by the last index

    def update(self, steps: int, version: int, results: Sequence[MatchResult]) -> None:
        """Takes in what an update brought: matches that have ended, and a new version."""
        for result in results:
            self._count(result)
        self.version, self._steps = version, steps
        points, matches = self._payoffs.row.sum(axis=1).tolist()
        if self._rule.due(Since(steps - self._added_steps, version - self._added_version, points, int(matches))):
            self._add()
        self._publish()

    def shares(self) -> dict[str, float]:
        """How often each opponent is met from now on, those with 0 too; they add up to 1."""
        return self._shares

    def metrics(self) -> dict[str, float]:
        """Figures for a line of the run's metrics."""
        shares = np.array([share for share in self.shares().values() if share > 0])
        rating, interval = self._payoffs.present()
        names, scores = self._names(), self._payoffs.scores()
        of = {"first": names[0], "newest": names[-1], **{name: name for name in self._fixed}}
        met = {f"league/score/{label}": scores[name] for label, name in of.items() if name in scores}
        return {
            "league/rating": rating,
            "league/rating_interval": interval,
            "league/members": float(len(self._versions)),
            "league/entropy": float(-(shares * np.log(shares)).sum()),
            **met,
            **({"league/score/mean": float(np.mean(list(scores.values())))} if scores else {}),
        }

    def rating(self) -> float:
        """Of the present version; the first one's is 1500."""
        return self._payoffs.present()[0]

    @property
    def measure(self) -> str:
        """What a rating is: only those that are measured from the same version can be compared."""
        return f"rating from {self._names()[0]}"

    def standings(self) -> dict[str, Any]:
        """The league for people, as JSON has it: `league.json`."""
        shares, table = self.shares(), self._payoffs.table()
        steps = {f"v{version}": steps for version, steps in self._versions.items()}
        members = [{**line, "share": shares.get(line["name"], 0.0), "steps": steps.get(line["name"])} for line in table["members"]]
        return {"version": self.version, "steps": self._steps, "share_of_itself": shares[SELF], **table, "members": members}

    def save(self) -> dict[str, Any]:
        """Everything that goes on from here exactly, as JSON has it; parameters stay in the folder."""
        return {
            "versions": list(self._versions.items()),
            "dropped": [(version, *steps) for version, steps in self._dropped.items()],
            "added": [self._added_steps, self._added_version],
            "payoffs": self._payoffs.save(),
            "sampler": {"name": self._settings.opponents.name, **self._sampler.save()},
        }

    def tidy(self, checkpoints: Sequence[int]) -> None:
        """Removes the parameters of versions that have left and are in none of the run's checkpoints, at these steps."""
        needed = {
            version: (added, dropped)
            for version, (added, dropped) in self._dropped.items()
            if any(added <= steps < dropped for steps in checkpoints)
        }
        if needed != self._dropped:
            self._dropped = needed
            self._folder.keep(self._versions, needed)

    def _load(self, state: Mapping[str, Any]) -> None:
        self._versions = dict(state["versions"])
        self._dropped = {version: (added, dropped) for version, added, dropped in state["dropped"]}
        self._added_steps, self._added_version = state["added"]
        self._payoffs.load(state["payoffs"])
        self._payoffs.seat([*self._fixed, *self._names()])
        sampler = dict(state["sampler"])
        if sampler.pop("name") == self._settings.opponents.name:
            self._sampler.load(sampler)

    def _add(self) -> None:
        """Takes the present version in; its results so far are its row of the payoff matrix."""
        self._folder.store(self.version, self._parameters())
        self._versions[self.version] = self._steps
        self._added_steps, self._added_version = self._steps, self.version
        self._payoffs.settle(f"v{self.version}")
        while len(self._versions) > self._settings.size:
            oldest = list(self._versions)[1]
            self._dropped[oldest] = (self._versions.pop(oldest), self._steps)
        self._payoffs.seat([*self._fixed, *self._names()])

    def _count(self, result: MatchResult) -> None:
        if not result.opponent or result.opponent == SELF:
            return
        if result.outcome is None:
            raise GameError("a league takes a game that says who won: the results of this one have no outcome (win, draw or loss)")
        points = result.points
        if points is None or not self._payoffs.count(result.opponent, points):
            return  # the match goes on for another learning role, or the opponent has left since it sat down
        versions = {f"v{version}": version for version in self._versions}
        if result.opponent in versions:
            self._sampler.count(versions[result.opponent], points, self._pool())

    def _names(self) -> list[str]:
        return [f"v{version}" for version in self._versions]

    def _pool(self) -> Pool:
        return Pool(np.array(list(self._versions)), self._payoffs.recent[0][len(self._fixed) :], self.version)

    def _ask_sampler(self) -> dict[str, float]:
        """The shares from now on; once an update, for a sampler may count how often it is asked."""
        given = {**self._settings.bots, **self._settings.runs}
        rest = max(0.0, 1 - sum(given.values()))
        newest, past = self._sampler.shares(self._pool())
        every = np.array([newest, *past], float)
        if len(past) != len(self._versions) or not (every >= 0).all() or not np.isclose(every.sum(), 1):
            raise MisuseError(
                f"league.opponents: {self._settings.opponents.name} must give a share of the newest version and one of each of the "
                f"{len(self._versions)} past ones, not negative, 1 in all; it gave {every.tolist()}"
            )
        versions = dict(zip(self._names(), (rest * past).tolist(), strict=True))
        return {SELF: rest * newest, **versions, **given}

    def _publish(self) -> None:
        self._shares = self._ask_sampler()
        numbers = {f"v{version}": version for version in self._versions}
        opponents = [Opponent(name, share, numbers.get(name)) for name, share in self._shares.items() if share > 0]
        if opponents != self._published:
            self._folder.publish(opponents)
            self._published = opponents
