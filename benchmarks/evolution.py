"""Evolution on one thread, in CPU time, beside pymoo, pygmo, pycma, EvoX and evosax, in turn; what it costs to drive it; its memory.

The peers run in environments of their own (see peers/README.md), which are made on the first run. Rates are of CPU seconds, warm, so a
ratio above 1 says how many times faster we are; of evaluations to a target, one below 1 says that we need fewer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import optimising
from figures import figure
from peers.optimiser import Peer

from lamarckian.ec import CMAES, Genome, Network, OpenAIES, Real, SepCMAES
from lamarckian.ec.genome import Genes
from lamarckian.ec.hypervolume import hypervolume

REFERENCE = 1.1
GENERATIONS = 250
LARGE = {1_000: (("pymoo", "pygmo"), 5, 20), 10_000: (("pymoo",), 1, 3)}  # population → peers, generations before the clock and in it
CMA = {20: 500, 100: 200, 1_000: 40}  # dimension → generations, a multiple of those between two decompositions, ours and pycma's
SEPARABLE = 10_000
SEEDS = 7
PARAMETERS, CANDIDATES, ASCENTS = 100_000, 256, 10
ADVANCED = [200, 2_000]


def memory(runs: int) -> None:
    """Once, as there is no chance in it; of the process's memory the first figure is that of a young process."""
    for mode in ("synchronous", "asynchronous"):
        early, late = optimising.memory(mode, ADVANCED)
        name, reference = f"evolution.{mode}.memory_after_{ADVANCED[1]}_generations", f"after {ADVANCED[0]}"
        for kind, before, after in zip(("held", "process"), early, late, strict=True):
            figure(f"{name}.{kind}", [after], "KiB", reference, [before])


def overhead(runs: int) -> None:
    """Of evaluations in this process, by a plain function that does nothing."""
    for algorithm in optimising.ALGORITHMS:
        for mode, evaluations in (("synchronous", 50_000), ("asynchronous", 10_000)):
            optimising.overhead(algorithm, mode, 1_000)
            spent = [optimising.overhead(algorithm, mode, evaluations) for _ in range(runs)]
            figure(f"{algorithm}.{mode}.overhead", spent, "CPU us/evaluation", digits=2)


def nsga2(runs: int) -> None:
    """From the first population to the last; `crowding` has the peers' settings, `default` our own."""
    compared = {"crowding": ("pymoo", "pygmo"), "default": ("pymoo",)}
    with Peers("pymoo", "pygmo") as asked:
        for problem in optimising.FRONTS:
            task = {"problem": problem, "population": 100, "generations": GENERATIONS}
            mine: dict[str, list[dict]] = {settings: [] for settings in compared}
            theirs: dict[str, list[dict]] = {name: [] for name in asked.peers}
            for settings in compared:
                optimising.nsga2(**task, seed=0, settings=settings)
            for seed in range(1, runs + 1):
                for settings, answers in mine.items():
                    answers.append(optimising.nsga2(**task, seed=seed, settings=settings))
                for name, answers in theirs.items():
                    answers.append(asked(name, task="nsga2", **task, seed=seed))
            for settings, names in compared.items():
                for name in names:
                    label = f"nsga2.{problem}.100.{settings}"
                    figure(label, rates(mine[settings]), "evaluations/CPU s", name, rates(theirs[name]))
                    figure(f"{label}.hypervolume", volumes(mine[settings]), f"to {REFERENCE}", name, volumes(theirs[name]), digits=4)


def populations(runs: int) -> None:
    """With our own settings, so that ours cross every pair and the peers nine of ten."""
    with Peers("pymoo", "pygmo") as asked:
        for problem in optimising.FRONTS:
            for population, (names, warm, generations) in LARGE.items():
                task = {"problem": problem, "population": population, "generations": generations, "warm": warm}
                optimising.nsga2(**task, seed=0)
                mine: list[dict] = []
                theirs: dict[str, list[dict]] = {name: [] for name in names}
                for seed in range(1, runs + 1):
                    mine.append(optimising.nsga2(**task, seed=seed))
                    for name, answers in theirs.items():
                        answers.append(asked(name, task="nsga2", **task, seed=seed))
                for name, answers in theirs.items():
                    spent = [[generations / answer["cpu_s"] for answer in side] for side in (mine, answers)]
                    figure(f"nsga2.{problem}.{population}", spent[0], "generations/CPU s", name, spent[1], digits=2)


