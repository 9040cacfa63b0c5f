"""What learners that learn together tell each other, beside what they add up."""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import msgspec
import torch
from torch import Tensor

from lamarckian.data.pool import MatchResult
from lamarckian.errors import RecipeError, RingError
from lamarckian.rl.algorithm import Algorithm, Peers, learns_together

Told = TypeVar("Told", bound=msgspec.Struct)


class Companions(Peers, Protocol):
    """A `lamarckian.learner.ring.Ring`, which see."""

    rank: int

    def gather(self, data: bytes) -> list[bytes]: ...
    def spread(self, numbers: Tensor) -> None: ...
    def take_seconds(self) -> float: ...


class Beginning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At first. parameters: by name, their shapes. state: rank 0's, by name dtype and shape."""

    version: int
    algorithm: str
    parameters: dict[str, tuple[int, ...]]
    state: dict[str, tuple[str, tuple[int, ...]]]


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Before an update. ready: whether there is a batch for it. The rest counts at rank 0.

    ends: there is no update any more. share: as of `Learner.update`. weights: of the rewards, where there are any.
    """

    ready: bool = False
    ends: bool = False
    share: float = 0.0
    weights: dict[str, float] = {}


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """After an update: how many steps its batch had; the rest as in `lamarckian.learner.batches.Batch`, metrics also of the update."""

    steps: int
    results: list[MatchResult]
    seconds: dict[str, float]
    metrics: dict[str, float]


def tell(ring: Companions, message: Told) -> list[Told]:
    """What each learner says, by rank. Raises RingError where it cannot be understood."""
    kind = type(message)
    try:
        return [msgspec.msgpack.decode(data, type=kind) for data in ring.gather(msgspec.msgpack.encode(message))]
    except msgspec.MsgspecError as error:
        raise RingError(f"another learner's {kind.__name__} is not understood ({error}); install the same version everywhere") from None


def begin(algorithm: Algorithm, ring: Companions, version: int) -> int:
    """Gives all learners the state of rank 0, whose version it returns, and its peers to `algorithm`.

    Raises RecipeError where it learns alone, or, at all learners, where they differ in algorithm or network.
    """
    if not learns_together(algorithm):
        raise RecipeError(f"{type(algorithm).__name__} learns alone; train with one learner, or by another algorithm")
    state = algorithm.state_dict() if ring.rank == 0 else {}
    shapes = {entry.name: entry.shape for entry in algorithm.parameters.manifest}
    manifest = {name: (str(x.dtype).removeprefix("torch."), tuple(x.shape)) for name, x in state.items()}
    beginnings = tell(ring, Beginning(version, type(algorithm).__name__, shapes, manifest))
    first = beginnings[0]
    for rank, other in enumerate(beginnings):
        for what in ("algorithm", "parameters"):
            theirs, ours = getattr(other, what), getattr(first, what)
            if theirs != ours:
                raise RecipeError(
                    f"learners cannot learn together: {what} of learner 0: {ours}; of {rank}: {theirs}. Give all the same recipe"
                )
    flat = (
        torch.cat([_bytes(x) for x in state.values()]) if state else torch.empty(sum(map(_size, first.state.values())), dtype=torch.uint8)
    )
    ring.spread(flat)
    if ring.rank:
        parts = flat.split([_size(entry) for entry in first.state.values()])
        tensors = {
            name: part.clone().view(getattr(torch, dtype)).reshape(shape)
            for part, (name, (dtype, shape)) in zip(parts, first.state.items(), strict=True)
        }
        algorithm.load_state_dict(tensors)
    algorithm.peers = ring  # type: ignore[attr-defined]
    return first.version


def _bytes(x: Tensor) -> Tensor:
    return x.cpu().contiguous().reshape(-1).view(torch.uint8)


def _size(entry: tuple[str, tuple[int, ...]]) -> int:
    dtype, shape = entry
    return math.prod(shape) * getattr(torch, dtype).itemsize  # type: ignore[no-any-return]
