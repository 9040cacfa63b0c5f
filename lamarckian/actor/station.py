"""A station: everything of a training on one machine that is not the learner's. It has the machine's board of versions and its slots for
fragments, and starts the relay, the dispatch and the actors that share them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from lamarckian.actor.crew import ONE_THREAD, Crew
from lamarckian.actor.dispatch import DispatchConfig, DispatchReport, Forget
from lamarckian.cluster.interface import Exit, Machine, Process
from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Layout
from lamarckian.data.packing import Setting
from lamarckian.data.pool import create_block
from lamarckian.record.status import MachineStatus, Processes
from lamarckian.transport.channel import Inbox, Outbox, host_port, local_address, open_terms
from lamarckian.transport.versions import VersionBoard

WATCH_S = 0.2
REPORT_S = 1.0
SPARE = 1
"""Slots beside one for each actor, so that who has filled one finds another while the dispatch packs it; more would only grow old."""


class Orders(msgspec.Struct, frozen=True):
    """What a station is to do.

    machine: where it is. target: what an actor runs. actors: how many. first: the index of the first of them; no other actor of the run
        has had these. life: as `Crew.start` has it. parameters: of a version. layout: of fragments, by `Layout.plain`.
    desk, root, pools: the learners' addresses. relay_port: where the relay serves its children; 0: anywhere. keys: a file, or None.
    packing, hold_bytes: as for `DispatchConfig`.
    """

    machine: Machine
    target: str
    actors: int
    first: int
    life: list[int]
    parameters: int
    layout: dict[str, Any]
    desk: str
    root: str
    relay_port: int
    pools: list[str]
    network: bool
    keys: str | None
    packing: Setting
    hold_bytes: int


class Report(msgspec.Struct, frozen=True, tag=True):
    """Station to the first learner, once a second. notes: what has happened since the last report, for people."""

    status: MachineStatus
    dispatch: DispatchReport | None
    notes: list[str]


class Station:
    """It moves only while `advance` runs. Raises what the run cannot go on after, such as an error of the game.

    attempt: how often it was started anew, so that its actors do not play the matches of those before them again.
    """

    def __init__(self, orders: Orders, actor: dict[str, Any], attempt: int = 0) -> None:
        self._orders = orders
        self._attempt = attempt
        name = orders.machine.name
        layout = Layout.from_plain(orders.layout)
        slots = orders.actors + SPARE
        self._board = VersionBoard.create(orders.parameters)
        self._block = create_block(layout, slots)
        self._inbox = Inbox((DispatchReport,), local_address())
        self._desk = Outbox((), orders.desk, name, open_terms(orders.network, orders.keys))
        self._cluster = LocalCluster()
        pool = local_address()
        self._crew = Crew(self._cluster, orders.target, actor, (pool, self._block.fd), self._board.fd, orders.actors, orders.first)
        self._helpers: dict[str, Process] = {}
        self._dispatch: DispatchReport | None = None
        self._processes = Processes()
        self._notes: list[str] = []
        self._generation = 0
        self._told_s = 0.0
        relay = {
            "root": orders.root,
            "name": name,
            "host": orders.machine.address,
            "port": orders.relay_port,
            "board_fd": self._board.fd,
            "parameters": orders.parameters,
            "network": orders.network,
            "keys": orders.keys,
        }
        dispatch = DispatchConfig(
            name=name,
            layout=orders.layout,
            pool_fd=self._block.fd,
            slots=slots,
            address=pool,
            station=self._inbox.address,
            pools=orders.pools,
            packing=packing(orders.packing, orders.machine, orders.pools),
            hold_bytes=orders.hold_bytes,
            lent=2,
            network=orders.network,
            keys=orders.keys,
        )
        self._start("relay", "lamarckian.transport.relay:main", relay, self._board.fd)
        self._start("dispatch", "lamarckian.actor.dispatch:main", msgspec.to_builtins(dispatch), self._block.fd)

    def advance(self) -> None:
        """Works for a moment."""
        received = self._inbox.receive(WATCH_S)
        while received is not None:
            self._dispatch = received[1]
            received = self._inbox.receive(0.0)
        for end in self._cluster.poll():
            self._replace(end)
        if not self._crew.processes and self._board.newest() >= 0:
            self._crew.start([*self._orders.life, self._attempt, self._generation])
        now = time.monotonic()
        if self._notes or now - self._told_s >= REPORT_S:
            self._told_s = now
            if self._desk.send(self._report()):
                self._notes = []

    def close(self) -> None:
        """Ends all that it started; harmless when repeated."""
        self._cluster.close()
        self._inbox.close()
        self._desk.close()
        self._block.close()
        self._board.close()

    def _start(self, name: str, target: str, config: dict[str, Any], fd: int) -> None:
        self._helpers[name] = self._cluster.start(name, target, config, fds=(fd,), environment=ONE_THREAD)

    def _replace(self, end: Exit) -> None:
        """Starts anew what has ended. With a dispatch ends what it knew of the slots, so that its actors begin anew, too."""
        if end.name in self._helpers:
            end.check()
            if end.name == "dispatch":
                self._crew.stop()
                self._generation += 1
            self._helpers[end.name] = self._cluster.restart(end.name)
        elif end.name in self._crew.processes:
            self._crew.replace(end)
            self._inbox.send(self._orders.machine.name, Forget(end.name))
        else:
            return  # one of a crew that was stopped meanwhile
        self._notes.append(f"{self._orders.machine.name}: {end.describe()}; starting it anew")

    def _report(self) -> Report:
        machine, dispatch = self._orders.machine, self._dispatch
        there = {name: (process.pid, process.attempt) for name, process in {**self._helpers, **self._crew.processes}.items()}
        queues = _queues(dispatch) if dispatch is not None else {}
        status = self._processes.machine(
            machine.name, machine.address, machine.cores, there, self._board.newest(), len(self._crew.processes), queues
        )
        return Report(status, dispatch, self._notes)


def packing(setting: Setting, machine: Machine, pools: Sequence[str]) -> Setting:
    """How a machine packs for these pools: to one that is on the machine itself, everything is sooner there as it is."""
    leaves = any(host_port(pool)[0] != machine.address for pool in pools)
    return "none" if setting == "auto" and not leaves else setting


def _queues(dispatch: DispatchReport) -> dict[str, float]:
    waiting = {"fragments": dispatch.fragments, "packed to": 1 / dispatch.ratio, "kept": dispatch.kept, "kept_bytes": dispatch.kept_bytes}
    return {**waiting, "resent": dispatch.resent, "slots waiting": dispatch.slots.waiting}


def main(config: dict[str, Any]) -> None:
    """Runs a station until the process is ended. config: `orders`, and `actor`, what all its actors are told."""
    station = Station(msgspec.convert(config["orders"], Orders), config["actor"], config["attempt"])
    try:
        while True:
            station.advance()
    finally:
        station.close()
