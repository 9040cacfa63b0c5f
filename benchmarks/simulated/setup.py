"""What a simulation is of: figures with their units, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lamarckian.data.fragment import layout
from lamarckian.mdp.spaces import Discrete, Role, Vector
from lamarckian.transport.layouts import Layout
from lamarckian.transport.root import CHUNK_BYTES

LAB_SECONDS: dict[tuple[Layout, int, float], float] = {
    ("flat", 4, 100.0): 1.35,
    ("flat", 16, 100.0): 5.38,
    ("flat", 64, 100.0): 21.6,
    ("tree", 4, 100.0): 1.01,
    ("tree", 16, 100.0): 2.36,
    ("tree", 64, 100.0): 5.05,
    ("pipeline", 4, 100.0): 0.36,
    ("pipeline", 16, 100.0): 0.44,
    ("pipeline", 64, 100.0): 1.16,
    ("pipeline", 64, 25.0): 2.70,
    ("pipeline", 64, 10.0): 6.16,
}
"""Layout, relays and link rate in Mbit/s: seconds until all relays have a version of 4 MB, by benchmarks/broadcast.py (docs/cluster.md)."""

MEASURED_PARAMETERS = 36_228
"""Of the network of vector Pong by benchmarks/training.py: 10 inputs, 256, 128, and heads of 3 and 1."""
CORE_FLOPS = 2 * MEASURED_PARAMETERS * (660_700 / (1 - 0.25)) / (0.31 / (1 - 0.25))
"""Of an actor's core in its network, from vector Pong: 660,700 steps/s, 25 % of the time waiting, 31 % in the network (docs/results.md)."""
PONG_STEP_S = (1 - 0.25 - 0.31) / 660_700
"""Of a core, for all but the network: the rest of the same time. The game itself is a fifth of it."""
FOOTBALL_STEP_S = 2_000 / 17_000
"""Google football of eleven against eleven, network and all, on cores of a Xeon Gold 6148: "about 17k samples per second on 2000 cores"
(paper on Lamarckian, section IV-B, figure 7). It stands for a commercial game: a physics engine that costs a tenth of a second a sample."""


def sample_bytes(size: int, actions: int, steps: int, columns: int) -> float:
    """Of a sample in a fragment of a game with one vector and one head, as data/fragment.py lays it out."""
    return layout(Role({"vector": Vector(size)}, {"action": Discrete(actions)}), steps, columns).size_bytes / (steps * columns)


