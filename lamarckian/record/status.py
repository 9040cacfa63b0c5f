"""How a run stands now: the machines that work for it, their processes, rates and queues. A file in its folder says so, again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import psutil

from lamarckian.errors import RunFolderError
from lamarckian.record.run import Run, writing

WATCH_S = 2.0
"""Between two looks of those who watch."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class ProcessStatus(msgspec.Struct, frozen=True):
    """A process. attempt: how often it was started anew. cpu: cores that it keeps busy. memory_bytes: of its own and shared."""

    name: str
    pid: Count
    attempt: Count
    cpu: Amount
    memory_bytes: Count


class MachineStatus(msgspec.Struct, frozen=True):
    """A machine. cpu, memory: shares in use, by whomever, in [0, 1]. version: that its actors get. queues: what waits there, by name."""

    name: str
    address: str
    cores: Count
    cpu: Share
    memory: Share
    version: Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
    actors: Count
    processes: list[ProcessStatus]
    queues: dict[str, Amount] = {}


class Status(msgspec.Struct, frozen=True):
    """time_s: when this was so, seconds since 1970. metrics: the newest line of the metrics. machines: the learner's first."""

    time_s: float
    metrics: dict[str, float | int | str | None]
    machines: list[MachineStatus]


class Processes:
    """Looks at processes of this machine again and again, to see what they use."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}
        psutil.cpu_percent()  # the next call tells what was since then

    def look(self, pids: Mapping[str, tuple[int, int]]) -> list[ProcessStatus]:
        """What the processes, by name their pids and attempts, have used since the last look; those that are gone are left out."""
        self._known = {pid: self._known.get(pid) or handle for pid, _ in pids.values() if (handle := _handle(pid))}
        found = []
        for name, (pid, attempt) in pids.items():
            if pid in self._known:
                try:
                    cpu, memory = self._known[pid].cpu_percent() / 100, self._known[pid].memory_info().rss
                except psutil.Error:
                    continue
                found.append(ProcessStatus(name, pid, attempt, cpu, memory))
        return found

    def machine(
        self,
        name: str,
        address: str,
        cores: int,
        pids: Mapping[str, tuple[int, int]],
        version: int,
        actors: int,
        queues: Mapping[str, float] | None = None,
    ) -> MachineStatus:
        """How this machine stands, as far as it concerns `name`; `pids` as for `look`, the rest as in a `MachineStatus`."""
        cpu, memory = psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100
        return MachineStatus(name, address, cores, cpu, memory, version, actors, self.look(pids), dict(queues or {}))


def write_status(run: Run, metrics: Mapping[str, float | int | str | None], machines: list[MachineStatus]) -> None:
    """Says how the run stands. Raises RunFolderError where the disk is full or the folder cannot be written to."""
    part = run.status_path.with_name(".status.part")  # whole or not at all, and not forced to the disk: the next is soon there
    with writing(run.status_path):
        part.write_bytes(msgspec.json.encode(Status(time.time(), dict(metrics), machines)))
        part.replace(run.status_path)


def read_status(run: Run) -> Status:
    """How the run stood last. Raises RunFolderError where nothing says so."""
    try:
        return msgspec.json.decode(run.status_path.read_bytes(), type=Status)
    except FileNotFoundError:
        raise RunFolderError(f"run {run.folder} has not said yet how it stands; it does when it has begun to learn") from None
    except msgspec.MsgspecError as error:
        raise RunFolderError(f"{run.status_path} is not what a run says of itself: {error}") from error


def pictures(run: Run, as_json: bool, watch: bool) -> Iterator[str]:
    """How the run stands, for people or as a JSON object; with `watch` again every `WATCH_S`, as long as it is at work.

    Raises RunFolderError where nothing says so.
    """
    while True:
        status, at_work = read_status(run), run.at_work()
        yield msgspec.json.encode(status).decode() if as_json else "\n".join(_lines(status, at_work))
        if not (watch and at_work):
            return
        time.sleep(WATCH_S)


def _lines(status: Status, at_work: bool) -> list[str]:
    age_s = max(0.0, time.time() - status.time_s)
    lines = [f"{'at work' if at_work else 'not at work'}; as it was {age_s:.0f} s ago"]
    head = ("steps", "updates", "minutes", "rate_hz", "score", "staleness", "actors")
    pools = [name for name in status.metrics if name.startswith(("pool/", "broadcast/", "staleness/"))]
    shown = {name: status.metrics.get(name) for name in (*head, *pools)}
    lines += [f"  {name:<22} {_text(value)}" for name, value in shown.items() if value is not None]
    for machine in status.machines:
        lines += [
            "",
            f"{machine.name} at {machine.address}: {machine.cores} cores {machine.cpu:.0%} busy, memory {machine.memory:.0%} used, "
            f"{machine.actors} actors, version {machine.version}",
        ]
        lines += [f"  {name:<22} {_text(value)}" for name, value in machine.queues.items()]
        lines += [
            f"  {process.name:<22} pid {process.pid:<8} {process.cpu:5.2f} cores  {process.memory_bytes / 2**20:6,.0f} MiB"
            + (f"  started anew {process.attempt} times" if process.attempt else "")
            for process in machine.processes
        ]
    return lines


def _text(value: float | int | str | None) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _handle(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
