"""A training on many machines, simulated: actors play, dispatches send, the pool holds, the learner learns, and versions go out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass
from statistics import median

import numpy as np
import simpy
from simulated.broadcast import Node, after, build
from simulated.setup import Setup

BATCHES = 20
"""Of the learner, that are measured at the least."""

Steps = Generator[simpy.Event, None, None]


@dataclass(frozen=True)
class Report:
    """What a training came to, in the laps and batches measured.

    produced_per_s, consumed_per_s: samples that actors made, and that the learner learned from. seconds: simulated.
    broadcast_s, slowest_broadcast_s: from publication until a machine shows the version, of those that it shows; the median, and the
        slowest machine's. staleness, staleness_p95: versions, of the samples learned from.
    """

    seconds: float
    produced_per_s: float
    consumed_per_s: float
    broadcast_s: float
    slowest_broadcast_s: float
    staleness: float
    staleness_p95: int


class Pool:
    """A circular queue of samples: what comes last overwrites what came first. Of a parcel, any part may be taken."""

    def __init__(self, env: simpy.Environment, capacity: int) -> None:
        self.waiting = self.overwritten = 0
        self.filled = env.event()
        self._env = env
        self._capacity = capacity
        self._parcels: deque[tuple[int, int]] = deque()

    def add(self, version: int, samples: int) -> None:
        self._parcels.append((version, samples))
        self.waiting += samples
        if self.waiting > self._capacity:
            surplus = self.waiting - self._capacity
            self.take(surplus)
            self.overwritten += surplus
        filled, self.filled = self.filled, self._env.event()
        filled.succeed()

    def take(self, samples: int) -> Counter[int]:
        """The oldest so many, of which there are as many; how many of each version."""
        taken: Counter[int] = Counter()
        self.waiting -= samples
        while samples:
            version, there = self._parcels.popleft()
            part = min(there, samples)
            taken[version] += part
            samples -= part
            if part < there:
                self._parcels.appendleft((version, there - part))
        return taken


class Training:
    """Runs until the data has gone round twice: the first lap is to warm up, the second is measured.

    A lap is over when from every machine there came samples of a version that did not exist when the lap began.
    The actors of a machine keep step: each fills a fragment, and the dispatch sends them off as one parcel. While that is on its way the
    actors play on, but they wait with the next for it to have arrived. The newest version that the machine had in a fragment's middle
    counts as that which acted.
    produced = used + held (by the learner) + pool.waiting + pool.overwritten + carried (by a dispatch or a link), at every moment.
    """

    def __init__(self, setup: Setup, seed: int) -> None:
        self.env = simpy.Environment()
        self.setup = setup
        self.version = self.produced = self.used = self.held = self.carried = 0
        self.pool = Pool(self.env, setup.pool_batches * setup.batch)
        self._rng = np.random.default_rng(seed)
        self._root, self._relays = build(self.env, setup, self._show)
        self._published_s = {0: 0.0}
        self._learned = self.env.event()
        self._measure()
        self._begin_lap()
        for place, relay in enumerate(self._relays):
            self.env.process(self._play(place, relay))
        self.env.process(self._learn())

    def run(self) -> Report:
        """Of a lap after the first, and of `BATCHES`; from the end of a batch to that of another."""
        self.env.run(self._lap)
        self.env.run(self._learned)
        self._measure()
        self._begin_lap()
        self.env.run(self._lap & self._batches)
        self.env.run(self._learned)
        seconds = self.env.now - self._start_s
        values, weights = (np.array(column) for column in zip(*sorted(self._staleness.items()), strict=True))
        broadcasts = [median(times) for times in self._broadcast_s.values()]
        return Report(
            seconds=seconds,
            produced_per_s=(self.produced - self._produced_before) / seconds,
            consumed_per_s=(self.used - self._used_before) / seconds,
            broadcast_s=median(broadcasts),
            slowest_broadcast_s=max(broadcasts),
            staleness=float(np.average(values, weights=weights)),
            staleness_p95=int(values[np.searchsorted(np.cumsum(weights), 0.95 * weights.sum())]),
        )

    def _measure(self) -> None:
        self._start_s, self._produced_before, self._used_before = self.env.now, self.produced, self.used
        self._staleness: Counter[int] = Counter()
        self._broadcast_s: dict[Node, list[float]] = {}
        self._batches, self._batches_left = self.env.event(), BATCHES

    def _begin_lap(self) -> None:
        self._lap = self.env.event()
        self._lap_version = self.version + 1
        self._missing = set(range(self.setup.machines))

    def _show(self, relay: Node, version: int) -> None:
        self._broadcast_s.setdefault(relay, []).append(self.env.now - self._published_s[version])

    def _play(self, place: int, relay: Node) -> Steps:
        setup, env = self.setup, self.env
        samples = setup.cores * setup.fragment
        shape = 1 / setup.jitter**2
        arrived: simpy.Event = env.timeout(0.0)
        yield env.timeout(self._rng.uniform(0, setup.fragment_s))  # not all machines at once
        while True:
            spent_s = setup.fragment_s * self._rng.gamma(shape, 1 / shape)
            yield env.timeout(spent_s / 2)
            version = relay.whole  # that of the middle stands for all that act in turn
            yield env.timeout(spent_s / 2)
            self.produced += samples
            self.carried += samples
            yield arrived
            size_bytes = samples * setup.sample_bytes
            _, tail_s = relay.host.send(self._root.host, size_bytes, size_bytes, env.now, env.now)
            arrived = env.timeout(tail_s - env.now)
            arrived.callbacks.append(lambda _, version=version: self._store(place, version, samples))

    def _store(self, place: int, version: int, samples: int) -> None:
        self.carried -= samples
        self.pool.add(version, samples)
        if version >= self._lap_version:
            self._missing.discard(place)
            if not self._missing and not self._lap.triggered:
                self._lap.succeed()

    def _learn(self) -> Steps:
        setup, env = self.setup, self.env
        while True:
            while self.pool.waiting < setup.batch:
                yield self.pool.filled
            for version, samples in self.pool.take(setup.batch).items():
                self._staleness[self.version - version] += samples
            self.held = setup.batch
            yield env.timeout(setup.batch_s)
            self.used, self.held = self.used + setup.batch, 0
            self.version += 1
            self._published_s[self.version] = env.now
            after(env, setup.look_s, lambda version=self.version: self._root.publish(version))
            self._batches_left -= 1
            if self._batches_left == 0:
                self._batches.succeed()
            learned, self._learned = self._learned, env.event()
            learned.succeed()


def simulate(setup: Setup, seed: int = 0) -> Report:
    """A training's report."""
    return Training(setup, seed).run()
