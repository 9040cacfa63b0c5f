"""Training throughput on one Ray cluster beside RLlib: three hosts with links of 1 Gbit/s, a Ray node of one core on each, in turn.

The hosts are network namespaces of this machine (`lab.py`), so that all share its cores. On the head is the learner, and on each host an
actor of ours, or an env runner of RLlib's, which has an environment of its own (see peers/README.md) and so its own Ray nodes of the same
version. Either plays in as many environments as a peer does in training.py; network and batch are those of training.py. The cluster is made
anew for each run.

    python benchmarks/cluster_peers.py [--tasks pendulum atari-pong] [--runs 3] [--seconds 30]
"""

from __future__ import annotations

import argparse
import sys

from figures import figure
from lab import missing
from peers.meter import SETTINGS
from peers.run import ENVIRONMENT, environment_of, measure
from processes import interruptible
from ray_lab import RayLab
from training import ours, parsed

HOSTS = 3
RATE_MBIT = 1000
COMPARED = {
    "pendulum": {"ppo": ("ppo", "impala", "appo")},
    "atari-pong": {"ppo": ("ppo",), "impala": ("impala", "appo")},
}
"""By task, our algorithms, and RLlib's beside each."""


def ours_there(task: str, algorithm: str, seconds: float, warmup_s: float, more: list[str]) -> dict[str, float]:
    with RayLab(HOSTS, RATE_MBIT) as there:
        settings = [f"cluster.address={there.address}", "actor.count=1", f"actor.matches={SETTINGS[task]['envs']}", *more]
        return ours(task, algorithm, seconds, warmup_s, settings, there.start)


def theirs_there(task: str, algorithm: str, seconds: float) -> dict:
    with RayLab(HOSTS, RATE_MBIT, environment_of("rllib"), ENVIRONMENT) as there:
        more = [f"env_runners={HOSTS}", f"envs_per_runner={SETTINGS[task]['envs']}"]
        return measure("rllib", task, algorithm, seconds, more=more, start=there.start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tasks", nargs="+", default=list(COMPARED), choices=list(COMPARED))
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "impala"], choices=["ppo", "impala"], help="of ours")
    arguments = parsed(parser, runs=3, seconds=30)
    interruptible()
    if (lacking := missing()) is not None:
        print(lacking, file=sys.stderr)
        return
    for task in arguments.tasks:
        for algorithm in (name for name in arguments.algorithms if name in COMPARED[task]):
            peers = COMPARED[task][algorithm]
            mine: list[dict] = []
            theirs: dict[str, list[dict]] = {peer: [] for peer in peers}
            for _ in range(arguments.runs):
                mine.append(ours_there(task, algorithm, arguments.seconds, arguments.warmup, arguments.set))
                for peer, runs in theirs.items():
                    runs.append(theirs_there(task, peer, arguments.seconds))
            for peer, runs in theirs.items():
                rates = [run["steps_per_second"] for run in runs]
                figure(f"cluster.{task}.{algorithm}.training", [run["rate"] for run in mine], "steps/s", f"rllib {peer}", rates)
            figure(f"cluster.{task}.{algorithm}.staleness", [run["staleness"] for run in mine], "versions", digits=2)
            for share in (share for share in mine[0] if share.startswith(("time/", "actor/"))):
                name = f"cluster.{task}.{algorithm}.{share.replace('/', '.')}"
                figure(name, [run[share] for run in mine], "share of its time", digits=3)


if __name__ == "__main__":
    main()
