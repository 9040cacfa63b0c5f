"""Typed messages between processes, of one machine or, where that is wanted, of several.

What does not decode to one of the types a channel was made for is refused and counted, whoever sent it; what a message is on the
wire, `codec` says. A channel belongs to one thread at a time.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zmq

from lamarckian.errors import MisuseError
from lamarckian.transport import gate
from lamarckian.transport.codec import MAX_ARRAYS, Buffer, Codec, RefusedError
from lamarckian.transport.keys import Keys

LIMIT_BYTES = 16 << 20
"""The size of a message, unless a channel says otherwise. On one machine, large arrays lie in shared memory instead."""

BATCH = 64
PEERS = 4096
"""How many an inbox remembers to answer."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """What a channel carries, and how far.

    message_bytes: the size of a message with its arrays. queue: messages that may wait, in each direction and for each peer.
    network: whether other machines may be reached, and reach it. keys: whoever does not hold them is not spoken to.
    """

    message_bytes: int = LIMIT_BYTES
    queue: int = 1000
    network: bool = False
    keys: Keys | None = None


LOCAL = Terms()


def open_terms(network: bool, keys: str | None) -> Terms:
    """Terms from plain settings; `keys` names a file. Raises MisuseError where that is no file of keys."""
    return Terms(network=network, keys=None if keys is None else Keys.read(Path(keys)))


_TCP = {
    zmq.HANDSHAKE_IVL: 5000,  # whoever connects and says nothing is cut off
    zmq.CONNECT_TIMEOUT: 2000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1000,
    zmq.TCP_MAXRT: 5000,
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 2,  # s
    zmq.TCP_KEEPALIVE_INTVL: 1,  # s
    zmq.TCP_KEEPALIVE_CNT: 3,
}
"""Milliseconds, but for keepalives. A link that is down is told from one that is idle by the system, within 5 s, and connected anew.

ZeroMQ's own heartbeats would do that, too, but end the process (libzmq 4.3.5: "Assertion failed: !_io_error") when a peer leaves that has
sent more than the queue holds.
"""


class ChannelStatistics(msgspec.Struct, frozen=True):
    """What went through a channel since it was opened.

    refused: received, but not a message of this channel: foreign, malformed, too large, or of another protocol version; and connections
        that were turned away. broken: connections that ended before they were one.
    dropped: not sent, because the peer is gone or its queue is full.
    queued: messages that have come and wait to be taken, of the batch last read.
    """

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    refused: int = 0
    broken: int = 0
    dropped: int = 0
    queued: int = 0


class _Channel:
    routing = 0
    """Frames before a message, which say whose it is."""

    def __init__(self, kind: int, types: Sequence[type[msgspec.Struct]], address: str, terms: Terms) -> None:
        if not address.startswith(("ipc://", "tcp://")) or not (terms.network or is_local(address)):
            places = "ipc://NAME or tcp://HOST:PORT" if terms.network else "ipc:// or tcp://127.0.0.1:"
            stays = "is" if terms.network else "stays on this machine"
            raise MisuseError(f"a channel {stays} ({places}), it cannot use {address!r}")
        self.address = address
        self._codec = Codec(types, terms.message_bytes)
        self._counts = dict.fromkeys(ChannelStatistics.__struct_fields__, 0)
        self._reasons: set[str] = set()
        self._visitors: gate.Visitors | None = None
        self._waiting: deque[tuple[list[bytes], Any]] = deque()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4 * terms.message_bytes)  # beyond it the peer is cut off before memory is spent
        self._socket.setsockopt(zmq.SNDHWM, terms.queue)
        self._socket.setsockopt(zmq.RCVHWM, terms.queue)
        if address.startswith("tcp://"):
            for option, milliseconds in _TCP.items():
                self._socket.setsockopt(option, milliseconds)

    def statistics(self) -> ChannelStatistics:
        """What went through so far."""
        counts = {**self._counts, "queued": len(self._waiting)}
        if self._visitors is not None:
            counts["refused"] += self._visitors.refused
            counts["broken"] = self._visitors.broken
        return ChannelStatistics(**counts)

    def close(self) -> None:
        """Closes at once: what is still queued is lost. Harmless when repeated."""
        self._socket.close()
        self._waiting.clear()

    def _send(self, routing: list[Any], message: msgspec.Struct) -> bool:
        frames, size_bytes = self._codec.encode(message)
        try:
            self._socket.send_multipart(routing + frames, zmq.DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self._counts["dropped"] += 1
            return False
        self._counts["sent"] += 1
        self._counts["sent_bytes"] += size_bytes
        return True

    def _receive(self, timeout_s: float) -> tuple[list[bytes], Any] | None:
        deadline = time.monotonic() + timeout_s
        while not self._waiting:
            drained = self._read()
            remaining_s = deadline - time.monotonic()
            if self._waiting:
                break
            if remaining_s <= 0:  # a stream of garbage must not keep the caller for ever
                return None
            if drained and not self._socket.poll(max(1, round(remaining_s * 1000))):
                return None
        return self._waiting.popleft()

    def _read(self) -> bool:
        """Reads messages that have come, a batch at most. Whether that was all."""
        for _ in range(BATCH):
            if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:  # ten times cheaper than to receive in vain
                return True
            routing, frames = self._frames()
            self._counts["received_bytes"] += sum(map(len, frames))
            try:
                _check_names(routing)
                message = self._codec.decode(frames)
            except RefusedError as refusal:
                self._refuse(str(refusal))
            else:
                self._counts["received"] += 1
                self._waiting.append((routing, message))
        return False

    def _frames(self) -> tuple[list[bytes], list[Buffer]]:
        """The frames of the next message, which is there: those of arrays are not copied."""
        parts = [self._socket.recv(copy=False)]
        while parts[-1].more:
            part = self._socket.recv(copy=False)
            if len(parts) <= self.routing + 1 + MAX_ARRAYS:  # one too many, and it is refused
                parts.append(part)
            else:
                parts[-1] = part
        frames: list[Buffer] = [part.bytes if place == 0 else part.buffer for place, part in enumerate(parts[self.routing :])]
        return [part.bytes for part in parts[: self.routing]], frames

    def _refuse(self, reason: str) -> None:
        self._counts["refused"] += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            _LOG.warning("a message at %s is refused: %s (said once)", self.address, reason)


def _check_names(routing: Sequence[bytes]) -> None:
    for identity in routing:
        if identity.startswith(b"\0") or not _is_text(_name(identity)):  # so ZeroMQ calls the nameless
            raise RefusedError("its sender has no name")


def _name(identity: bytes) -> bytes:
    """The name in a peer's identity; what follows is random, so that nobody can take the connection over who only knows the name."""
    return identity.partition(b"\0")[0]


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


