"""The broadcast of versions, simulated: what transport/broadcast.py does, by its own layouts and windows, on links and processors."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import simpy
from simulated.setup import Setup

from lamarckian.transport.broadcast import SMALL_WINDOW_BYTES, WINDOW_BYTES, WINDOW_S
from lamarckian.transport.layouts import parents


def after(env: simpy.Environment, delay_s: float, then: Callable[[], None]) -> None:
    """Calls `then` when so much time has passed."""
    env.timeout(delay_s).callbacks.append(lambda _: then())


class Queue:
    """One queue for equal servers, first come, first served: a link, or the cores that processes share.

    What is served is a piece of chunks: `head`, when its first chunk is there, and `tail`, when all are. A server hands each chunk on when
    it is done with it, so that a piece spends no more than the time of a chunk in addition, as single chunks would.
    """

    def __init__(self, servers: int = 1) -> None:
        self._free_s = [0.0] * servers

    def serve(self, head_s: float, tail_s: float, chunk_s: float, piece_s: float) -> tuple[float, float]:
        """When the first chunk is served, and when all are; `chunk_s` and `piece_s` are the times that they take."""
        head_s = max(head_s, self._free_s[0]) + chunk_s
        tail_s = max(head_s - chunk_s + piece_s, tail_s + chunk_s)
        heapq.heapreplace(self._free_s, tail_s)
        return head_s, tail_s


class Host:
    """A machine's place in the network: its link, out and in, and the processor of its relay, or of the root."""

    def __init__(self, setup: Setup, processor: Queue) -> None:
        self.out = Queue()
        self.into = Queue()
        self.processor = processor
        self._bytes_per_s = setup.link_bytes_per_s
        self._latency_s = setup.latency_s

    def send(self, to: Host, size_bytes: float, chunk_bytes: float, head_s: float, tail_s: float) -> tuple[float, float]:
        """Head and tail of a piece when it arrives, over this link and the other's, which takes in what comes as it comes.

        On the machine itself it is there at once.
        """
        if to is self:
            return head_s, tail_s
        chunk_s, piece_s = chunk_bytes / self._bytes_per_s, size_bytes / self._bytes_per_s
        head_s, tail_s = self.out.serve(head_s, tail_s, chunk_s, piece_s)
        head_s, tail_s = to.into.serve(head_s - chunk_s, tail_s - chunk_s, chunk_s, piece_s)
        return head_s + self._latency_s, tail_s + self._latency_s


@dataclass
class _Child:
    """version: on its way to it, or None. sent, taken: bytes of that. whole: the newest that it has whole. window: bytes.

    acknowledged: when it will have said that it took so many bytes. held_back: there is more for it than may be sent yet.
    awaited: somebody will look when it says so.
    """

    node: Node
    window: float
    version: int | None = None
    sent: int = 0
    taken: int = 0
    whole: int = 0
    acknowledged: deque[tuple[float, int]] = field(default_factory=deque)
    held_back: bool = False
    awaited: bool = False


