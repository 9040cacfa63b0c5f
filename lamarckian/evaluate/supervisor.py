"""Trains on many machines: places learners and stations, watches over them, and goes on from the last checkpoint when a learner dies."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

import msgspec

from lamarckian.actor.station import Orders
from lamarckian.cluster.interface import Cluster, Exit, Machine
from lamarckian.cluster.local import LocalCluster
from lamarckian.cluster.register import deaths
from lamarckian.errors import ProcessError, RecipeError
from lamarckian.evaluate.interrupts import interrupts
from lamarckian.evaluate.places import Seat, addresses, ports, seats
from lamarckian.evaluate.plan import acting, plan, published
from lamarckian.evaluate.posts import Addresses, Heard, Line, Note, Post, Summary
from lamarckian.recipe import Recipe
from lamarckian.recipe.sizes import parse_size
from lamarckian.record import checkpoint
from lamarckian.record.progress import Display
from lamarckian.record.run import Run
from lamarckian.transport.channel import Inbox, local_address

LOOK_S = 1.0
WAIT_S = 0.1
TOGETHER_S = 0.5
"""Learners that end for one reason end within so long; what the first of them says of it is worth most."""
FIRST = "learner-0"
AGAIN_S = 30.0
"""After so long a machine that failed is tried again."""
MAX_DEATHS = 3
"""Of learners, without an update between, as `lamarckian.cluster.register.deaths` counts."""
LAST_S = 10.0
"""How long learners who say that another is lost may wait for its last words."""
REST_S = 5.0
"""How long a machine gets no station after its last one ended with all else there."""
OF_THE_MACHINE = ("MisuseError", "RecipeError", "GameError", "CheckpointError", "RunFolderError", "ProcessError")
"""Errors of a station for which its machine may be to blame: a package or a file that is not there, or processes that die."""
PASSING = ("", "RingError", "ProcessError")
"""Errors of a learner after which the next may do better."""


def supervise(recipe: Recipe, run: Run, progress: Display, resume: bool = False, taken: int | None = None) -> Summary:
    """As `lamarckian.evaluate.training.train`, on the machines of the recipe's section `cluster`."""
    with ExitStack() as stack:
        return Supervisor(recipe, run, progress, resume, taken, stack).run()


