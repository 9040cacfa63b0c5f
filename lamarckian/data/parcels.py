"""What dispatches and memory pools say to each other. A parcel is a fragment on its way from one machine to another.

A dispatch connects to the pool's address and says by `Arrive` that it is there. The pool answers with `Room`: how many bytes the
dispatch may have sent in all since it came, and which parcels are in. A dispatch keeps every parcel until it is in, and sends those that
are not once more to a pool that it finds to be another (`Room.pool`). So a pool that dies loses what it held, and nothing that was still
on its way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import msgspec
import numpy as np

from lamarckian.data.ledger import Meta
from lamarckian.transport.channel import LIMIT_BYTES, Terms

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
QUEUE = 256
Packing = Literal["none", "lz4"]


class Arrive(msgspec.Struct, frozen=True, tag=True):
    """Dispatch to pool, again and again: it is there. life: a number that another process of the same name would not have."""

    life: Count


class Parcel(msgspec.Struct, frozen=True, tag=True):
    """Dispatch to pool: a fragment.

    number: counts the dispatch's parcels from 0. actor: who filled it. made_s: seconds since it was filled, by the dispatch's own clock.
    steps, columns: of its layout. size_bytes: unpacked. body: uint8, the block of `Layout.views`, packed as `packing` says.
    """

    life: Count
    number: Count
    actor: str
    meta: Meta
    made_s: Annotated[float, msgspec.Meta(ge=0)]
    steps: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    columns: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    size_bytes: Count
    packing: Packing
    body: np.ndarray


class Room(msgspec.Struct, frozen=True, tag=True):
    """Pool to dispatch. pool: a number that no other pool has. taken: parcels of this `life` with numbers below it are in, or refused.

    bytes: how many, unpacked, the dispatch may have sent in all of this `life` to this `pool`.
    """

    pool: Count
    life: Count
    taken: Count
    bytes: Count


def terms(base: Terms, size_bytes: int) -> Terms:
    """The terms of the channels between dispatches and pools, for fragments of at most `size_bytes`, unpacked.

    What an actor says beside a fragment came to the dispatch by a channel of `LIMIT_BYTES`, and fits.
    """
    return replace(base, message_bytes=size_bytes + LIMIT_BYTES, queue=QUEUE)
