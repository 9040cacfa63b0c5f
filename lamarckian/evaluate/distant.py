"""Where batches come from when the actors are on many machines: from the memory pool beside this learner."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np

from lamarckian.actor.crew import ONE_THREAD
from lamarckian.actor.station import REPORT_S, Report
from lamarckian.cluster.interface import Process
from lamarckian.cluster.local import LocalCluster
from lamarckian.cluster.machine import cores
from lamarckian.data.ledger import ServedStatistics
from lamarckian.data.reader import SERVER, PoolReader
from lamarckian.data.server import PoolSettings
from lamarckian.data.store import Limits
from lamarckian.evaluate.fleet import max_staleness
from lamarckian.evaluate.plan import Plan
from lamarckian.evaluate.posts import Post
from lamarckian.learner.batches import Arrivals, Batch, Prefetcher
from lamarckian.recipe.sizes import parse_size
from lamarckian.record.status import MachineStatus, Processes
from lamarckian.transport.channel import Inbox, Outbox, batch, host_port, local_address, open_terms
from lamarckian.transport.root import RootStatistics
from lamarckian.transport.versions import VersionBoard

HEARD_S = 5.0
"""A station that said nothing for so long is not counted any more."""
PATIENCE_S = 30.0
"""After so long without a batch, people are told."""
REPORT_BYTES = 1 << 20
"""The size of what a station says of its processes and their last words, at most."""
BATCHES = 64
"""Of messages that are heard at once: what comes between two updates is more than one, but no flood may keep the learner."""
Said = TypeVar("Said")
FEWEST = 2
"""Fragments for which a memory pool has room at least: one that waits, and one that comes."""


class Beside(msgspec.Struct, frozen=True, tag=True):
    """What another learner says once a second to the first: how its machine stands, and what people should know."""

    status: MachineStatus
    notes: list[str]


class Helpers:
    """The processes beside a learner, each started anew when it dies.

    processes: those that are there, by name. note: told of deaths.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.processes: dict[str, Process] = {}
        self._note = note
        self._cluster = LocalCluster()

    def start(self, name: str, target: str, config: Mapping[str, Any], fds: tuple[int, ...]) -> None:
        self.processes[name] = self._cluster.start(name, target, config, fds=fds, environment=ONE_THREAD)

    def check(self) -> None:
        """Raises what would only come again."""
        for end in self._cluster.poll():
            end.check()
            self._note(f"{end.describe()}; starting it anew")
            self.processes[end.name] = self._cluster.restart(end.name)

    def close(self) -> None:
        self._cluster.close()


class Desk:
    """What the first learner has beside others: the board of versions, whose root is one of its helpers, and an ear for stations."""

    def __init__(self, plan: Plan, post: Post, helpers: Helpers, publication: np.ndarray, note: Callable[[str], None]) -> None:
        section = plan.recipe.cluster
        assert section is not None
        self._note = note
        self._reports: dict[str, tuple[float, Report]] = {}
        self._learners: dict[str, tuple[float, Beside]] = {}
        self._root: RootStatistics | None = None
        with contextlib.ExitStack() as stack:
            self.board = VersionBoard.create(len(publication))
            stack.callback(self.board.close)
            terms = replace(open_terms(post.addresses.network, section.keys), message_bytes=REPORT_BYTES)
            self._inbox = Inbox((Report, Beside), post.addresses.desk, terms)
            stack.callback(self._inbox.close)
            self._statistics = Inbox((RootStatistics,), local_address())
            stack.callback(self._statistics.close)
            host, port = host_port(post.addresses.root)
            config = {
                "host": host,
                "port": port,
                "children_port": host_port(post.addresses.children)[1],
                "layout": section.broadcast,
                "wire": section.wire,
                "board_fd": self.board.fd,
                "parameters": len(publication),
                "network": post.addresses.network,
                "keys": section.keys,
                "report": self._statistics.address,
            }
            helpers.start("root", "lamarckian.transport.root:main", config, (self.board.fd,))
            self._stack = stack.pop_all()

    def listen(self) -> None:
        """Hears what stations, other learners and the root have to say."""
        now = time.monotonic()
        for name, said in chain.from_iterable(batch(self._inbox) for _ in range(BATCHES)):
            if name != said.status.name:
                continue
            if isinstance(said, Report):
                self._reports[name] = now, said
            else:
                self._learners[name] = now, said
            for text in said.notes:
                self._note(text)
        for _, statistics in batch(self._statistics):
            self._root = statistics
        self._reports = _of_late(self._reports, now)
        self._learners = _of_late(self._learners, now)

    @property
    def machines(self) -> list[MachineStatus]:
        """What stations said of themselves that were heard of late."""
        return [report.status for _, report in self._reports.values()]

    @property
    def learners(self) -> list[MachineStatus]:
        """The same of other learners."""
        return [said.status for _, said in self._learners.values()]

    def metrics(self) -> dict[str, float]:
        """Of the machines, their dispatches, and the broadcast."""
        line: dict[str, float] = {"machines": len(self.machines), "machines/refused": self._inbox.statistics().refused}
        line |= {f"machine/{machine.name}/cpu": machine.cpu for machine in self.machines}
        dispatches = [report.dispatch for _, report in self._reports.values() if report.dispatch is not None]
        for name in ("kept", "kept_bytes", "sent_bytes", "resent"):
            line[f"dispatch/{name}"] = sum(getattr(dispatch, name) for dispatch in dispatches)
        if self._root is not None:
            line["broadcast/median_s"], line["broadcast/slowest_s"] = self._root.median_s, self._root.slowest_s
            line["broadcast/relays"], line["broadcast/sent_bytes"] = len(self._root.relays), self._root.children.sent_bytes
            line["broadcast/refused"] = self._root.control.refused + self._root.children.refused
        return line

    def whereabouts(self) -> str:
        """Who is there, for people who miss somebody."""
        relays = ", ".join(self._root.relays) if self._root is not None else ""
        stations = ", ".join(f"{machine.name} ({machine.actors} actors)" for machine in self.machines)
        return f": stations that report are {stations or 'none'}; relays that the root knows are {relays or 'none'}"

    def close(self) -> None:
        self._stack.close()