class Supervisor:
    """Watches over one training; it has no part in it.

    Learners that die are started anew, all of them, from the newest checkpoint. Stations are started on each machine that is there,
    whenever it comes, and anew where one dies and its machine does not. What no learner and no machine could do better ends the run.
    """

    def __init__(self, recipe: Recipe, run: Run, progress: Display, resume: bool, taken: int | None, stack: ExitStack) -> None:
        assert recipe.cluster is not None
        self._recipe = recipe
        self._section = recipe.cluster
        self._run = run
        self._progress = progress
        self._resume, self._taken = resume, taken
        self._plan = plan(recipe, run)
        self._check_sizes()
        self._parameters = published(self._plan)
        self._inbox = Inbox((Line, Note, Summary), local_address())
        stack.callback(self._inbox.close)
        self._cluster = _open(recipe, stack)
        self._home = stack.enter_context(LocalCluster())
        self._machines = {machine.name: machine for machine in self._cluster.machines()}
        self._host = self._section.host or next(iter(self._machines.values())).address
        self._ports = ports(self._host, self._section.port)
        self._addresses: Addresses | None = None
        self._learners: dict[str, tuple[Cluster, Seat]] = {}
        self._fallen: list[Exit] = []
        self._fell_s = 0.0
        self._stations: dict[str, str] = {}  # and their machines
        self._left_out: dict[str, float] = {}  # machines, and until when
        self._numbers = 0
        self._ends: list[Exit] = []
        self._updates = -1
        self._looked_s = 0.0
        self._summary: Summary | None = None
        self._stopping = self._told = False
        self._first_pid = 0

    def run(self) -> Summary:
        """Trains to the end."""
        with interrupts(self._interrupt):
            self._begin()
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
                self._run.keep_resume()
                if message.values["updates"] > self._updates:
                    self._updates = message.values["updates"]
                    self._ends.clear()
                self._progress.update(message.values)
            elif isinstance(message, Note):
                self._progress.note(message.text)
            else:
                self._inbox.send(peer, Heard())
                self._summary = message
            received = self._inbox.receive(0.0)
        if self._stopping and not self._told and self._first_pid:
            self._told = True
            os.kill(self._first_pid, signal.SIGTERM)

    def _poll(self) -> None:
        """What has become of processes. Of learners, several may end for one reason: that is one death."""
        ends = [] if self._summary is not None else [*self._home.poll(), *self._cluster.poll()]
        for end in ends:
            if end.name == FIRST:
                self._first_pid = 0
            if end.name in self._stations:
                self._restation(end)
            elif end.name in self._learners and end.code != 0:  # else the first has ended the training, and is only still saving
                self._fallen.append(end)
                self._fell_s = time.monotonic()
        if self._fallen:
            known = [end for end in self._fallen if end.failure is None or end.failure.kind != "RingError"]
            enough = any(end.name == FIRST for end in known) or len(self._fallen) == len(self._learners)
            if enough or time.monotonic() - self._fell_s > (TOGETHER_S if known else LAST_S):
                self._relearn(min(known or self._fallen, key=lambda end: end.name))

    def _look(self) -> None:
        """Whether machines have come or gone; starts a station a turn, since that may take a second or two."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S or self._summary is not None:
            return
        there = {machine.name: machine for machine in self._cluster.machines()}
        for name in self._machines.keys() - there.keys():
            self._progress.note(f"machine {name} is gone")
        for name in there.keys() - self._machines.keys():
            self._progress.note(f"machine {name} has come")
            self._left_out.pop(name, None)
        self._machines = there
        for name in self._stations.values():
            if now - self._left_out.get(name, now) > AGAIN_S:  # it works again, and is worth a word should it fail once more
                del self._left_out[name]
        for machine in there.values():
            if machine.name not in self._stations.values() and not self._is_left_out(machine.name):
                self._start_station(machine)
                return
        self._looked_s = now

    def _begin(self) -> None:
        """Starts learners on machines that can have them; one may be going, and nobody know it yet."""
        for tries in range(MAX_DEATHS, -1, -1):
            try:
                return self._start_learners()
            except ProcessError as error:
                if not tries:
                    raise
                self._progress.note(f"a learner cannot be started; trying again: {error}")
                self._stop_learners()
                self._machines = {machine.name: machine for machine in self._cluster.machines()}

    def _stop_learners(self) -> None:
        self._first_pid = 0
        for name, (cluster, _) in self._learners.items():
            cluster.stop(name)
        self._learners.clear()
        self._fallen.clear()

    def _start_learners(self) -> None:
        """All of them; and stations anew, where their pools are elsewhere than before."""
        own, *others = self._machines.values()
        able = [machine for machine in others if not self._is_left_out(machine.name)]
        taken = seats([own, *able], self._section.learners)
        fixed = bool(self._section.port) and self._section.address != "local"  # where one machine passes for several, each has a relay
        where = addresses(self._host, self._ports, taken, fixed)
        recipe = self._recipe.model_dump(mode="json")
        if len(taken) > 1 and taken[0].gpu is None:
            if recipe["learner"]["device"] == "cuda":
                raise RecipeError(
                    f"learner.device: given cuda; the machines {', '.join(self._machines)} have not a GPU to give to each of {len(taken)} "
                    "learners: allowed: cpu, auto, or fewer cluster.learners"
                )
            recipe["learner"]["device"] = "cpu"
        for rank, seat in enumerate(taken):
            name, post = f"learner-{rank}", Post(rank, recipe, where, seat.gpu)
            if rank == 0:
                post = Post(rank, recipe, where, seat.gpu, str(self._run.folder.resolve()), self._inbox.address, self._resume, self._taken)
            cluster = self._cluster if rank else self._home
            machine = seat.machine.name if rank else None
            try:
                process = cluster.start(name, "lamarckian.evaluate.learning:main", msgspec.to_builtins(post), machine=machine)
            except ProcessError:
                self._left_out[seat.machine.name] = time.monotonic() + AGAIN_S
                raise
            self._learners[name] = cluster, seat
            if rank == 0:
                self._first_pid = process.pid
        if where != self._addresses:
            self._addresses = where
            for name in list(self._stations):
                self._cluster.stop(name)
            self._stations.clear()

    def _start_station(self, machine: Machine) -> None:
        assert self._addresses is not None
        name, section, where = f"station-{machine.name}", self._section, self._addresses
        count = self._actors(machine)
        if not count:
            self._leave_out(machine.name, f"machine {machine.name} has no cores to give; it is asked again every {AGAIN_S:g} s")
            return
        target, config = acting(self._plan)
        saved = checkpoint.saved(self._run)
        orders = Orders(
            machine=msgspec.structs.replace(machine, address=self._host) if machine == next(iter(self._machines.values())) else machine,
            target=target,
            actors=count,
            first=self._numbers * 1000,
            life=[saved[-1] if saved else 0, self._numbers],
            parameters=self._parameters,
            layout=self._plan.layout.plain(),
            desk=where.desk,
            root=where.root,
            relay_port=where.relay_port,
            pools=where.pools,
            network=where.network,
            keys=section.keys,
            packing=section.packing,
            hold_bytes=self._plan.layout.size_bytes if section.hold == "auto" else parse_size(section.hold),
        )
        self._numbers += 1
        plain = msgspec.to_builtins({"orders": orders, "actor": config}, builtin_types=(bytes,))
        try:
            self._cluster.start(name, "lamarckian.actor.station:main", plain, machine=machine.name)
        except ProcessError as error:
            self._leave_out(machine.name, f"machine {machine.name} is left out for now: {error}")
        else:
            self._stations[name] = machine.name

    def _actors(self, machine: Machine) -> int:
        """How many actors a machine has: one a core, but for those of its learners; one at least, where there is a core."""
        count = self._recipe.actor.count
        taken = sum(seat.machine.name == machine.name for _, seat in self._learners.values())
        auto = max(min(machine.cores, 1), machine.cores - taken)
        return auto if count == "auto" else count

    def _relearn(self, end: Exit) -> None:
        """All learners go on from the newest checkpoint, for together they were at one version."""
        if end.failure is not None and end.failure.kind not in PASSING:
            end.check()
        if self._stopping:
            raise KeyboardInterrupt
        self._ends.append(end)
        if deaths(self._ends) > MAX_DEATHS:
            raise ProcessError(f"learners ended {len(self._ends)} times without getting any further: {end.describe()}")
        self._stop_learners()
        self._machines = {machine.name: machine for machine in self._cluster.machines()}
        self._resume, self._taken = True, None
        saved = checkpoint.saved(self._run)
        self._progress.note(f"{end.describe()}; going on from {f'checkpoint {saved[-1]}' if saved else 'the beginning'}")
        self._begin()

    def _restation(self, end: Exit) -> None:
        machine = self._stations.pop(end.name)
        if end.failure is not None and end.failure.kind:
            if end.failure.kind not in OF_THE_MACHINE or not self._stations:
                raise end.error()
            self._leave_out(machine, f"machine {machine} is left out for now: {end.failure.message}")
        elif end.code is None and end.signal is None:  # with all else there: the machine may be gone, too, though nobody knows yet
            self._leave_out(machine, end.describe(), REST_S)
        else:
            self._progress.note(f"{end.describe()}; starting it anew")
            try:
                self._cluster.restart(end.name)
                self._stations[end.name] = machine
            except ProcessError as error:  # its machine is gone, or something there dies again and again
                self._leave_out(machine, f"machine {machine} is left out for now: {error}")

    def _leave_out(self, machine: str, why: str, seconds: float = AGAIN_S) -> None:
        if machine not in self._left_out:
            self._progress.note(why)
        self._left_out[machine] = time.monotonic() + seconds

    def _is_left_out(self, machine: str) -> bool:
        return time.monotonic() < self._left_out.get(machine, 0.0)

    def _interrupt(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True
        self._progress.note("stopping after this update, to save; once more stops at once")

    def _check_sizes(self) -> None:
        fragment = self._plan.layout.size_bytes
        for key, size in (("pool.size", self._section.pool.size), ("hold", self._section.hold)):
            if size != "auto" and parse_size(size) < fragment:
                raise RecipeError(
                    f"cluster.{key}: given {size}; a fragment of this recipe has {fragment:,} bytes; allowed: that or more, or auto"
                )


def _open(recipe: Recipe, stack: ExitStack) -> Cluster:
    section = recipe.cluster
    assert section is not None
    if section.address == "local":
        return stack.enter_context(LocalCluster(parts=section.machines))
    from lamarckian.cluster.ray import RayCluster  # only here, for it takes a second and is an extra

    return stack.enter_context(RayCluster(section.address))
