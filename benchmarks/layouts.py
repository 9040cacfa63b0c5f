"""Staleness and learning of one training under three layouts of the broadcast, with slow links: the paper's figures 7d and 8.

The hosts are network namespaces of this machine (`lab.py`), each with a link of 50 Mbit/s, a Ray node and one actor; IMPALA learns CartPole
by a network of a million parameters, so that a version is 4 MB. What decides is to be the links, not the two cores that carry all hosts:
each step of the game takes 2 ms in which the processor is free (`paced.py`), and `cpu` says how busy it was.

    python benchmarks/layouts.py [--hosts 6] [--rate-mbit 50] [--runs 2] [--seconds 150] [--plot docs/images/layouts.png]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import get_args

import numpy as np
from figures import COLORS, figure
from lab import missing
from processes import interruptible
from ray_lab import RayLab
from training import train

from lamarckian.transport.layouts import Layout

STEP_S = 0.002
PARAMETERS = 990_503
SETTINGS = [
    "cartpole/impala",
    "game.id=paced:cartpole",
    f"game.kwargs={json.dumps({'step_s': STEP_S})}",
    "network.hidden=[700,700]",
    "algorithm.learning_rate=1e-4",  # with three times that, samples of eight versions ago make the policy collapse
    "algorithm.max_gradient_norm=1",
    "algorithm.minibatches=1",
    "actor.count=1",
]
MEASURES = {
    "staleness": "versions",
    "staleness/p90": "versions",
    "staleness/p99": "versions",
    "broadcast/median_s": "s",
    "broadcast/slowest_s": "s",
    "rate_hz": "steps/s",
    "cpu": "share of all cores",
}
Lines = list[dict]


def training(layout: str, hosts: int, rate_mbit: float, seconds: float, warmup_s: float, more: list[str]) -> Lines:
    """The lines of its metrics after the warm-up, each with `cpu`, of the whole machine."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with RayLab(hosts, rate_mbit, environment={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}) as there:
        settings = [*SETTINGS, f"cluster.address={there.address}", f"cluster.broadcast={layout}", *more]
        lines, _ = train(settings, seconds, warmup_s, there.start)
    return [line | {"cpu": _busy(line)} for line in lines]


def _busy(line: Mapping[str, float]) -> float:
    """All hosts see the one machine."""
    return max((value for name, value in line.items() if name.startswith("machine/")), default=0.0)


def mean(lines: Lines, measure: str, warmup_s: float) -> float:
    return fmean(line[measure] for line in lines if line["minutes"] * 60 >= warmup_s and line.get(measure) is not None)


def curve(runs: list[Lines], clock: np.ndarray) -> np.ndarray:
    """The score at these minutes, the mean of the runs."""
    scored = [[(line["minutes"], line["score"]) for line in lines if line.get("score") is not None] for lines in runs]
    return np.mean([np.interp(clock, *zip(*points, strict=True)) for points in scored], axis=0)


def report(runs: Mapping[str, list[Lines]], warmup_s: float, bound_s: float) -> None:
    """Prints the figures of each layout, and its curve."""
    clock = np.linspace(0.0, min(lines[-1]["minutes"] for done in runs.values() for lines in done), 25)
    for layout, done in runs.items():
        for measure, unit in MEASURES.items():
            name, values = f"layouts.{layout}.{measure.replace('/', '.')}", [mean(lines, measure, warmup_s) for lines in done]
            figure(name, values, unit, *(("size / rate", [bound_s]) if unit == "s" else ()), digits=2)
        scores = curve(done, clock)
        figure(f"layouts.{layout}.score.mean", [float(scores.mean())], "score, over the time of the run")
        points = [[round(float(minute), 2), round(float(score), 1)] for minute, score in zip(clock, scores, strict=True)]
        print(json.dumps({"name": f"layouts.{layout}.curve", "unit": "minutes, score", "points": points, "runs": len(done)}), flush=True)


def plot(runs: Mapping[str, list[Lines]], warmup_s: float, path: Path) -> None:
    """Draws staleness, the time of a broadcast, and the score against time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 3.6), layout="constrained", dpi=90)
    FigureCanvasAgg(picture)
    ages, times, scores = picture.subplots(1, 3)
    shares = ("staleness/p50", "staleness", "staleness/p90", "staleness/p99")
    for place, (layout, done) in enumerate(runs.items()):
        color = COLORS[layout]
        ages.bar(np.arange(len(shares)) + 0.27 * (place - 1), [fmean(mean(lines, share, warmup_s) for lines in done) for share in shares],
                 0.25, color=color, label=layout)  # fmt: skip
        times.bar([layout], [fmean(mean(lines, "broadcast/median_s", warmup_s) for lines in done)], 0.6, color=color)
        for lines in done:
            points = [(line["minutes"], line["score"]) for line in lines if line.get("score") is not None]
            scores.plot(*zip(*points, strict=True), color=color, alpha=0.3, linewidth=1)
        clock = np.linspace(0.0, min(lines[-1]["minutes"] for lines in done), 100)
        scores.plot(clock, curve(done, clock), color=color, linewidth=2, label=layout)
    ages.set_xticks(range(len(shares)), ["median", "mean", "90 %", "99 %"])
    ages.set_title("staleness, versions")
    times.set_title("broadcast, median of relays, s")
    scores.set(title="score", xlabel="minutes")
    for axis in (ages, times, scores):
        axis.grid(color="#e4e4e4", axis="both" if axis is scores else "y")
        axis.set_axisbelow(True)
    ages.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--rate-mbit", type=float, default=50.0)
    parser.add_argument("--layouts", nargs="+", default=list(get_args(Layout)), choices=get_args(Layout))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--warmup", type=float, default=20)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="try another setting")
    parser.add_argument("--plot", type=Path, help="where to draw them")
    arguments = parser.parse_args()
    interruptible()
    if (lacking := missing()) is not None:
        print(lacking, file=sys.stderr)
        return
    runs: dict[str, list[Lines]] = {layout: [] for layout in arguments.layouts}
    for run in range(arguments.runs):
        for layout, done in runs.items():
            more = [*arguments.set, f"seed={run}"]
            done.append(training(layout, arguments.hosts, arguments.rate_mbit, arguments.seconds, arguments.warmup, more))
    report(runs, arguments.warmup, 32 * PARAMETERS / (arguments.rate_mbit * 1e6))
    if arguments.plot is not None:
        plot(runs, arguments.warmup, arguments.plot)


if __name__ == "__main__":
    main()
