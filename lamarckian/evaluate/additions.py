"""When a league takes the present version in, as plug-ins: after steps or updates, when it is good enough, or by a rule of one's own.

A rule is a class with a method `due`, which is asked after each update.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

Count = Annotated[int, Field(ge=1)]


class Since(NamedTuple):
    """What has happened since a version was taken in last.

    points: that the present version has made in `matches` matches against whoever is in the league, a win being 1 and a draw 0.5.
    """

    steps: int
    updates: int
    points: float
    matches: int


class Steps:
    """Every so many steps.

    every: steps.
    """

    def __init__(self, every: Count = 200_000) -> None:
        self._every = every

    def due(self, since: Since) -> bool:
        return since.steps >= self._every


class Updates:
    """Every so many updates.

    every: updates; OpenAI Five took one in every 10.
    """

    def __init__(self, every: Count = 20) -> None:
        self._every = every

    def due(self, since: Since) -> bool:
        return since.updates >= self._every


class Score:
    """As soon as the present version scores above a bar against the league, or has had its time.

    above: mean score. matches: so many at least. at_most: updates after which it is taken in whatever it scores; null for never.
    """

    def __init__(self, above: Annotated[float, Field(ge=0, lt=1)] = 0.7, matches: Count = 100, at_most: Count | None = 200) -> None:
        self._above = above
        self._matches = matches
        self._at_most = at_most

    def due(self, since: Since) -> bool:
        if self._at_most is not None and since.updates >= self._at_most:
            return True
        return since.matches >= self._matches and since.points > self._above * since.matches
