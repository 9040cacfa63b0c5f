"""Processes on many machines, by Ray: it says which machines there are, and starts a keeper on each. It carries no data of ours."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

import lamarckian
from lamarckian.cluster.interface import Exit, Failure, Machine, Process
from lamarckian.cluster.keeper import Keeper, Order, Report
from lamarckian.cluster.register import Record, Register, check_machine
from lamarckian.errors import MisuseError, ProcessError
from lamarckian.plugins import EXTRAS

_LOG = logging.getLogger(__name__)
_REPORT_EVERY_S = 0.1
_START_S = 60.0
_STOP_S = 10.0
_REACH_S = 5.0
_STORE_BYTES = 80 << 20


@dataclass
class _Site:
    """A machine with a keeper on it: a Ray actor. report: what it was asked to tell, while the answer is under way."""

    node: str
    machine: Machine
    keeper: Any
    report: Any = None
    asked_s: float = -math.inf

    def ask(self) -> None:
        """Asks for a report, unless one is under way."""
        if self.report is None:
            self.report = self.keeper.report.remote()
            self.asked_s = time.monotonic()


@dataclass(kw_only=True)
class _Placed(Record):
    """A process, and what is needed to start it anew."""

    order: Order
    process: Process
    site: _Site


class RayCluster:
    """A `Cluster` of the machines of a Ray cluster. It belongs to one thread at a time.

    address: "HOST:PORT" of the Ray cluster to join; "auto" for the one that this machine is in by `ray start` or RAY_ADDRESS names. Where
        there is none, "auto" starts one, which `close` ends. Where this process has joined one before, "auto" is that.
    max_deaths: a process is started anew after so many unasked ends within `window_s`, as `register.deaths` counts, and no more.

    The first process on a machine starts a keeper there, which reserves the cores and GPUs that Ray has to give. Processes are children of
    their machine's keeper and die with it, and it dies with this process. What children write is logged here, line by line, as a warning.
    `poll` tells what had happened when it was called the time before.

    Raises MisuseError when Ray is not installed, or the cluster cannot be joined.
    """

    def __init__(self, address: str = "auto", max_deaths: int = 3, window_s: float = 60.0) -> None:
        self._ray = _import_ray()
        self._joined, self._alone = _join(self._ray, address)
        self._own = self._ray.get_runtime_context().get_node_id()
        self._names: dict[str, str] = {}
        self._sites: dict[str, _Site] = {}
        self._placed: Register[_Placed] = Register(max_deaths, window_s)
        self._ends: list[tuple[_Placed, Exit]] = []

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def machines(self) -> list[Machine]:
        """As `Cluster.machines`: cores and GPUs are those that are reserved for us, or may be. Takes about a millisecond.

        A machine is called as its Ray node is (by its IP address, unless `ray start` was told otherwise), with a number where several are.
        """
        available = self._available()
        return [
            self._sites[node["NodeID"]].machine if node["NodeID"] in self._sites else self._machine(name, node, available)
            for name, node in self._nodes().items()
        ]

    def start(
        self,
        name: str,
        target: str,
        config: Mapping[str, Any],
        fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        machine: str | None = None,
    ) -> Process:
        """As `Cluster.start`; takes a second or two where it is the first on its machine.

        Raises ValueError for descriptors, which no other machine knows, and ProcessError also when the machine does not answer, has no
        Lamarckian or one of another version, or Ray has given its cores to somebody else meanwhile.
        """
        if fds:
            raise ValueError(f"{name} is to inherit descriptors, which mean nothing on another machine")
        self._placed.check_free(name)
        order = Order(name, target, dict(config), dict(environment or {}), 0)
        return self._launch(order, next(iter(self._nodes())) if machine is None else machine).process

    def poll(self) -> list[Exit]:
        """As `Cluster.poll`. When a machine is lost, all its processes have ended."""
        self._hear(0.0, *self._sites.values())
        for site in self._sites.values():
            if time.monotonic() >= site.asked_s + _REPORT_EVERY_S:
                site.ask()
        told = []
        for placed, exit in self._ends:
            if self._placed.get(exit.name) is placed and placed.exit is None:
                self._placed.end(placed, exit)
                told.append(exit)
        self._ends.clear()
        return told

    def restart(self, name: str) -> Process:
        """As `Cluster.restart`: on the machine where it was."""
        old = self._placed.revive(name)
        order = msgspec.structs.replace(old.order, attempt=old.order.attempt + 1)
        new = self._launch(order, old.site.machine.name)
        new.ends = old.ends
        return new.process

    def stop(self, name: str) -> None:
        """As `Cluster.stop`: SIGTERM, and SIGKILL after 2 s."""
        placed = self._placed.pop(name, None)
        if placed is not None and placed.exit is None:
            try:
                self._ray.get(placed.site.keeper.stop.remote(name), timeout=_STOP_S)
            except self._ray.exceptions.RayError:
                self._lose(placed.site)

    def close(self) -> None:
        """As `Cluster.close`: SIGTERM to all, SIGKILL after 2 s; then leaves Ray, and ends it if it was started for us."""
        sites, self._sites = list(self._sites.values()), {}
        self._placed.clear()
        self._ends.clear()
        answers = [site.keeper.close.remote() for site in sites]
        if answers:
            self._ray.wait(answers, num_returns=len(answers), timeout=_STOP_S)  # one that does not answer is Ray's to clear up
        for site in sites:
            self._ray.kill(site.keeper)
        if self._joined:
            self._joined = False
            self._ray.shutdown()

    def _nodes(self) -> dict[str, dict[str, Any]]:
        """What Ray says of the nodes that are there, by machine name, our own first. A node keeps its name while it is there."""
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        self._names = {id: name for id, name in self._names.items() if id in nodes}
        for id in sorted(nodes.keys() - self._names.keys(), key=lambda id: (id != self._own, id)):
            plain = name = nodes[id]["NodeName"] or nodes[id]["NodeManagerAddress"]
            count = 1
            while name in self._names.values():
                count += 1
                name = f"{plain}-{count}"
            self._names[id] = name
        order = sorted(nodes, key=lambda id: (id != self._own, self._names[id]))
        return {self._names[id]: nodes[id] for id in order}

    def _launch(self, order: Order, machine: str) -> _Placed:
        site = self._site(order.name, machine)
        try:
            pid = self._ray.get(site.keeper.start.remote(msgspec.msgpack.encode(order)), timeout=_START_S)
        except self._ray.exceptions.RayTaskError as error:
            raise ProcessError(f"{order.name} cannot be started on {machine}: {error.cause}") from error
        except self._ray.exceptions.RayError as error:
            self._lose(site)
            raise ProcessError(f"{order.name} cannot be started on {machine}, which is gone or does not answer: {error}") from error
        placed = self._placed[order.name] = _Placed(order=order, process=Process(order.name, order.attempt, pid), site=site)
        return placed

    def _site(self, process: str, machine: str) -> _Site:
        """The machine, with a keeper on it that has just told all that there was to tell."""
        nodes = self._nodes()
        check_machine(process, machine, nodes)
        node = nodes[machine]["NodeID"]
        if node in self._sites:
            self._sites[node].ask()
            self._hear(_STOP_S, self._sites[node])
        if node not in self._sites:
            there = self._machine(machine, nodes[machine], self._available())
            self._sites[node] = _Site(node, there, _start_keeper(self._ray, node, there))
        return self._sites[node]

    def _hear(self, patience_s: float, *sites: _Site) -> None:
        """Takes the answers that were asked for and have come. Whose answer does not come although it is waited for is lost."""
        pending = {site.report: site for site in sites if site.report is not None}
        if not pending:
            return
        ready, late = self._ray.wait(list(pending), num_returns=len(pending), timeout=patience_s)
        for answer in ready:
            site, pending[answer].report = pending[answer], None
            try:
                report = msgspec.msgpack.decode(self._ray.get(answer), type=Report)
            except self._ray.exceptions.RayError:
                self._lose(site)
                continue
            for line in report.lines:
                _LOG.warning("%s", line)
            self._ends += [(self._placed[exit.name], exit) for exit in report.exits if exit.name in self._placed]
        if patience_s > 0:
            for answer in late:
                self._lose(pending[answer])

    def _lose(self, site: _Site) -> None:
        """Counts a machine's processes as ended, and sees that they are, should they still be there. Harmless when repeated."""
        if self._sites.get(site.node) is not site:
            return
        del self._sites[site.node]
        self._ray.kill(site.keeper)
        failure = Failure("", f"the machine {site.machine.name} is gone, or the keeper of the processes there", "")
        for placed in self._placed.values():
            if placed.site is site and placed.exit is None:
                self._ends.append((placed, Exit(placed.order.name, placed.order.attempt, None, None, failure, "")))

    def _machine(self, name: str, node: Mapping[str, Any], available: Mapping[str, Mapping[str, float]]) -> Machine:
        """A node as we see it. Of a Ray of our own nobody else is, so that nothing there needs to be reached from elsewhere."""
        there = available.get(node["NodeID"], node["Resources"])
        address = "127.0.0.1" if self._alone else node["NodeManagerAddress"]
        return Machine(name, address, int(there.get("CPU", 0)), int(there.get("GPU", 0)))

    def _available(self) -> dict[str, dict[str, float]]:
        return cast(dict[str, dict[str, float]], self._ray._private.state.available_resources_per_node())


