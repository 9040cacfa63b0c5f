"""Messages to frames and back.

A message is a tagged msgspec Struct. Its first frame is four bytes that name the protocol and its version, then msgpack. A field
annotated `np.ndarray` travels as a raw frame of its own, behind the first; in its place stand its dtype and shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

import msgspec
import numpy as np

PROTOCOL = 1
MAX_ARRAYS = 64

_MAGIC = b"LMK"
_PREFIX = _MAGIC + bytes([PROTOCOL])
_DTYPES = {np.dtype(code).str: np.dtype(code) for code in ("?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")}

Buffer = bytes | memoryview


class RefusedError(Exception):
    """Why what came is not taken."""


class Nothing(msgspec.Struct, frozen=True, tag=True):
    """What a channel takes that is there to send only."""


class Codec:
    """Encodes any message, and decodes those of `types`, where there are any, of at most `limit_bytes` with all its arrays."""

    def __init__(self, types: Sequence[type[msgspec.Struct]], limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._arrays: list[Any] = []  # of the message in hand: those met so far when encoding, those not yet met when decoding
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._set_aside)
        self._decoder = msgspec.msgpack.Decoder(Union[tuple(types) or (Nothing,)], dec_hook=self._put_back)  # noqa: UP007 (a union of a tuple)

    def encode(self, message: msgspec.Struct) -> tuple[list[bytes | np.ndarray], int]:
        """The frames of a message, and their size in bytes.

        Raises ValueError when it is larger than a message may be, or an array is not of plain numbers.
        """
        self._arrays = []
        body = _PREFIX + self._encoder.encode(message)
        size_bytes = len(body) + sum(array.nbytes for array in self._arrays)
        if size_bytes > self._limit_bytes or len(self._arrays) > MAX_ARRAYS:
            raise ValueError(
                f"a {type(message).__name__} of {size_bytes} bytes and {len(self._arrays)} arrays is larger than a message may be "
                f"({self._limit_bytes} bytes, {MAX_ARRAYS} arrays)"
            )
        return [body, *self._arrays], size_bytes

    def decode(self, frames: Sequence[Buffer]) -> Any:
        """The message of these frames, its arrays read-only views of them. Raises RefusedError."""
        body = frames[0] if frames else b""
        if body[: len(_MAGIC)] != _MAGIC:
            raise RefusedError("it is not one of ours")
        if body[: len(_PREFIX)] != _PREFIX:
            raise RefusedError(f"this side speaks version {PROTOCOL} of the protocol, the other side another")
        if sum(map(len, frames)) > self._limit_bytes or len(frames) > 1 + MAX_ARRAYS:
            raise RefusedError(f"it is larger than {self._limit_bytes} bytes and {MAX_ARRAYS} arrays")
        self._arrays = list(frames[:0:-1])
        try:
            message = self._decoder.decode(memoryview(body)[len(_PREFIX) :])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RefusedError("it is malformed") from error
        if self._arrays:
            raise RefusedError("it is malformed")
        return message

    def _set_aside(self, value: Any) -> tuple[str, tuple[int, ...]]:
        if not isinstance(value, np.ndarray) or value.dtype.str not in _DTYPES:
            raise ValueError(f"a message holds plain data and arrays of {sorted(_DTYPES)}, not {getattr(value, 'dtype', type(value))}")
        self._arrays.append(np.ascontiguousarray(value))
        return value.dtype.str, value.shape

    def _put_back(self, type: type, value: Any) -> np.ndarray:
        code, shape = msgspec.convert(value, tuple[str, tuple[int, ...]])
        dtype = _DTYPES.get(code)
        if type is not np.ndarray or dtype is None or not self._arrays:
            raise ValueError("no array of numbers")
        frame = self._arrays.pop()
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(frame):
            raise ValueError("an array of another size")
        array = np.frombuffer(frame, dtype).reshape(shape)
        array.flags.writeable = False
        return array
