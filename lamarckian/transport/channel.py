"""Typed messages between the processes of one machine.

A message is a tagged msgspec Struct; on the wire it is four bytes that name the protocol and its version, then msgpack.
What does not decode to one of the types a channel was made for is refused and counted, whoever sent it.
A channel belongs to one thread at a time.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import msgspec
import zmq

from lamarckian.errors import MisuseError

PROTOCOL = 1
LIMIT_BYTES = 16 << 20
"""The size of a message. Arrays do not travel by messages but lie in shared memory."""

_MAGIC = b"LMK"
_PREFIX = _MAGIC + bytes([PROTOCOL])
_LOG = logging.getLogger(__name__)


class ChannelStatistics(msgspec.Struct, frozen=True):
    """What went through a channel since it was opened.

    refused: received, but not a message of this channel: foreign, malformed, too large, or of another protocol version.
    dropped: not sent, because the peer is gone or its queue is full.
    """

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    refused: int = 0
    dropped: int = 0


class _Channel:
    def __init__(self, kind: int, types: Sequence[type[msgspec.Struct]], address: str) -> None:
        if not address.startswith(("ipc://", "tcp://127.0.0.1:")):
            raise MisuseError(f"a channel stays on this machine (ipc:// or tcp://127.0.0.1:), it cannot use {address!r}")
        self.address = address
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Union[tuple(types)])  # noqa: UP007 (a union of a tuple)
        self._counts = dict.fromkeys(ChannelStatistics.__struct_fields__, 0)
        self._reasons: set[str] = set()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4 * LIMIT_BYTES)  # beyond it the peer is cut off before memory is spent

    def statistics(self) -> ChannelStatistics:
        """What went through so far."""
        return ChannelStatistics(**self._counts)

    def close(self) -> None:
        """Closes at once: what is still queued is lost. Harmless when repeated."""
        self._socket.close()

    def _send(self, routing: list[bytes], message: msgspec.Struct) -> bool:
        body = _PREFIX + self._encoder.encode(message)
        if len(body) > LIMIT_BYTES:
            raise ValueError(f"a {type(message).__name__} of {len(body)} bytes is larger than a message may be ({LIMIT_BYTES} bytes)")
        try:
            self._socket.send_multipart([*routing, body], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self._counts["dropped"] += 1
            return False
        self._counts["sent"] += 1
        self._counts["sent_bytes"] += len(body)
        return True

    def _receive(self, routing: int, timeout_s: float) -> tuple[list[bytes], Any] | None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or not self._socket.poll(max(1, round(remaining_s * 1000))):
                    return None
                continue
            self._counts["received_bytes"] += sum(map(len, frames[routing:]))
            try:
                if routing and frames[0].startswith(b"\0"):  # what ZeroMQ calls the nameless, and a peer whose successor took its name
                    raise _RefusedError("its sender has no name")
                message = self._decode(frames[routing:])
            except _RefusedError as refusal:
                self._refuse(str(refusal))
                if time.monotonic() >= deadline:  # a stream of garbage must not keep the caller for ever
                    return None
            else:
                self._counts["received"] += 1
                return frames[:routing], message

    def _decode(self, frames: list[bytes]) -> Any:
        body = frames[0] if len(frames) == 1 else b""
        if not body.startswith(_MAGIC):
            raise _RefusedError("it is not one of ours")
        if not body.startswith(_PREFIX):
            raise _RefusedError(f"this side speaks version {PROTOCOL} of the protocol, the other side another")
        if len(body) > LIMIT_BYTES:
            raise _RefusedError(f"it is larger than {LIMIT_BYTES} bytes")
        try:
            return self._decoder.decode(memoryview(body)[len(_PREFIX) :])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise _RefusedError("it is malformed") from error

    def _refuse(self, reason: str) -> None:
        self._counts["refused"] += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            _LOG.warning("a message at %s is refused: %s (said once)", self.address, reason)


class _RefusedError(Exception):
    """Why a message is refused."""


class Inbox(_Channel):
    """Listens at `address` for messages of `types` from any number of peers. Raises MisuseError when it cannot."""

    def __init__(self, types: Sequence[type[msgspec.Struct]], address: str) -> None:
        super().__init__(zmq.ROUTER, types, address)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so when a peer is gone
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a restarted peer takes its name over
        if address.startswith("ipc://@"):
            self._socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())  # abstract addresses have no file permissions
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise MisuseError(f"cannot listen at {address}: {error.strerror}") from error

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next message and the name of its sender; None when none comes within `timeout_s`."""
        received = self._receive(1, timeout_s)
        return received and (received[0][0].decode("utf-8", "surrogateescape"), received[1])

    def send(self, peer: str, message: msgspec.Struct) -> bool:
        """Queues a message to a peer that has sent one before; False when the peer is gone or its queue is full."""
        return self._send([peer.encode("utf-8", "surrogateescape")], message)


class Outbox(_Channel):
    """Connects to the inbox at `address`, which need not be there yet, under a `name` that no other peer has."""

    def __init__(self, types: Sequence[type[msgspec.Struct]], address: str, name: str) -> None:
        super().__init__(zmq.DEALER, types, address)
        self._socket.setsockopt(zmq.IDENTITY, name.encode())
        self._socket.connect(address)

    def receive(self, timeout_s: float) -> Any | None:
        """The next message; None when none comes within `timeout_s`."""
        received = self._receive(0, timeout_s)
        return received and received[1]

    def send(self, message: msgspec.Struct) -> bool:
        """Queues a message; False when the queue is full."""
        return self._send([], message)


def local_address() -> str:
    """An address on this machine that nobody else has. On Linux it leaves no file, however its owner dies."""
    name = f"lamarckian-{os.getpid()}-{secrets.token_hex(8)}"
    return f"ipc://@{name}" if sys.platform == "linux" else f"ipc://{Path(tempfile.gettempdir()) / name}"