def _import_ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise MisuseError(f"several machines need Ray, which is not installed: pip install 'lamarckian[{EXTRAS['ray']}]'") from error
    return ray


def _join(ray: Any, address: str) -> tuple[bool, bool]:
    """Joins a Ray cluster, as `RayCluster` says; whether this process was not in it before, and whether it is one of its own."""
    if ray.is_initialized():
        if address == "auto":
            return False, False
        raise MisuseError(f"this process has joined a Ray cluster before, and cannot join {address}; leave that one, or say 'auto' for it")
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        found = ray._private.services.canonicalize_bootstrap_address(None if address == "auto" else address)
    except ValueError as error:
        raise MisuseError(f"the address of a Ray cluster is 'auto' or HOST:PORT, not {address!r}") from error
    options: dict[str, Any] = {"address": found if address != "auto" else None}
    advice = f"Is it there (`ray start --head`), and this machine in it (`ray start --address={found}`)?"
    if found is not None and (why := _unreachable(found)) is not None:
        if address != "auto" or os.environ.get("RAY_ADDRESS"):
            raise MisuseError(f"there is no Ray cluster at {found}: {why}. {advice}")
        found = None  # one that was here ended without taking its address back
    if found is None:
        options = {"address": "local", "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        with _own_signals():
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = str(error.__cause__ or error)
        if found is None:
            raise MisuseError(f"Ray cannot be started on this machine: {why}") from error
        raise MisuseError(f"the Ray cluster at {found} cannot be joined: {why}. {advice} Is RAY_AUTH_TOKEN the same?") from error
    ray._private.worker._worker_logs_enabled = False  # else it prints, to stdout, when a keeper dies
    return True, found is None


def _unreachable(address: str) -> str | None:
    """Why nobody can be reached there. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """What is done about SIGINT and SIGTERM stays as it is."""
    mine = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if mine else {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _start_keeper(ray: Any, node: str, machine: Machine) -> Any:
    """A keeper on that node, which answers. Raises ProcessError where there can be none."""
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    reserve = {"num_cpus": machine.cores, "num_gpus": machine.gpus, "max_restarts": 0, "scheduling_strategy": place}
    try:
        _check_version(machine.name, ray.get(_version_there(ray, place), timeout=_START_S))
        keeper = ray.remote(Keeper).options(**reserve).remote(_own_folders(), os.path.dirname(ray.__file__), machine.gpus)
        ray.get(keeper.report.remote(), timeout=_START_S)
    except ray.exceptions.GetTimeoutError as error:
        asked = f"{machine.cores} cores and {machine.gpus} GPUs"
        raise ProcessError(f"{machine.name} gave us no {asked} within {_START_S:g} s; `ray status` says who has them") from error
    except ray.exceptions.RayError as error:
        raise ProcessError(f"{machine.name} is gone, or no keeper can live there: {error}") from error
    return keeper


def _version_there(ray: Any, place: Any) -> Any:
    """Asks for the version of Lamarckian on a machine where there may be none; "" then."""

    def version() -> str:
        try:
            import lamarckian
        except ImportError:
            return ""
        return lamarckian.__version__

    return ray.remote(version).options(num_cpus=0, max_retries=0, scheduling_strategy=place).remote()


def _check_version(machine: str, there: str) -> None:
    here = lamarckian.__version__
    if there != here:
        has = f"has Lamarckian {there}" if there else "has no Lamarckian that its Python finds"
        raise ProcessError(f"{machine} {has}, this machine has {here}; install the same on both: pip install lamarckian=={here}")


def _own_folders() -> list[str]:
    """Where this process finds modules that came with neither the interpreter nor a package."""
    found = [os.path.abspath(path) for path in sys.path]
    return [path for path in found if not any(Path(path).is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))]
