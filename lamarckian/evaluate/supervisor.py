"""Trains on many machines: places learners and stations, watches over them, and goes on from the last checkpoint when a learner dies."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from lamarckian.actor.station import Orders
from lamarckian.cluster.interface import Cluster, Exit, Machine
from lamarckian.cluster.local import LocalCluster
from lamarckian.cluster.register import deaths
from lamarckian.errors import MisuseError, ProcessError
from lamarckian.evaluate.interrupts import interrupts
from lamarckian.evaluate.plan import Plan, acting, plan, published
from lamarckian.evaluate.posts import Addresses, Ended, Heard, Line, Note, Post
from lamarckian.evaluate.training import Summary
from lamarckian.recipe import Recipe
from lamarckian.recipe.cluster import PORTS
from lamarckian.recipe.sizes import parse_size
from lamarckian.record import checkpoint
from lamarckian.record.progress import Display
from lamarckian.record.run import Run
from lamarckian.transport.channel import Inbox, local_address

LOOK_S = 1.0
WAIT_S = 0.1
MAX_DEATHS = 3
LAST_S = 10.0
"""How long learners who say that another is lost may wait for its last words."""
REST_S, RETRY_S = 5.0, 60.0
"""How long a machine gets no station after its last one ended with all else there, and after one could not be started."""
_DESK, _ROOT, _RING, _POOLS = 0, 1, 2, 3
"""Places of their ports."""
_FREE = range(16_384, 32_768 - PORTS)
"""Where ports are looked for. Systems give higher ones to outgoing connections, which would take that of a process while it is dead."""


def supervise(recipe: Recipe, run: Run, progress: Display, resume: bool = False, taken: int | None = None) -> Summary:
    """As `lamarckian.evaluate.training.train`, on the machines of the recipe's section `cluster`."""
    with ExitStack() as stack:
        return Supervisor(recipe, run, progress, resume, taken, stack).run()


