"""Sampling Pong against four distinct past versions at a time, beside one, in both ways of playing, on one core in turn."""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import tempfile
from pathlib import Path

import numpy as np
from figures import figure
from sampling import sampled

from lamarckian.actor.process import LeagueDescription, build_actor, build_mdp, fragment_layout
from lamarckian.data.pool import LocalPool
from lamarckian.evaluate.plan import plan
from lamarckian.nets.parameters import flatten
from lamarckian.recipe import load
from lamarckian.record.league import LeagueFolder, Opponent
from lamarckian.transport.versions import VersionBoard


class Against:
    """One actor as in training, which meets `versions` past versions alike; with none, its own newest version."""

    def __init__(self, way: str, versions: int, folder: Path) -> None:
        planned = plan(load("pong/league", ["learner.threads=1", f"actor.way={way}"]))
        description, parameters = planned.description, flatten(planned.policy)
        if versions:
            league = LeagueFolder(folder)
            for version in range(versions):
                league.store(version, parameters + np.float32(0.1 * version))
            league.publish([Opponent(f"v{version}", 1 / versions, version) for version in range(versions)])
            slots = description.matches  # one each, so that at no time a version is missing
            description.league = LeagueDescription(str(folder), [], {}, 2 * slots, True)
        else:
            description.roles["right"] = {"agent": "self"}
        mdp = build_mdp(description)
        layout = fragment_layout(description, mdp)
        self.samples = layout.steps * layout.columns
        self.pool = LocalPool(layout, 2)
        board = VersionBoard.create(description.model.size)
        board.publish(1, parameters)
        self.actor = build_actor(description, mdp, self.pool, board)
        self.actor.start()

    def rate(self, seconds: float) -> float:
        return sampled(self.actor, self.pool, self.samples, seconds)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    for way in ("batched", "coroutines"):
        with tempfile.TemporaryDirectory() as folder:
            actors = {versions: Against(way, versions, Path(folder, str(versions))) for versions in (0, 1, 4)}
            for actor in actors.values():
                actor.rate(2.0)
            rates: dict[int, list[float]] = {versions: [] for versions in actors}
            for _ in range(arguments.runs):
                for versions, actor in actors.items():
                    rates[versions].append(actor.rate(arguments.seconds))
        figure(f"pong.league.{way}.4", rates[4], "steps/s", "one past version", rates[1])
        figure(f"pong.league.{way}.4", rates[4], "steps/s", "its own newest version, sides not swapped", rates[0])


if __name__ == "__main__":
    main()
