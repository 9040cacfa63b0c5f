"""Trained steps per second on two cores, beside RLlib, Stable-Baselines3 and Sample Factory, in turn; and where the time goes.

The peers run in environments of their own (see peers/README.md), which are made on the first run. All have the same
environments, network, batch, and one pass over each batch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from figures import figure
from peers.run import PEERS, measure

COMMON = ["algorithm.epochs=1", "algorithm.minibatches=1", "algorithm.learning_rate=3e-4", "record.every_s=1", "checkpoint.every_s=60"]
FREE = ["stop.steps=null", "stop.score=null"]
SMALL = "network.hidden=[256,128] network.critic=shared learner.batch=8192"
TASKS = {
    "pendulum": f"pendulum/ppo {SMALL} actor.count=2 actor.matches=64 actor.fragment=64",
    "atari-pong": "atari-pong/ppo game.repeat_action_probability=0.25 network.convolutions=halving "
    "actor.matches=8 actor.fragment=64 learner.batch=1024",
    "pong": f"pong/ppo {SMALL} actor.matches=128 actor.fragment=32",
}
SHARES = {
    "learner": ("time/wait", "time/forward", "time/backward", "time/step", "time/publish"),
    "actor": ("actor/environment", "actor/inference", "actor/bookkeeping", "actor/waiting"),
}


def ours(task: str, seconds: float, warmup_s: float, more: list[str]) -> dict[str, float]:
    """Trains for a while; the means of the metrics' lines after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-c", "from lamarckian.cli import main; main()", "train", *TASKS[task].split(), *COMMON, *FREE, *more,
            f"stop.minutes={(seconds + warmup_s) / 60}", "--run", f"{folder}/run", "--quiet", "--no-video",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=4 * (seconds + warmup_s) + 60)
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["minutes"] * 60 >= warmup_s)
    last = lines[-1]
    kept = [line for line in lines if line["minutes"] > first["minutes"]]
    means = {name: fmean(line[name] for line in kept) for names in SHARES.values() for name in names}
    means |= {name: fmean(line[name] for line in kept) for name in ("cpu", "staleness")}
    return means | {"rate": (last["steps"] - first["steps"]) / (60 * (last["minutes"] - first["minutes"]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--warmup", type=float, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="try another setting of ours")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        peers = arguments.peers if task != "pong" else []
        mine: list[dict[str, float]] = []
        theirs: dict[str, list[dict]] = {peer: [] for peer in peers}
        for _ in range(arguments.runs):
            mine.append(ours(task, arguments.seconds, arguments.warmup, arguments.set))
            for peer in peers:
                theirs[peer].append(measure(peer, task, arguments.seconds))
        rates = [run["rate"] for run in mine]
        if not peers:
            figure(f"{task}.training", rates, "steps/s")
        for peer, runs in theirs.items():
            figure(f"{task}.training", rates, "steps/s", peer, [run["steps_per_second"] for run in runs])
            figure(f"{task}.cpu", [run["cpu"] for run in mine], "share of all cores", peer, [run["cpu_utilisation"] for run in runs], 3)
        figure(f"{task}.staleness", [run["staleness"] for run in mine], "versions", digits=2)
        for names in SHARES.values():
            for name in names:
                figure(f"{task}.{name.replace('/', '.')}", [run[name] for run in mine], "share of its time", digits=3)


if __name__ == "__main__":
    main()
