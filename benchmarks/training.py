"""Trained steps per second on two cores, beside RLlib, Stable-Baselines3 and Sample Factory, in turn; and where the time goes.

The peers run in environments of their own (see peers/README.md), which are made on the first run. All have the same environments and
network; the same batch and one pass over each, or the same minibatch and as many samples drawn for each that was played.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from figures import figure
from peers.meter import ALGORITHMS, COMMON, SETTINGS
from peers.run import PEERS, measure
from processes import Spending, Start, interruptible, running

Runs = dict[tuple[str, ...], list[dict]]

ON_POLICY, REPLAYED = ("ppo", "impala"), ("dqn", "dqn-plain")
STICKY = "game.repeat_action_probability=0.25"
BOTH = ("actor.count=1", "learner.threads=2")  # the actor waits for the learner most of the time
OURS = {
    "pendulum": {"ppo": ("actor.count=2", "actor.matches=32", "actor.fragment=64")},
    "atari-pong": dict.fromkeys(ON_POLICY, (STICKY, "actor.matches=8", "actor.fragment=64"))
    | dict.fromkeys(REPLAYED, (STICKY, "actor.matches=8", "actor.fragment=16", "learner.batch=256", *BOTH)),
    "pong": dict.fromkeys(ON_POLICY, ("actor.matches=128", "actor.fragment=32"))
    | dict.fromkeys(REPLAYED, ("actor.matches=128", "actor.fragment=16", "learner.batch=2048")),
}
THEIRS = {
    "ppo": [("rllib", "ppo"), ("stable_baselines3", "ppo"), ("sample_factory", "appo")],
    "impala": [("rllib", "impala"), ("rllib", "appo")],
    "dqn": [("rllib", "dqn")],
    "dqn-plain": [("rllib", "dqn-plain"), ("stable_baselines3", "dqn-plain")],
}
WITHOUT_NUMBA = "sample_factory"  # its NumPy is too old to play our Pong
RUN = ["record.every_s=1", "checkpoint.every_s=60", "stop.steps=null", "stop.score=null"]


def recipe(task: str, algorithm: str) -> list[str]:
    """Recipe and overrides: the task's game and seats; network, batch and algorithm as the peers have them."""
    settings, learning = SETTINGS[task], COMMON | ALGORITHMS[algorithm]
    network = {"hidden": settings["hidden"], "activation": settings["activation"]}
    if "convolutions" in settings:
        network["convolutions"] = "halving"
    if algorithm in REPLAYED:
        network["dueling"] = learning.pop("dueling")
        learning |= {"name": "dqn", "replay_samples": settings["replay_samples"], "final_epsilon": learning["epsilon"]}
    else:
        learning |= {"name": algorithm} | ({"optimizer": "adam"} if algorithm == "impala" else {})
    sections = {"network": network, "algorithm": learning, "learner.batch": settings["batch"]}
    return [f"{task}/ppo", *(f"{name}={json.dumps(section)}" for name, section in sections.items()), *OURS[task][algorithm]]


def ours(task: str, algorithm: str, seconds: float, warmup_s: float, more: list[str], start: Start = subprocess.Popen) -> dict[str, float]:
    """Trains for a while; the means of the metrics' lines after the warm-up, and `process/…`, the cores that processes keep busy.

    start: how the process is started.
    """
    lines, cores = train([*recipe(task, algorithm), *more], seconds, warmup_s, start)
    first = next(line for line in lines if line["minutes"] * 60 >= warmup_s)
    last = lines[-1]
    kept = [line for line in lines if line["minutes"] > first["minutes"]]
    names = [name for name in last if name.startswith(("cpu", "staleness", "time/", "actor/"))]
    means = {name: fmean(line[name] for line in kept if name in line) for name in names}
    return means | cores | {"rate": (last["steps"] - first["steps"]) / (60 * (last["minutes"] - first["minutes"]))}


