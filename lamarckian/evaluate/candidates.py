"""Messages between who drives an evolution and the processes that make and judge its candidates."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.ec.workers import Result


class Array(msgspec.Struct, frozen=True):
    """An array as bytes, in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A worker's first message: it waits for work. attempt: of its process."""

    attempt: int


class Task(msgspec.Struct, frozen=True, tag=True):
    """A candidate to be made and judged; see `Proposals`. shared: only where the worker has not got this `version` yet."""

    id: int
    parents: Array
    arrays: dict[str, Array]
    version: int
    shared: dict[str, Array] | None


class Judging(msgspec.Struct, frozen=True, tag=True):
    """A candidate is made, which may have meant to wait for a compiler; from now on it is judged."""

    attempt: int
    id: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """What became of a candidate; see `Result`. genes: None where whoever proposed it can make them anew."""

    attempt: int
    id: int
    genes: dict[str, Array] | None
    raw: Array
    violation: float
    fault: tuple[str, str] | None
    seconds: float


def pack(arrays: Mapping[str, np.ndarray]) -> dict[str, Array]:
    """Arrays by name, as they travel."""
    return {name: _pack(array) for name, array in arrays.items()}


def unpack(arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Undoes `pack`."""
    return {name: _unpack(array) for name, array in arrays.items()}


def task(proposal: Proposals, shared: bool) -> Task:
    """A proposal of one candidate, as it travels."""
    return Task(
        int(proposal.ids[0]), _pack(proposal.parents), pack(proposal.arrays), proposal.version, pack(proposal.shared) if shared else None
    )


def proposal(task: Task, shared: dict[str, np.ndarray]) -> Proposals:
    """Undoes `task`."""
    return Proposals(np.array([task.id]), _unpack(task.parents), unpack(task.arrays), shared, task.version)


def done(attempt: int, result: Result, genes: bool) -> Done:
    """A result, as it travels; with its genes or without."""
    fault = result.evaluation.faults.get(0)
    return Done(
        attempt,
        result.id,
        pack(result.genes) if genes else None,
        _pack(result.evaluation.raw),
        float(result.evaluation.violation[0]),
        None if fault is None else (fault.kind, fault.message),
        result.seconds,
    )


def result(message: Done) -> Result:
    """Undoes `done`."""
    faults = {} if message.fault is None else {0: Fault(*message.fault)}  # type: ignore[arg-type]
    evaluation = Evaluation(_unpack(message.raw), np.array([message.violation]), faults)
    return Result(message.id, unpack(message.genes or {}), evaluation, message.seconds)


def _pack(array: np.ndarray) -> Array:
    return Array(array.dtype.str, array.shape, array.tobytes())


def _unpack(array: Array) -> np.ndarray:
    return np.frombuffer(array.data, array.dtype).reshape(array.shape).copy()
