"""Trained steps per second of one recipe on this machine: in the local mode, by the path of many machines over loopback, and the same
with Ray, in turn; how old samples are, where the time goes, and which processes spend it.

    python benchmarks/distributed.py [--tasks pendulum pong] [--ways local loopback ray] [--runs 5] [--seconds 25]
"""

from __future__ import annotations

import argparse

from figures import figure
from processes import interruptible
from training import ours, parsed, spent

WAYS = {"local": (), "loopback": ("cluster.address=local",), "ray": ("cluster.address=auto",)}
TASKS = ("pendulum", "pong", "atari-pong")


def costs(name: str, runs: dict[str, list[dict]]) -> None:
    """Prints the figures of a task: each way's beside those of the local mode."""
    rates = {way: [run["rate"] for run in done] for way, done in runs.items()}
    work = {way: [1e6 * sum(_processes(run)) / run["rate"] for run in done] for way, done in runs.items()}
    for way, done in runs.items():
        beside = way != "local" and "local" in runs
        figure(f"{name}.{way}.training", rates[way], "steps/s", *(("local", rates["local"]) if beside else ()))
        figure(f"{name}.{way}.work", work[way], "CPU s per million steps", *(("local", work["local"]) if beside else ()), digits=2)
        spent(f"{name}.{way}", done)


def _processes(run: dict[str, float]) -> list[float]:
    return [cores for kind, cores in run.items() if kind.startswith("process/")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tasks", nargs="+", default=["pendulum", "pong"], choices=TASKS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--algorithm", default="ppo", choices=("ppo", "impala"), help="IMPALA on the two Pongs only")
    arguments = parsed(parser, runs=5, seconds=25)
    interruptible()
    for task in arguments.tasks:
        runs: dict[str, list[dict]] = {way: [] for way in arguments.ways}
        for _ in range(arguments.runs):
            for way, done in runs.items():
                more = [*WAYS[way], *arguments.set]
                done.append(ours(task, arguments.algorithm, arguments.seconds, arguments.warmup, more))
        costs(f"{task}.{arguments.algorithm}", runs)


if __name__ == "__main__":
    main()