class Supervisor:
    """Watches over one training; it has no part in it.

    Learners that die are started anew, all of them, from the newest checkpoint. Stations are started on each machine that is there,
    whenever it comes, and anew where one dies and its machine does not; a machine where that fails is left alone for `RETRY_S`, but for
    this one. An error that would only come again ends the run.
    """

    def __init__(self, recipe: Recipe, run: Run, progress: Display, resume: bool, taken: int | None, stack: ExitStack) -> None:
        assert recipe.cluster is not None
        self._recipe = recipe
        self._section = recipe.cluster
        self._run = run
        self._progress = progress
        self._resume, self._taken = resume, taken
        self._plan: Plan = plan(recipe, run)
        self._inbox = Inbox((Line, Note, Ended), local_address())
        stack.callback(self._inbox.close)
        self._cluster: Cluster = _open(recipe, stack)
        self._home = stack.enter_context(LocalCluster())
        self._machines = {machine.name: machine for machine in self._cluster.machines()}
        own = next(iter(self._machines.values()))
        self._host = self._section.host or own.address
        self._ports = _ports(self._host, self._section.port)
        self._addresses: Addresses | None = None
        self._learners: dict[str, tuple[Cluster, Machine]] = {}
        self._fallen: list[Exit] = []
        self._fell_s = 0.0
        self._stations: dict[str, str] = {}
        self._aside: dict[str, float] = {}  # until when machines get no station
        self._numbers = 0
        self._ends: list[Exit] = []
        self._updates = -1
        self._looked_s = 0.0
        self._summary: Summary | None = None
        self._stopping = False
        self._first_pid = 0

    def run(self) -> Summary:
        """Trains to the end."""
        with interrupts(self._interrupt):
            self._start_learners()
            assert self._addresses is not None
            if self._addresses.network and self._section.keys is None:
                self._progress.note(
                    f"the channels of this training, at {self._host} and its other machines, are open to whoever can reach them; "
                    "`lamarckian keys` makes a key that closes them, for cluster.keys"
                )
            while self._summary is None:
                self._hear()
                self._poll()
                self._look()
        return self._summary

    def _hear(self) -> None:
        received = self._inbox.receive(WAIT_S)
        while received is not None:
            peer, message = received
            if isinstance(message, Line):
                if message.values["updates"] > self._updates:
                    self._updates = message.values["updates"]
                    self._ends.clear()
                self._progress.update(message.values)
            elif isinstance(message, Note):
                self._progress.note(message.text)
            else:
                self._inbox.send(peer, Heard())
                self._summary = Summary(**{**msgspec.structs.asdict(message), "checkpoint": Path(message.checkpoint)})
            received = self._inbox.receive(0.0)

    def _poll(self) -> None:
        if self._summary is not None:
            return
        for end in [*self._home.poll(), *self._cluster.poll()]:
            if end.failure is not None and end.failure.kind not in ("", "RingError"):
                raise end.error()
            if end.name in self._learners:
                if end.code != 0:  # else the first has told it that training is over, and is about to tell us
                    self._fallen.append(end)
                    self._fell_s = time.monotonic()
            elif end.name in self._stations:
                self._restation(end)
        if self._fallen:
            known = [end for end in self._fallen if end.failure is None or end.failure.kind != "RingError"]
            if known or len(self._fallen) == len(self._learners) or time.monotonic() - self._fell_s > LAST_S:
                self._relearn((known or self._fallen)[0])

    def _look(self) -> None:
        """Whether machines have come or gone."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        there = {machine.name: machine for machine in self._cluster.machines()}
        for name in self._machines.keys() - there.keys():
            self._progress.note(f"machine {name} is gone")
        for name in there.keys() - self._machines.keys():
            self._progress.note(f"machine {name} has come")
        self._machines = there
        for machine in there.values():
            if machine.name not in self._stations.values() and now >= self._aside.get(machine.name, 0.0):
                self._start_station(machine)

    def _start_learners(self) -> None:
        """All of them; and stations anew, where their pools are elsewhere than before."""
        hosts = self._places()
        pools = [f"tcp://{machine.address if rank else self._host}:{self._ports + _POOLS + rank}" for rank, machine in enumerate(hosts)]
        desk, root, ring = (f"tcp://{self._host}:{self._ports + place}" for place in (_DESK, _ROOT, _RING))
        addresses = Addresses(desk, root, ring, pools)
        recipe = self._recipe.model_dump(mode="json")
        for rank, machine in enumerate(hosts):
            name = f"learner-{rank}"
            post = Post(rank, recipe, addresses)
            if rank == 0:
                post = Post(rank, recipe, addresses, str(self._run.folder.resolve()), self._inbox.address, self._resume, self._taken)
            cluster: Cluster = self._cluster if rank else self._home
            where = machine.name if rank else None
            process = cluster.start(name, "lamarckian.evaluate.learning:main", msgspec.to_builtins(post), machine=where)
            self._learners[name] = cluster, machine
            if rank == 0:
                self._first_pid = process.pid
        if addresses != self._addresses:
            self._addresses = addresses
            for name in list(self._stations):
                self._cluster.stop(name)
            self._stations.clear()

    def _places(self) -> list[Machine]:
        """Where the learners run: the first where the run's folder is, the others on GPUs first, and on few cores rather than on one."""
        own, *others = self._machines.values()
        seats = [own] * max(own.gpus - 1, 0) + [machine for machine in others for _ in range(machine.gpus)]
        seats += [machine for machine in others if not machine.gpus] or [own]
        more = self._section.learners - 1
        return [own, *(seats[place % len(seats)] for place in range(more))]

    def _start_station(self, machine: Machine) -> None:
        assert self._addresses is not None
        name, section = f"station-{machine.name}", self._section
        target, config = acting(self._plan)
        saved = checkpoint.saved(self._run)
        orders = Orders(
            machine=machine,
            target=target,
            actors=self._actors(machine),
            first=self._numbers * 1000,
            life=[saved[-1] if saved else 0, self._numbers],
            parameters=published(self._plan),
            layout=self._plan.layout.plain(),
            network=self._addresses.network,
            desk=self._addresses.desk,
            root=self._addresses.root,
            pools=self._addresses.pools,
            keys=section.keys,
            packing=section.packing,
            hold_bytes=self._plan.layout.size_bytes if section.hold == "auto" else parse_size(section.hold),
        )
        self._numbers += 1
        plain = msgspec.to_builtins({"orders": orders, "actor": config}, builtin_types=(bytes,))
        try:
            self._cluster.start(name, "lamarckian.actor.station:main", plain, machine=machine.name)
            self._stations[name] = machine.name
        except ProcessError as error:
            self._leave_alone(machine.name, error)

    def _actors(self, machine: Machine) -> int:
        """How many actors a machine has: one a core, but for those of its learners."""
        count = self._recipe.actor.count
        taken = sum(there.name == machine.name for _, there in self._learners.values())
        return count if count != "auto" else max(1, machine.cores - taken)

    def _relearn(self, end: Exit) -> None:
        """All learners go on from the newest checkpoint, for together they were at one version."""
        if self._stopping:
            raise KeyboardInterrupt
        self._ends.append(end)
        if deaths(self._ends) > MAX_DEATHS:
            raise ProcessError(f"learners ended {len(self._ends)} times without getting any further: {end.describe()}")
        for name, (cluster, _) in self._learners.items():
            cluster.stop(name)
        self._learners.clear()
        self._fallen.clear()
        self._machines = {machine.name: machine for machine in self._cluster.machines()}
        self._resume, self._taken = True, None
        saved = checkpoint.saved(self._run)
        self._progress.note(f"{end.describe()}; going on from {f'checkpoint {saved[-1]}' if saved else 'the beginning'}")
        self._start_learners()

    def _restation(self, end: Exit) -> None:
        machine = self._stations.pop(end.name)
        if end.code is None and end.signal is None:  # with all else there: the machine may be gone, too, though nobody knows yet
            self._progress.note(end.describe())
            self._aside[machine] = time.monotonic() + REST_S
        elif machine in {there.name for there in self._cluster.machines()}:
            self._progress.note(f"{end.describe()}; starting it anew")
            try:
                self._cluster.restart(end.name)
                self._stations[end.name] = machine
            except ProcessError as error:
                self._leave_alone(machine, error)
        else:
            self._progress.note(end.describe())

    def _leave_alone(self, machine: str, error: ProcessError) -> None:
        """Others can do without a machine that can have no station. Raises the error where it is this one."""
        if machine == next(iter(self._machines)):
            raise error
        self._aside[machine] = time.monotonic() + RETRY_S
        self._progress.note(f"machine {machine} is left alone for {RETRY_S:g} s: {error}")

    def _interrupt(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True
        with suppress(ProcessLookupError):  # between two lives
            os.kill(self._first_pid, signal.SIGTERM)


def _open(recipe: Recipe, stack: ExitStack) -> Cluster:
    section = recipe.cluster
    assert section is not None
    if section.address == "local":
        return stack.enter_context(LocalCluster(parts=section.machines))
    from lamarckian.cluster.ray import RayCluster  # only here, for it takes a second and is an extra

    return stack.enter_context(RayCluster(section.address))


def _ports(host: str, first: int) -> int:
    """The first of the ports at which this machine listens. Raises MisuseError where they cannot be had."""
    if first:
        return first
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise MisuseError(f"cluster.host: cannot listen at {host}: {error.strerror}; give an address of this machine") from error
    for _ in range(100):
        port = secrets.choice(_FREE)
        if all(_free(host, port + place) for place in range(PORTS)):
            return port
    raise MisuseError(f"no {PORTS} ports one behind the other are free at {host}; name the first of some that are by cluster.port")


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
