"""Packing fragments for a journey between machines, by lz4 where that pays (https://lz4.org)."""

from __future__ import annotations

from typing import Literal

import lz4.block
import numpy as np

from lamarckian.data.parcels import Packing, Parcel

Setting = Literal["auto", "none", "lz4"]

LEAST_SAVING = 1 / 8
TRY_EVERY = 64


class Packer:
    """Packs one block after the other.

    setting: `lz4` packs whatever becomes smaller by it, `none` nothing. `auto` packs for as long as the last block became smaller by
    `LEAST_SAVING` of its bytes; when one does not, it and the next ones travel as they are, and every `TRY_EVERY`-th is tried again.

    lz4 goes through 1 GB/s and more of what it cannot pack, and several of what it can, so that an eighth is what it saves on a link of
    1 Gbit/s at least in the time that it takes. Images and flags become many times smaller, floats of observations hardly.
    """

    def __init__(self, setting: Setting = "auto") -> None:
        self._least = LEAST_SAVING if setting == "auto" else 0.0
        self._every = {"auto": TRY_EVERY, "none": 0, "lz4": 1}[setting]
        self._passed_over = self._every

    def pack(self, block: np.ndarray) -> tuple[Packing, np.ndarray]:
        """How `block`, uint8 `[n]`, is packed, and its bytes then, uint8 `[m]`, m ≤ n, of their own."""
        self._passed_over += 1
        if self._every and self._passed_over >= self._every:
            packed = np.frombuffer(lz4.block.compress(block, store_size=False, return_bytearray=True), np.uint8)
            if packed.size < block.size * (1 - self._least):
                self._passed_over = self._every
                return "lz4", packed
            self._passed_over = 0
        return "none", block.copy()


def unpack(parcel: Parcel, into: np.ndarray) -> None:
    """Writes a parcel's block to `into`, uint8 `[parcel.size_bytes]`. Needs no more memory than that once more, whatever the body claims.

    Raises ValueError where the body is not so many bytes, packed as the parcel says; `into` may then hold anything.
    """
    body, size_bytes = parcel.body, parcel.size_bytes
    if into.dtype != np.uint8 or into.shape != (size_bytes,):
        raise ValueError(f"{size_bytes} bytes are needed for the parcel, not an array of {into.dtype} {into.shape}")
    if body.dtype != np.uint8 or body.ndim != 1:
        raise ValueError(f"a parcel's body is bytes, not an array of {body.dtype} {body.shape}")
    if parcel.packing == "lz4":
        try:
            body = np.frombuffer(lz4.block.decompress(body, uncompressed_size=size_bytes), np.uint8)
        except (lz4.block.LZ4BlockError, OverflowError) as error:
            raise ValueError(f"a parcel's body is not {size_bytes} bytes, packed by lz4") from error
    if body.size != size_bytes:
        raise ValueError(f"a parcel is to have {size_bytes} bytes, it has {body.size}")
    into[:] = body
