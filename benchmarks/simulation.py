"""Training on more machines than there are: a discrete-event simulation of the data plane, beside the lab's figures and the paper's.

    python benchmarks/simulation.py check
    python benchmarks/simulation.py answers [--games football pong] [--machines 50 100 150 1000] [--layouts flat tree pipeline]
        [--rates-mbit 100 1000 10000] [--parameters 1000000 10000000] [--seed 0] [--plot docs/images/simulation.png]

What is simulated, and by which figures: simulated/setup.py, broadcast.py, training.py. `check` prints the lab's seconds, the simulation's
and their ratio; `answers` prints six lines for each setup.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

from figures import COLORS, figure
from simulated.broadcast import broadcast_s
from simulated.setup import GAMES, LAB, LAB_SECONDS, LAB_TRAININGS, Setup, lab_training
from simulated.training import Report, simulate

from lamarckian.cluster.machine import cores
from lamarckian.transport.layouts import Layout

PAPER_PER_S = {50: 17_000.0, 150: 53_000.0}
"""Machines of 40 cores: samples of Google football consumed per second (paper on Lamarckian, section IV-B, on figure 7)."""
PIECES = 16_000
"""To be simulated for a version on all machines, at most, as long as a piece has no more than MAX_CHUNKS chunks."""
MAX_CHUNKS = 16


class Case(NamedTuple):
    """What an answer is for."""

    game: str
    parameters: int
    rate_mbit: float
    machines: int
    layout: Layout

    @property
    def name(self) -> str:
        return f"{self.game}.{self.parameters / 1e6:g}M.{self.rate_mbit:g}Mbit.{self.machines}.{self.layout}"

    def setup(self) -> Setup:
        whole = replace(GAMES[self.game], parameters=self.parameters, link_mbit=self.rate_mbit, machines=self.machines, layout=self.layout)
        chunks = whole.size_bytes / whole.chunk_bytes * whole.machines
        return replace(whole, piece_chunks=min(MAX_CHUNKS, math.ceil(chunks / PIECES)))


def check() -> dict[tuple[Layout, int, float], tuple[float, float]]:
    """Seconds that the lab measured, and that the simulation says, by the lab's own cases."""
    found = {}
    for (layout, machines, rate_mbit), measured in LAB_SECONDS.items():
        setup = replace(LAB, layout=layout, machines=machines, link_mbit=rate_mbit)
        found[layout, machines, rate_mbit] = measured, broadcast_s(setup)
    return found


def answer(case: Case, seed: int) -> Report:
    return simulate(case.setup(), seed)


def report(case: Case, found: Report) -> None:
    """Prints the figures of a case."""
    bound_s = 32 * case.parameters / (case.rate_mbit * 1e6)
    paper = [PAPER_PER_S[case.machines]] if case.game == "football" and case.machines in PAPER_PER_S else None
    figure(f"{case.name}.produced", [found.produced_per_s], "samples/s")
    figure(f"{case.name}.consumed", [found.consumed_per_s], "samples/s", paper and "the paper's", paper)
    figure(f"{case.name}.broadcast", [found.broadcast_s], "s", "size / rate", [bound_s], digits=4)
    figure(f"{case.name}.broadcast.slowest", [found.slowest_broadcast_s], "s", "size / rate", [bound_s], digits=4)
    figure(f"{case.name}.staleness", [found.staleness], "versions", digits=2)
    figure(f"{case.name}.staleness.p95", [found.staleness_p95], "versions", digits=0)


def plot(answers: Mapping[Case, Report], path: Path) -> None:
    """Draws football with the smallest network: samples/s beside the paper's, staleness, and the time of a broadcast, against cores."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, FixedLocator, NullLocator

    football = {case: found for case, found in answers.items() if case.game == "football"}
    smallest = min(case.parameters for case in football)
    picture = Figure(figsize=(12, 3.8), layout="constrained", dpi=90)
    FigureCanvasAgg(picture)
    measures = (("samples consumed per second", "consumed_per_s"), ("staleness, versions", "staleness"), ("broadcast, s", "broadcast_s"))
    for axis, (label, measure) in zip(picture.subplots(1, len(measures)), measures, strict=True):
        for rate_mbit, style in ((1_000.0, "-"), (10_000.0, ":")):
            for layout, color in COLORS.items():
                cases = [case for case in football if case[1:3] == (smallest, rate_mbit) and case.layout == layout]
                points = sorted((case.setup().cores * case.machines, getattr(football[case], measure)) for case in cases)
                if points:
                    axis.plot(*zip(*points, strict=True), style, color=color, marker=".", label=f"{layout}, {rate_mbit / 1e3:g} Gbit/s")
        axis.set(xscale="log", yscale="log", xlabel="cores, 40 a machine", title=label)
        axis.xaxis.set_major_locator(FixedLocator(sorted({case.setup().cores * case.machines for case in football})))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(color="#e4e4e4")
        axis.set_axisbelow(True)
    first = picture.axes[0]
    first.plot([40 * n for n in PAPER_PER_S], PAPER_PER_S.values(), "k*", markersize=11, label="paper, football")
    first.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    answers = commands.add_parser("answers")
    answers.add_argument("--games", nargs="+", default=list(GAMES), choices=list(GAMES))
    answers.add_argument("--machines", type=int, nargs="+", default=[50, 100, 150, 1_000])
    answers.add_argument("--layouts", nargs="+", default=list(get_args(Layout)), choices=get_args(Layout))
    answers.add_argument("--rates-mbit", type=float, nargs="+", default=[100.0, 1_000.0, 10_000.0])
    answers.add_argument("--parameters", type=int, nargs="+", default=[1_000_000, 10_000_000])
    answers.add_argument("--seed", type=int, default=0)
    answers.add_argument("--plot", type=Path, help="where to draw football's")
    arguments = parser.parse_args()
    if arguments.command == "check":
        for (layout, machines, rate_mbit), (measured, simulated) in check().items():
            figure(f"simulation.{layout}.{machines}.{rate_mbit:g}Mbit", [simulated], "s", "the lab's", [measured], digits=3)
        for layout, (_, measured_s, staleness) in LAB_TRAININGS.items():
            found = simulate(lab_training(layout))
            name = f"simulation.training.{layout}"
            figure(f"{name}.broadcast", [found.broadcast_s], "s", "the lab's", [measured_s], digits=3)
            figure(f"{name}.staleness", [found.staleness], "versions", "the lab's", [staleness], digits=2)
        return
    if arguments.plot is not None and "football" not in arguments.games:
        answers.error("the plot is of football, which is not among the games")
    chosen = product(arguments.games, arguments.parameters, arguments.rates_mbit, arguments.machines, arguments.layouts)
    cases = [Case(*case) for case in chosen]
    answered: dict[Case, Report] = {}
    with ProcessPoolExecutor(cores()) as processes:
        for case, one in zip(cases, processes.map(answer, cases, [arguments.seed] * len(cases)), strict=True):
            answered[case] = one
            report(case, one)
    if arguments.plot is not None:
        plot(answered, arguments.plot)


if __name__ == "__main__":
    main()
