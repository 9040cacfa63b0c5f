"""How often a league's past versions are met: what the literature has, each as a plug-in.

A sampler is asked for shares once after each update, and when a run begins or goes on. It gives that of the newest version itself, and one
for each past version in the league, oldest first; they are not negative and add up to 1. Plug-ins derive from `Sampler`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]

RARE = 1e-2
"""Of what it would be if all past versions were met alike: a version that is met less often than that falls no further by `Quality`."""


class Pool(NamedTuple):
    """The past versions `[N]`, oldest first, N ≥ 1; the score in [0, 1] of the newest version against each, and its number `now`."""

    versions: np.ndarray
    scores: np.ndarray
    now: int


class Sampler(ABC):
    """A sampler has `shares`; one that goes by more than scores has the rest, too."""

    @abstractmethod
    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        """The share of the newest version, and `[N]` of the past ones."""

    def count(self, version: int, score: float, pool: Pool) -> None:  # noqa: B027 — most have nothing to count
        """The newest version has played a match against a past one: 1 it won, 0.5 a draw, 0 it lost."""

    def save(self) -> dict[str, Any]:
        """All that it remembers, as JSON has it."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027 — and nothing to remember
        """Goes on from what `save` gave."""


class Latest(Sampler):
    """The newest version plays itself."""

    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        return 1.0, np.zeros(len(pool.versions))


class Uniform(Sampler):
    """All versions of [δ · now, now] alike, the newest among them (Bansal et al. 2018, https://arxiv.org/abs/1710.03748, section 4.2).

    delta: δ; 0 takes all versions, and close to 1 only young ones.
    """

    def __init__(self, delta: Fraction = 0.5) -> None:
        self._delta = delta

    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        young = pool.versions >= self._delta * pool.now
        share = 1 / (1 + young.sum())
        return float(share), young * share


class Quality(Sampler):
    """Itself mostly, and past versions i by p_i ∝ exp(q_i) (OpenAI et al. 2019, https://arxiv.org/abs/1912.06680, appendix N).

    Where the newest version wins against i, q_i falls by η / (N p_i); else it stays, and so it does where N p_i is below `RARE`: the steps
    grow as p_i shrinks, and without an end the version would never be met again. A version begins with the greatest q of all.
    latest: the share of the newest version itself. rate: η.
    """

    def __init__(self, latest: Share = 0.8, rate: Positive = 0.01) -> None:
        self._latest = latest
        self._rate = rate
        self._qualities: dict[int, float] = {}

    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        return self._latest, (1 - self._latest) * self._past(pool)

    def count(self, version: int, score: float, pool: Pool) -> None:
        if score == 1:
            relative = len(pool.versions) * float(self._past(pool)[pool.versions.tolist().index(version)])
            if relative >= RARE:
                self._qualities[version] -= self._rate / relative

    def _past(self, pool: Pool) -> np.ndarray:
        versions = pool.versions.tolist()
        first = max(self._qualities.values(), default=0.0)
        self._qualities = {version: self._qualities.get(version, first) for version in versions}
        qualities = np.array(list(self._qualities.values()))
        weights = np.exp(qualities - qualities.max())
        return weights / weights.sum()

    def save(self) -> dict[str, Any]:
        return {"versions": list(self._qualities), "qualities": list(self._qualities.values())}

    def load(self, state: Mapping[str, Any]) -> None:
        self._qualities = dict(zip(state["versions"], state["qualities"], strict=True))


class PFSP(Sampler):
    """Prioritised fictitious self-play: past versions by a weight of the score x against them (Vinyals et al. 2019,
    https://doi.org/10.1038/s41586-019-1724-z, Methods).

    weighting: hard (1 − x)^power, who beats us; even x (1 − x), who is as good as we; linear 1 − x.
    latest: the share of the newest version itself; the paper's main agents have 0.35.
    """

    def __init__(self, weighting: Literal["hard", "even", "linear"] = "hard", power: Positive = 2.0, latest: Share = 0.35) -> None:
        self._weighting = weighting
        self._power = power
        self._latest = latest

    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        x = pool.scores
        weights = x * (1 - x) if self._weighting == "even" else (1 - x) ** (self._power if self._weighting == "hard" else 1.0)
        total = weights.sum()
        past = weights / total if total > 0 else np.full(len(x), 1 / len(x))
        return self._latest, (1 - self._latest) * past


class Cycle(Sampler):
    """One past version after another, from the oldest to the youngest and again.

    updates: of the learner, for which each is met.
    """

    def __init__(self, updates: Annotated[int, Field(ge=1)] = 10) -> None:
        self._updates = updates
        self._met = self._since = -1

    def shares(self, pool: Pool) -> tuple[float, np.ndarray]:
        if self._met not in pool.versions or pool.now - self._since >= self._updates:
            younger = pool.versions[pool.versions > self._met]
            self._met, self._since = int(younger[0] if len(younger) else pool.versions[0]), pool.now
        return 0.0, (pool.versions == self._met).astype(float)

    def save(self) -> dict[str, Any]:
        return {"met": self._met, "since": self._since}

    def load(self, state: Mapping[str, Any]) -> None:
        self._met, self._since = state["met"], state["since"]