class Inbox(_Channel):
    """Listens at `address` for messages of `types` from any number of peers. Raises MisuseError when it cannot.

    With tcp://HOST:* the system chooses a port; `address` then says which.
    """

    routing = 1

    def __init__(self, types: Sequence[type[msgspec.Struct]], address: str, terms: Terms = LOCAL) -> None:
        super().__init__(zmq.ROUTER, types, address, terms)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so when a peer is gone
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that connects anew is the same one
        self._identities: OrderedDict[str, bytes] = OrderedDict()  # of those heard of late, who is meant by a name
        if address.startswith("ipc://@"):
            self._socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())  # abstract addresses have no file permissions
        if terms.keys is not None:
            terms.keys.guard(self._socket)
        if address.startswith("tcp://"):
            self._visitors = gate.watch(self._socket)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise MisuseError(f"cannot listen at {address}: {error.strerror}") from error
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT) if address.endswith(":*") else address
        if self._visitors is not None:
            self._visitors.address = self.address
        if terms.network and terms.keys is None and not is_local(address):
            _LOG.info("%s is open to whoever can reach it; `lamarckian keys` makes a key that closes it", self.address)

    def receive(self, timeout_s: float) -> tuple[str, Any] | None:
        """The next message and the name of its sender; None when none comes within `timeout_s`."""
        received = self._receive(timeout_s)
        if received is None:
            return None
        (identity,), message = received
        name = _name(identity).decode()
        self._identities[name] = identity
        self._identities.move_to_end(name)
        if len(self._identities) > PEERS:
            self._identities.popitem(last=False)
        return name, message

    def send(self, peer: str, message: msgspec.Struct) -> bool:
        """Queues a message to whoever spoke last by that name; False when the peer is gone or its queue is full."""
        return self._send([self._identities.get(peer, peer.encode())], message)


class Outbox(_Channel):
    """Connects to the inbox at `address`, which need not be there yet, under a `name` that no other peer has.

    Raises MisuseError for an address that is none. One that is started anew may have the name of the one before.
    """

    def __init__(self, types: Sequence[type[msgspec.Struct]], address: str, name: str, terms: Terms = LOCAL) -> None:
        super().__init__(zmq.DEALER, types, address, terms)
        self._socket.setsockopt(zmq.IDENTITY, name.encode() + b"\0" + secrets.token_bytes(8))
        if terms.keys is not None:
            terms.keys.present(self._socket)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise MisuseError(f"cannot connect to {address}: {error.strerror}") from error

    def receive(self, timeout_s: float) -> Any | None:
        """The next message; None when none comes within `timeout_s`."""
        received = self._receive(timeout_s)
        return received and received[1]

    def send(self, message: msgspec.Struct) -> bool:
        """Queues a message; False when the queue is full."""
        return self._send([], message)


def wait(channels: Sequence[Inbox | Outbox], timeout_s: float) -> None:
    """Returns when one of the channels has something to receive, or `timeout_s` is over."""
    if not any(channel._waiting for channel in channels):
        zmq.zmq_poll([(channel._socket, zmq.POLLIN) for channel in channels], max(0, round(timeout_s * 1000)))


def batch(channel: Inbox | Outbox) -> Iterator[Any]:
    """What a channel has to receive now, but no more than others can wait for."""
    for _ in range(BATCH):
        if (received := channel.receive(0.0)) is None:
            return
        yield received


def host_port(address: str) -> tuple[str, int]:
    """The parts of tcp://HOST:PORT."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def is_local(address: str) -> bool:
    """Whether an address is reached from its own machine only."""
    return address.startswith(("ipc://", "tcp://127.0.0.1:"))


def local_address() -> str:
    """An address on this machine that nobody else has. On Linux it leaves no file, however its owner dies."""
    name = f"lamarckian-{os.getpid()}-{secrets.token_hex(8)}"
    return f"ipc://@{name}" if sys.platform == "linux" else f"ipc://{Path(tempfile.gettempdir()) / name}"