def cmaes(runs: int) -> None:
    """`propose`, `realise` and `tell`, against `ask` and `tell`."""
    tasks = [(f"cmaes.{size}", CMAES, size, generations, False) for size, generations in CMA.items()]
    tasks.append((f"sep-cmaes.{SEPARABLE}", SepCMAES, SEPARABLE, 100, True))
    with Peers("cma") as asked:
        for name, algorithm, size, generations, diagonal in tasks:
            genome = Genome({"x": Real(-optimising.WIDE, optimising.WIDE, size)})
            mine, theirs = [], []
            for seed in range(1, runs + 1):
                search = algorithm(sigma=2 / (2 * optimising.WIDE))
                spent = optimising.generations(search, genome, sphere, generations, seed, warm=8)
                mine.append(generations / (spent["driving_s"] + spent["realising_s"]))
                answer = asked("cma", task="generations", dimension=size, generations=generations, seed=seed, warm=8, diagonal=diagonal)
                theirs.append(generations / answer["cpu_s"])
            figure(name, mine, "generations/CPU s", "cma", theirs)


def targets(runs: int) -> None:
    """Of `SEEDS` seeds, whatever the runs."""
    with Peers("cma") as asked:
        for problem in optimising.VALUES:
            mine, theirs = [], []
            for seed in range(SEEDS):
                mine.append(optimising.minimise(problem, 20, seed))
                theirs.append(asked("cma", task="minimise", problem=problem, dimension=20, seed=seed)["evaluations"])
            figure(f"cmaes.{problem}.20.to_1e-9", mine, "evaluations", "cma", theirs, digits=0)


def ascent(runs: int) -> None:
    """The whole of it, and without `realise`, which is what workers can do."""
    task = {"parameters": PARAMETERS, "population": CANDIDATES, "generations": ASCENTS, "warm": 3}
    genome = Genome({"net": Network([("w", (PARAMETERS,))])})
    mine: dict[str, list[float]] = {"": [], ".propose_tell": []}
    with Peers("evox", "evosax") as asked:
        theirs: dict[str, list[float]] = {name: [] for name in asked.peers}
        for seed in range(1, runs + 1):
            spent = optimising.generations(OpenAIES(CANDIDATES), genome, given(seed), ASCENTS, seed, warm=3)
            mine[""].append(ASCENTS / (spent["driving_s"] + spent["realising_s"]))
            mine[".propose_tell"].append(ASCENTS / spent["driving_s"])
            for name, values in theirs.items():
                values.append(ASCENTS / asked(name, task="generations", **task, seed=seed)["cpu_s"])
    for part, values in mine.items():
        for name, reference in theirs.items():
            what = f"{name}, which makes the candidates too" if part else name
            figure(f"openai-es.{PARAMETERS}.{CANDIDATES}{part}", values, "generations/CPU s", what, reference, digits=2)


def sphere(genes: Genes) -> np.ndarray:
    return (genes["x"] ** 2).sum(axis=1, keepdims=True)


def given(seed: int) -> Callable[[Genes], np.ndarray]:
    """Objectives that have nothing to do with the genes, as the peers are given."""
    draws = np.random.default_rng(seed)
    return lambda genes: draws.standard_normal((len(genes["net"]), 1))


class Peers(ExitStack):
    """Peers, each served as long as this is open: `asked(name, task=…)`."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.peers = {name: self.enter_context(Peer(name)) for name in names}

    def __call__(self, name: str, **task) -> dict:
        return self.peers[name].ask(**task)


def rates(answers: Sequence[dict]) -> list[float]:
    return [answer["evaluations"] / answer["cpu_s"] for answer in answers]


def volumes(answers: Sequence[dict]) -> list[float]:
    fronts = [np.asarray(answer["front"]) for answer in answers]
    return [hypervolume(front, np.full(front.shape[1], REFERENCE)) for front in fronts]


PARTS = {
    "memory": memory,
    "overhead": overhead,
    "nsga2": nsga2,
    "populations": populations,
    "cmaes": cmaes,
    "targets": targets,
    "openai-es": ascent,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.only:
        PARTS[name](arguments.runs)


if __name__ == "__main__":
    main()