def train(
    settings: list[str], seconds: float, warmup_s: float, start: Start = subprocess.Popen, **options: Any
) -> tuple[list[dict], dict[str, float]]:
    """Trains for `seconds` after `warmup_s`, by a recipe and what is to be different in it.

    All lines of its metrics, and `process/…`, the cores that its processes keep busy after the warm-up. options: of `start`.
    """
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "run", "metrics.jsonl")
        command = [
            sys.executable, "-c", "from lamarckian.cli import main; main()", "train", *settings, *RUN,
            f"stop.minutes={(seconds + warmup_s) / 60}", "--run", f"{folder}/run", "--quiet", "--no-video",
        ]  # fmt: skip
        with running(command, start, stdout=subprocess.DEVNULL, **options) as process:
            spending = _watch(process, metrics, warmup_s, 4 * (seconds + warmup_s) + 60)
        return _lines(metrics), {f"process/{kind}": cores for kind, cores in spending.rates().items()}


def _watch(process: subprocess.Popen[Any], metrics: Path, warmup_s: float, limit_s: float) -> Spending:
    """Waits until a training is over, and sees what its processes spend after the warm-up. Raises where it fails, or takes longer."""
    spending, deadline = Spending(process.pid), time.monotonic() + limit_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"training took longer than {limit_s:g} s")
        if any(line["minutes"] * 60 >= warmup_s for line in _lines(metrics)[-1:]):
            spending.look()
        time.sleep(1.0)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return spending


def _lines(metrics: Path) -> list[dict]:
    """The lines that are there, whole."""
    return [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")] if metrics.exists() else []


def report(task: str, algorithm: str, mine: list[dict], theirs: Runs) -> None:
    """Prints an algorithm's figures on a task beside those of each peer, and where its time goes."""
    name, rates = f"{task}.{algorithm}", [run["rate"] for run in mine]
    if not theirs:
        figure(f"{name}.training", rates, "steps/s")
    for peer, runs in theirs.items():
        reference = " ".join(peer)
        figure(f"{name}.training", rates, "steps/s", reference, [run["steps_per_second"] for run in runs])
        figure(f"{name}.cpu", [run["cpu"] for run in mine], "share of all cores", reference, [run["cpu_utilisation"] for run in runs], 3)
    spent(name, mine)


def spent(name: str, runs: list[dict]) -> None:
    """Prints how old samples were, where the time went, and which processes had the processor."""
    figure(f"{name}.staleness", [run["staleness"] for run in runs], "versions", digits=2)
    for kind, unit in (("time/", "share of its time"), ("actor/", "share of its time"), ("process/", "cores")):
        for share in (share for share in runs[0] if share.startswith(kind)):
            figure(f"{name}.{share.replace('/', '.')}", [run.get(share, 0.0) for run in runs], unit, digits=3)


def parsed(parser: argparse.ArgumentParser, runs: int, seconds: float) -> argparse.Namespace:
    """The command line, with what `ours` wants to know; by default, so many runs of so many seconds."""
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--warmup", type=float, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="try another setting of ours")
    return parser.parse_args()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=list(OURS), choices=list(OURS))
    parser.add_argument("--algorithms", nargs="*", default=list(THEIRS), choices=list(THEIRS), help="as far as a task has them")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    arguments = parsed(parser, runs=3, seconds=25)
    interruptible()
    for task in arguments.tasks:
        algorithms = [name for name in arguments.algorithms if name in OURS[task]]
        peers = [peer for peer in arguments.peers if peer != WITHOUT_NUMBA or task != "pong"]
        mine: dict[str, list[dict]] = defaultdict(list)
        theirs: dict[str, Runs] = {name: {peer: [] for peer in THEIRS[name] if peer[0] in peers} for name in algorithms}
        for _ in range(arguments.runs):
            for name in algorithms:
                mine[name].append(ours(task, name, arguments.seconds, arguments.warmup, arguments.set))
                for peer, runs in theirs[name].items():
                    runs.append(measure(peer[0], task, peer[1], arguments.seconds))
        for name in algorithms:
            report(task, name, mine[name], theirs[name])
        if {"impala", "ppo"} <= mine.keys():
            rates = {name: [run["rate"] for run in runs] for name, runs in mine.items()}
            figure(f"{task}.impala.training", rates["impala"], "steps/s", "our ppo", rates["ppo"])


if __name__ == "__main__":
    main()
