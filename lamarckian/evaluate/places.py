"""Where the learners of a training run, and at which addresses they are found."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from lamarckian.cluster.interface import Machine
from lamarckian.errors import MisuseError
from lamarckian.evaluate.posts import Addresses
from lamarckian.recipe.cluster import PORTS

_DESK, _ROOT, _CHILDREN, _RING, _RELAY, _POOLS = range(6)
"""Places of their ports behind the first; of pools there is one for each learner."""


_USUAL = range(16_384, 32_768 - PORTS)
"""Where ports are looked for. Systems give higher ones to outgoing connections, which would take that of a process while it is dead."""


@dataclass(frozen=True)
class Seat:
    """Where a learner runs. gpu: which of its machine's it has; None: it learns on the CPU."""

    machine: Machine
    gpu: int | None


def seats(machines: Sequence[Machine], learners: int) -> list[Seat]:
    """A seat for each learner, by rank: the first where the run's folder is, which is the first machine; the others on GPUs first, then on
    machines of their own, as long as there are any.

    All learn on GPUs, or none: where one has none, they could not add up their gradients.
    """
    own, *others = machines
    free = [Seat(own, gpu) for gpu in range(1, own.gpus)] + [Seat(there, gpu) for there in others for gpu in range(there.gpus)]
    free += [Seat(there, None) for there in others if not there.gpus] or [Seat(own, None)]
    chosen = [
        Seat(own, 0 if own.gpus else None),
        *(free[place] if place < len(free) else Seat(free[place % len(free)].machine, None) for place in range(learners - 1)),
    ]
    return chosen if all(seat.gpu is not None for seat in chosen) else [Seat(seat.machine, None) for seat in chosen]


def addresses(host: str, first: int, taken: Sequence[Seat], fixed: bool) -> Addresses:
    """Where all are found. host: of the first machine, by which others reach it. first: of the ports. fixed: those of relays are, too."""
    own = taken[0].machine.name
    desk, root, children, ring = (f"tcp://{host}:{first + place}" for place in (_DESK, _ROOT, _CHILDREN, _RING))
    pools = [
        f"tcp://{host if seat.machine.name == own else seat.machine.address}:{first + _POOLS + rank}" for rank, seat in enumerate(taken)
    ]
    return Addresses(desk, root, children, ring, pools, first + _RELAY if fixed else 0)


def ports(host: str, first: int) -> int:
    """The first of the ports at which learners listen. Raises MisuseError where they cannot be had."""
    if not _may_listen(host, 0):
        raise MisuseError(f"cluster.host: this machine has no address {host}; give one of its own")
    if first:
        if not _are_free(host, first):
            raise MisuseError(f"cluster.port: of the {PORTS} ports from {first} on, some are taken at {host}; give others, or none at all")
        return first
    for _ in range(100):
        port = secrets.choice(_USUAL)
        if _are_free(host, port):
            return port
    raise MisuseError(f"no {PORTS} ports one behind the other are free at {host}; name the first of some that are by cluster.port")


def _are_free(host: str, first: int) -> bool:
    return all(_may_listen(host, first + place) for place in range(PORTS))


def _may_listen(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