class DistantFleet:
    """Actors on many machines, who are no business of this learner's: it sees what comes, and shows versions.

    Only the first learner has a desk, and publishes. note: told what people should know.
    """

    def __init__(self, plan: Plan, post: Post, version: int, publication: np.ndarray, note: Callable[[str], None]) -> None:
        assert plan.recipe.cluster is not None
        self._section = plan.recipe.cluster
        self._rank = post.rank
        self._processes = Processes()
        self._desk: Desk | None = None
        self._outbox: Outbox | None = None
        self._notes: list[str] = []
        self._told_s = 0.0
        self._came_s = time.monotonic()
        self._held: Batch | None = None
        if post.rank:
            note = self._notes.append
        with contextlib.ExitStack() as stack:
            self._note = note
            self._reader = PoolReader(plan.layout, _settings(plan, post))
            stack.callback(self._reader.close)
            self._helpers = Helpers(note)
            stack.callback(self._helpers.close)
            self._helpers.start("pool", SERVER, self._reader.config, self._reader.fds)
            if post.rank == 0:
                self._desk = Desk(plan, post, self._helpers, publication, note)
                stack.callback(self._desk.close)
            else:
                network, keys = post.addresses.network, self._section.keys
                self._outbox = Outbox((), post.addresses.desk, f"learner-{post.rank}", open_terms(network, keys))
                stack.callback(self._outbox.close)
            fragments = plan.fragments // len(post.addresses.pools)
            self._batches = Arrivals(self._reader) if plan.learning else Prefetcher(self._reader, plan.layout, fragments)
            stack.callback(self._batches.close)
            self.publish(version, publication)
            self._stack = stack.pop_all()

    @property
    def actors(self) -> int:
        return sum(machine.actors for machine in self._desk.machines) if self._desk is not None else 0

    def get(self) -> Batch | None:
        self._helpers.check()
        if self._desk is not None:
            self._desk.listen()
        if self._held is None:
            self._held = self._batches.get(timeout_s=0.2)
        now = time.monotonic()
        if self._held is not None:
            self._came_s = now
        elif now - self._came_s > PATIENCE_S:
            self._came_s = now
            self._note(
                f"learner {self._rank} has had no batch for {PATIENCE_S:g} s{self._desk.whereabouts() if self._desk is not None else ''}"
            )
        if self._outbox is not None and now - self._told_s >= REPORT_S:
            self._told_s = now
            if self._outbox.send(Beside(self.machines(self._reader.version)[0], self._notes[:])):
                self._notes.clear()
        return self._held

    def recycle(self, batch: Batch) -> None:
        self._held = None
        self._batches.recycle(batch)

    def publish(self, version: int, publication: np.ndarray) -> None:
        self._reader.version = version
        if self._desk is not None:
            self._desk.board.publish(version, publication)

    def statistics(self) -> ServedStatistics:
        return self._reader.statistics()

    def metrics(self) -> dict[str, float]:
        """What a line of metrics has of this fleet, beside the counts of its pool."""
        counts = self._reader.statistics()
        line: dict[str, float] = {"pool/received_bytes": counts.channel.received_bytes}
        line["pool/occupancy"] = counts.used_bytes / counts.size_bytes
        line["pool/refused"] = counts.refused + counts.channel.refused
        return line | (self._desk.metrics() if self._desk is not None else {})

    def machines(self, version: int) -> list[MachineStatus]:
        """This one first, with the learner and what stands beside it; then those of other learners, and of stations."""
        counts = self._reader.statistics()
        own = {f"learner-{self._rank}": (os.getpid(), 0)}
        own |= {name: (there.pid, there.attempt) for name, there in self._helpers.processes.items()}
        queues = {"pool waiting": counts.waiting, "pool occupancy": counts.used_bytes / counts.size_bytes}
        here = self._processes.machine(f"learner-{self._rank}", platform.node(), cores(), own, version, 0, queues)
        return [here, *(self._desk.learners + self._desk.machines if self._desk is not None else [])]

    def save(self) -> None:
        """Processes cannot be saved where they stand: a resumed run starts new matches."""

    def close(self) -> None:
        self._stack.close()


def _of_late(told: dict[str, tuple[float, Said]], now: float) -> dict[str, tuple[float, Said]]:
    return {name: (when, said) for name, (when, said) in told.items() if now - when <= HEARD_S}


def _settings(plan: Plan, post: Post) -> PoolSettings:
    section = plan.recipe.cluster
    assert section is not None
    host, port = host_port(post.addresses.pools[post.rank])
    pool, fragments = section.pool, max(plan.fragments // len(post.addresses.pools), FEWEST)
    return PoolSettings(
        host=host,
        port=port,
        size_bytes=fragments * plan.layout.size_bytes if pool.size == "auto" else parse_size(pool.size),
        sampling=pool.sampling,
        full=pool.when_full,
        limits=Limits(max_staleness(plan), pool.max_age_s),
        seed=plan.recipe.seed,
        network=post.addresses.network,
        keys=section.keys,
    )
