"""Several learners on one machine, a thread each: PPO from ready batches, 4096 samples a learner and update, 4 epochs of 4 minibatches.

Updates and trained samples per second of two learners beside one; what an all-reduce of a million parameters costs two learners, beside a
copy of as many; and what it costs to agree on an update, and to report it with the matches that ended.

    python benchmarks/ring.py [--runs 5] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from figures import figure
from processes import free_port

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import layout
from lamarckian.data.pool import MatchResult, PoolStatistics
from lamarckian.learner.batches import Batch
from lamarckian.learner.learner import Learner, follow
from lamarckian.learner.ring import Ring
from lamarckian.learner.together import Intent, Report, tell
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.nets import Policy, build
from lamarckian.rl import PPO

ROLE = Role({"x": Vector(32)}, {"move": Discrete(6)})
STEPS, COLUMNS = 32, 128
PARAMETERS = 1_000_000
CALLS = 100
PATIENCE_S = 120.0
REPORT = Report(
    steps=STEPS * COLUMNS,
    results=[MatchResult("player", 1.0, "win", 200, [1.0])] * 16,
    seconds=dict.fromkeys(("environment_s", "inference_s", "bookkeeping_s", "waiting_s"), 0.1),
    metrics={f"metric/{number}": 0.1 for number in range(16)},
)
"""Of about as much as is said of such a batch."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Ready:
    """A fleet whose batch is always ready, and the same."""

    actors = 0

    def __init__(self, rank: int) -> None:
        random = np.random.default_rng(rank)
        self._arrays = layout(ROLE, STEPS, COLUMNS).empty()
        for name, array in self._arrays.items():
            array[...] = random.normal(size=array.shape) if array.dtype == np.float32 else name == "learn"
        self._arrays["log_prob.move"][...] = -np.log(6)

    def get(self) -> Batch:
        return Batch(self._arrays, {name: torch.from_numpy(array) for name, array in self._arrays.items()})

    def recycle(self, batch: Batch) -> None:
        """It is used again."""

    def publish(self, version: int, publication: np.ndarray) -> None:
        """Nobody plays."""

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(*[0] * len(PoolStatistics.__struct_fields__))


def milliseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    return median(times)


def work(config: dict) -> None:
    """A learner of a ring, or one alone."""
    if config["size"] == 1:
        learn(config, None)
        return
    with Ring(config["rank"], config["size"], "127.0.0.1", config["port"], 60.0) as ring:
        learn(config, ring)


def learn(config: dict, ring: Ring | None) -> None:
    """Rank 0 writes down what it measures."""
    rank = config["rank"]
    algorithm = PPO(build(Policy, ROLE, 0), ROLE, PPO.Settings(), dtype="float32")
    found = {}
    if ring is not None:
        numbers, other = torch.zeros(PARAMETERS), torch.ones(PARAMETERS)
        found["all_reduce_ms"] = milliseconds(lambda: ring.add(numbers))
        found["copy_ms"] = milliseconds(lambda: numbers.copy_(other))
        found["agree_ms"] = milliseconds(lambda: tell(ring, Intent(True)))
        found["report_ms"] = milliseconds(lambda: tell(ring, REPORT))
        ring.take_seconds()
    if rank:
        follow(algorithm, Ready(rank), ring)
        return
    learner = Learner(algorithm, Ready(rank), 0, ring=ring)
    for _ in range(3):
        learner.update(0.0)
    learner.meter.take()
    samples, first, started = 0, learner.version, time.perf_counter()
    while (seconds := time.perf_counter() - started) < config["seconds"]:
        learned = learner.update(0.0)
        samples += learned[0] if learned else 0
    found |= {
        "updates": (learner.version - first) / seconds,
        "samples": samples / seconds,
        "ring": learner.meter.take().get("time/ring", 0.0),
    }
    learner.end()
    Path(config["out"]).write_text(json.dumps(found))


def measure(size: int, seconds: float) -> dict[str, float]:
    """What rank 0 of so many learners has measured."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, LocalCluster() as cluster:
        config = {"size": size, "port": port, "seconds": seconds, "out": f"{folder}/out"}
        for rank in range(size):
            cluster.start(f"learner-{rank}", f"{Path(__file__).stem}:work", {**config, "rank": rank}, environment=ONE_THREAD)
        until, running = time.monotonic() + PATIENCE_S + seconds, size
        while running and time.monotonic() < until:
            for end in cluster.poll():
                if end.code != 0:
                    raise end.error()
                running -= 1
            time.sleep(0.05)
        return json.loads(Path(config["out"]).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    pairs = [[measure(size, arguments.seconds) for size in (1, 2)] for _ in range(arguments.runs)]
    one, two = ([pair[index] for pair in pairs] for index in range(2))

    def of(runs: list[dict[str, float]], name: str) -> list[float]:
        return [run[name] for run in runs]

    figure("two_learners.updates", of(two, "updates"), "updates/s", "one learner", of(one, "updates"), digits=2)
    figure("two_learners.samples", of(two, "samples"), "trained samples/s", "one learner", of(one, "samples"))
    figure("two_learners.time.ring", of(two, "ring"), "share of its time", digits=3)
    figure("all_reduce_1M_parameters", of(two, "all_reduce_ms"), "ms", "torch copy", of(two, "copy_ms"), digits=3)
    figure("agree", of(two, "agree_ms"), "ms", digits=3)
    figure("report", of(two, "report_ms"), "ms", digits=3)


if __name__ == "__main__":
    main()