class Node:
    """The root or a relay. All have version 0 at first. shown: called with the node and the version, when it has one whole."""

    def __init__(self, env: simpy.Environment, setup: Setup, host: Host, shown: Callable[[Node, int], None]) -> None:
        self.host = host
        self.whole = 0
        self._env = env
        self._shown = shown
        self._cut_through = setup.layout == "pipeline"
        self._size_bytes = setup.size_bytes
        self._chunk_bytes = setup.chunk_bytes
        self._piece_bytes = setup.piece_chunks * setup.chunk_bytes
        self._receive_s_per_byte = setup.slowness * setup.receive_s_per_byte
        self._hand_on_s_per_byte = setup.slowness * setup.hand_on_s_per_byte
        self._parent: tuple[Node, _Child] | None = None
        self._children: list[_Child] = []
        self._growing: int | None = None
        self._filled = 0
        self._tail_s = 0.0  # when what is growing is here, as far as it is on its way

    def adopt(self, nodes: list[Node], bytes_per_s: float) -> None:
        """Makes those its children, who share its link."""
        window = min(max(bytes_per_s / len(nodes) * WINDOW_S, SMALL_WINDOW_BYTES), WINDOW_BYTES)
        for node in nodes:
            child = _Child(node, max(window, 2 * self._piece_bytes))
            self._children.append(child)
            node._parent = (self, child)

    def publish(self, version: int) -> None:
        """The root has a newer one."""
        self.whole = version
        self._work(0, self._children, self._env.now)

    def _due(self, child: _Child) -> Iterator[int]:
        """The sizes of the pieces to send it now, of the version that it was begun, else of the newest."""
        now = self._env.now
        while child.acknowledged and child.acknowledged[0][0] <= now:
            child.taken = child.acknowledged.popleft()[1]
        if child.version is None or child.version <= child.whole:
            newest = self._growing if self._cut_through and self._growing is not None else self.whole
            child.version, child.sent, child.taken = newest if newest > child.whole else None, 0, 0
            child.acknowledged.clear()
        if child.version is None:
            return
        filled = self._filled if child.version == self._growing else self._size_bytes
        while child.sent < filled and child.sent - child.taken < child.window:
            size = min(self._piece_bytes, filled - child.sent)
            child.sent += size
            yield size
        child.held_back = child.sent < filled
        self._await(child)

    def _await(self, child: _Child) -> None:
        """Looks again when a child that is held back has taken more."""
        if child.held_back and child.acknowledged and not child.awaited:
            child.awaited = True
            after(self._env, child.acknowledged[0][0] - self._env.now, lambda: self._resume(child))

    def _resume(self, child: _Child) -> None:
        child.awaited = False
        self._work(0, [child], self._tail_s)

    def _work(self, received: int, children: list[_Child], tail_s: float) -> float:
        """The processor's work on so many bytes that come, and on what is due to the children; what it works on is all here at `tail_s`.

        Returns when it is done.
        """
        orders = [(child, size) for child in children for size in self._due(child)]
        if not orders and not received:
            return tail_s
        largest, handed_on = received, 0
        for _, size in orders:
            largest, handed_on = max(largest, size), handed_on + size
        work_s = received * self._receive_s_per_byte + handed_on * self._hand_on_s_per_byte
        first_s = work_s * min(1.0, self._chunk_bytes / largest)
        head_s, tail_s = self.host.processor.serve(self._env.now, tail_s, first_s, work_s)
        for child, size in orders:
            arrives_s, whole_s = self.host.send(child.node.host, size, min(size, self._chunk_bytes), head_s, tail_s)
            self._send(child, size, arrives_s, whole_s)
        return tail_s

    def _send(self, child: _Child, size: int, arrives_s: float, whole_s: float) -> None:
        version = child.version
        assert version is not None
        after(self._env, arrives_s - self._env.now, lambda: child.node._arrive(version, size, whole_s))

    def _arrive(self, version: int, size: int, tail_s: float) -> None:
        """The first chunk of a piece is here, and all of it will be at `tail_s`."""
        assert self._parent is not None
        if version != self._growing:
            self._growing, self._filled = version, 0
        self._filled += size
        self._tail_s = self._work(size, self._children if self._cut_through else [], tail_s)
        if self._filled == self._size_bytes:
            after(self._env, self._tail_s - self._env.now, self._finish)
        else:
            parent, child = self._parent
            child.acknowledged.append((self._tail_s, self._filled))
            parent._await(child)

    def _finish(self) -> None:
        """What was growing is here."""
        assert self._parent is not None and self._growing is not None
        self.whole, self._growing = self._growing, None
        self._shown(self, self.whole)
        self._work(0, self._children, self._env.now)
        parent, child = self._parent
        child.whole = self.whole
        parent._work(0, [child], max(self._env.now, parent._tail_s))


def build(env: simpy.Environment, setup: Setup, shown: Callable[[Node, int], None]) -> tuple[Node, list[Node]]:
    """The root, and the relay of each machine, laid out."""
    shared = None if setup.relay_cores is None else Queue(setup.relay_cores)
    hosts = [Host(setup, shared or Queue()) for _ in range(setup.machines + (not setup.root_inside))]
    root, *relays = (Node(env, setup, host, shown) for host in (hosts[:1] + hosts if setup.root_inside else hosts))
    named = {str(place): relay for place, relay in enumerate(relays)}
    adopted: dict[str | None, list[Node]] = {}
    for name, parent in parents(setup.layout, list(named), [], setup.size_bytes / setup.chunk_bytes).items():
        adopted.setdefault(parent, []).append(named[name])
    for parent, nodes in adopted.items():
        (root if parent is None else named[parent]).adopt(nodes, setup.link_bytes_per_s)
    return root, relays


def broadcast_s(setup: Setup) -> float:
    """How long until all machines have one version, nothing else being on its way."""
    env = simpy.Environment()
    times: list[float] = []
    root, _ = build(env, setup, lambda node, version: times.append(env.now))
    after(env, setup.look_s, lambda: root.publish(1))
    env.run()
    assert len(times) == setup.machines
    return max(times)
