"""Who may connect, and who was turned away before a message of theirs was heard.

ZeroMQ asks a handler in the process whether the key of a stranger is welcome (ZAP, https://rfc.zeromq.org/spec/27), and tells monitors of
handshakes that failed. Neither may wait until the owner of a channel has time: ZeroMQ's own thread would wait with them.
So both are served by one thread, whatever the number of channels.
"""

from __future__ import annotations

import logging
import queue
import threading

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

_LOG = logging.getLogger(__name__)
_POLL_MS = 100
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_LOCK = threading.Lock()
_gates: dict[int, Gate] = {}


class Visitors:
    """What the gate saw at one socket.

    refused: connections turned away, for want of the key or of ZeroMQ's own protocol. broken: those that ended, for whatever reason,
    before it was known what they were to be.
    """

    def __init__(self) -> None:
        self.address = ""
        self.refused = 0
        self.broken = 0


def watch(socket: zmq.Socket[bytes]) -> Visitors:
    """Counts who is turned away at a socket, for as long as it is open; admits to it whom its ZAP domain, a public key, names."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with _LOCK:
        if id(context) not in _gates:
            _gates[id(context)] = Gate(context)
    return _gates[id(context)].watch(socket)


class Gate:
    """The thread that serves one ZeroMQ context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._coming: queue.SimpleQueue[tuple[zmq.Socket[bytes], Visitors]] = queue.SimpleQueue()
        self._handler = context.socket(zmq.REP)
        self._handler.linger = 0
        self._handler.bind("inproc://zeromq.zap.01")
        threading.Thread(target=self._serve, name="gate", daemon=True).start()

    def watch(self, socket: zmq.Socket[bytes]) -> Visitors:
        """As the function of this name."""
        visitors = Visitors()
        place = f"inproc://gate-{id(visitors)}"
        socket.monitor(place, _FAILED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.linger = 0
        monitor.connect(place)
        self._coming.put((monitor, visitors))
        return visitors

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._handler, zmq.POLLIN)
        monitors: dict[zmq.Socket[bytes], Visitors] = {}
        while True:
            ready = dict(poller.poll(_POLL_MS))
            if self._handler in ready:
                self._handler.send_multipart(_answer(self._handler.recv_multipart()))
            for monitor, visitors in list(monitors.items()):
                if monitor in ready and not _count(monitor, visitors):
                    poller.unregister(monitor)
                    del monitors[monitor]
                    monitor.close()
            while not self._coming.empty():
                monitor, visitors = self._coming.get()
                monitors[monitor] = visitors
                poller.register(monitor, zmq.POLLIN)


def _answer(request: list[bytes]) -> list[bytes]:
    version, number, domain, _, _, mechanism, *credentials = request
    welcome = mechanism == b"CURVE" and len(credentials) == 1 and z85.encode(credentials[0]) == domain
    return [version, number, *((b"200", b"welcome", b"", b"") if welcome else (b"400", b"another key", b"", b""))]


def _count(monitor: zmq.Socket[bytes], visitors: Visitors) -> bool:
    """Whether the socket is still there."""
    event = recv_monitor_message(monitor)["event"]
    if event == zmq.EVENT_MONITOR_STOPPED:
        return False
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        visitors.broken += 1
        return True
    visitors.refused += 1
    if visitors.refused == 1:
        _LOG.warning("a connection to %s is refused: its key or its protocol is another (said once)", visitors.address)
    return True