@dataclass(frozen=True)
class Setup:
    """A cluster, what it plays, and what it learns.

    root_inside: whether the learner and the root are on the first of the machines, and not on one of their own.

    The network:
    link_mbit: of each machine's link, in either direction. goodput: the share of it that is left for contents, from flat broadcasts in
        the lab, 20.48 s by arithmetic and 21.6 s measured. latency_s: from machine to machine; the lab has none, a cluster's is assumed.
    look_s: until a root sees what was published; half of its 5 ms.
    chunk_bytes: as the root's. piece_chunks: how many chunks are simulated as one, for speed; the first of them goes ahead (`Queue`).

    The processors:
    receive_s_per_byte, hand_on_s_per_byte (for each child): 10 ms for a version of 4 MB that is received and handed on once, on a core of
        its own (docs/cluster.md), shared out 7 to 3 (benchmarks/relays.py).
    relay_idle, root_idle: shares of a core that beats and heartbeats cost, and the root's looking (benchmarks/relays.py).
    relay_cores: that all relays and the root share; None where each has one of its own.
    contention: how many times more all that costs where processes contend for cores and caches.

    The training:
    cores: of a machine, an actor on each; 40 in the paper. step_s: of a core, for a sample, without the network.
    core_flops, learner_flops: floating-point operations per second in the network; 2 a parameter and sample forward, 6 to learn from it.
        The learner's is that of the paper's A100 (19.5e12 by data sheet), of which 30 % are assumed to be reached.
    fragment: samples of one. batch, passes: samples of an update, and how often each is used.
    pool_batches: what the circular pool holds. jitter: relative standard deviation of the time for a fragment, assumed.
    """

    layout: Layout = "pipeline"
    machines: int = 50
    root_inside: bool = False
    parameters: int = 1_000_000

    link_mbit: float = 1_000.0
    goodput: float = 20.48 / 21.6
    latency_s: float = 50e-6
    look_s: float = 2.5e-3
    chunk_bytes: int = CHUNK_BYTES
    piece_chunks: int = 1

    receive_s_per_byte: float = 7e-3 / 4e6
    hand_on_s_per_byte: float = 3e-3 / 4e6
    relay_idle: float = 2.2e-3
    root_idle: float = 2.6e-2
    relay_cores: int | None = None
    contention: float = 1.0

    cores: int = 40
    step_s: float = FOOTBALL_STEP_S
    core_flops: float = CORE_FLOPS
    learner_flops: float = 0.3 * 19.5e12
    fragment: int = 16
    sample_bytes: float = sample_bytes(115, 19, 16, 1)
    batch: int = 32_768
    passes: int = 2
    pool_batches: int = 2
    jitter: float = 0.1

    @property
    def size_bytes(self) -> int:
        """Of a version."""
        return 4 * self.parameters

    @property
    def link_bytes_per_s(self) -> float:
        return self.goodput * self.link_mbit * 1e6 / 8

    @property
    def slowness(self) -> float:
        """Seconds until a processor has done the relays' work of a second: it costs more by contention, and beats cost some of the time."""
        cores = self.machines + 1 if self.relay_cores is None else self.relay_cores
        idle = self.contention * (self.root_idle + self.machines * self.relay_idle) / cores
        if idle >= 1:
            raise ValueError(f"{cores} cores are too few for {self.machines} relays: their beats alone take {idle:.0%} of them")
        return self.contention / (1 - idle)

    @property
    def fragment_s(self) -> float:
        """What an actor takes for one, on average."""
        return self.fragment * (self.step_s + 2 * self.parameters / self.core_flops)

    @property
    def batch_s(self) -> float:
        """What the learner takes for one."""
        return self.batch * self.passes * 6 * self.parameters / self.learner_flops


FOOTBALL = Setup()
"""Batch and passes of the paper (table III); fragments of 16 steps of one match; 115 numbers and 19 actions, as gfootball's simple115."""
PONG = replace(FOOTBALL, step_s=PONG_STEP_S, fragment=16 * 4, sample_bytes=sample_bytes(10, 3, 16, 4), batch=8_192, passes=1)
"""Vector Pong of this repository; fragments of 16 steps of 4 matches; batch and passes of the paper."""
GAMES = {"football": FOOTBALL, "pong": PONG}

LAB = replace(FOOTBALL, latency_s=0.0, relay_cores=2, contention=2.5)
"""Up to 64 relays on two cores. That a version costs each 25 ms there instead of 10, for they contend, is what meets `LAB_SECONDS`."""

LAB_TRAININGS: dict[Layout, tuple[float, float, float]] = {
    "flat": (2_277, 4.14, 29.2),
    "tree": (2_577, 2.42, 18.2),
    "pipeline": (2_426, 0.95, 7.6),
}
"""Of a training on six hosts of the lab, by benchmarks/layouts.py: samples/s, broadcast of the median relay in s, and mean staleness."""


def lab_training(layout: Layout) -> Setup:
    """That training, with its learner on one of the hosts.

    Each actor fills a fragment of 512 samples, which make a batch, in as long as the lab's did: samples/s go in, broadcast and staleness
    come out. The game leaves the processors idle most of the time, so that relays do not contend for them.
    """
    return replace(
        LAB,
        layout=layout,
        machines=6,
        root_inside=True,
        parameters=990_503,
        link_mbit=50.0,
        contention=1.0,
        cores=1,
        step_s=6 / LAB_TRAININGS[layout][0],
        core_flops=1e18,  # its network's time is in that of the steps
        fragment=512,
        sample_bytes=sample_bytes(4, 2, 32, 16),
        batch=512,
        passes=1,
    )
