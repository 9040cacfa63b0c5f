"""ZeroMQ and shared memory against Ray's calls and object store: fragments to a consumer, and versions to receivers, on this machine.

Fragments: one or two producers make them from an array of their own; the consumer copies each to a batch of its own. Ours go through a
memory pool, or a channel over loopback; Ray's come back from calls of an actor, or lie in the object store and their references come back.
Each producer has as many on their way as the others.

Versions: from publication until every receiver has copied it to parameters of its own and the publisher knows. Ours go by a board that all
receivers watch, as on one machine, or from a root to a relay for each receiver, as over many; Ray's by `put`, and `get` in each receiver.

    python benchmarks/ray_objects.py [--runs 5] [--sizes 10000 1000000 30000000]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from figures import figure

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import MemoryPool, Meta, PoolClient
from lamarckian.transport.channel import Inbox, Outbox, Terms, local_address
from lamarckian.transport.relay import Relay
from lamarckian.transport.root import Root
from lamarckian.transport.versions import VersionBoard

HERE = Path(__file__).stem
UNDER_WAY = 4
"""Fragments of a producer that are made and not yet consumed."""
PATIENCE_S = 60.0
LOOK_S = 0.0005
"""How often a receiver looks at a board."""
OBJECT_STORE_BYTES = 1 << 30


class Fragment(msgspec.Struct, frozen=True, tag=True):
    """What a producer sends over a channel."""

    body: np.ndarray


class More(msgspec.Struct, frozen=True, tag=True):
    """Another one, please."""


class Has(msgspec.Struct, frozen=True, tag=True):
    """A receiver has copied this version; −1: it is there."""

    version: int


def layout(size_bytes: int) -> Layout:
    return Layout(1, size_bytes // 4, {"inputs": Field(1, (), np.dtype(np.float32))})


def terms(size_bytes: int) -> Terms:
    return Terms(message_bytes=size_bytes + (1 << 16), queue=4 * UNDER_WAY)


def made(size_bytes: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size_bytes // 4, np.float32)


def produce_to_pool(config: dict[str, Any]) -> None:
    own = made(config["size_bytes"])
    client = PoolClient(config["fd"], layout(config["size_bytes"]), config["address"], config["name"])
    while (claim := client.claim(PATIENCE_S)) is not None:
        np.copyto(claim.views["inputs"][0], own)
        client.submit(claim.slot, Meta(0, 0, own.size))


def produce_to_channel(config: dict[str, Any]) -> None:
    own = made(config["size_bytes"])
    outbox = Outbox((More,), config["address"], config["name"], terms(config["size_bytes"]))
    for _ in range(UNDER_WAY):
        outbox.send(Fragment(own))
    while outbox.receive(PATIENCE_S) is not None:
        outbox.send(Fragment(own))


def receive_from_board(config: dict[str, Any]) -> None:
    board, outbox, own, last = receiver(config)
    while True:
        version = board.take(own, last)
        if version is None:
            time.sleep(LOOK_S)
        else:
            last = version
            outbox.send(Has(last))


def receive_from_relay(config: dict[str, Any]) -> None:
    board, outbox, own, last = receiver(config)
    relay = Relay(board, config["root"], config["name"])
    while True:
        relay.advance(1.0)
        version = board.take(own, last)
        if version is not None:
            last = version
            outbox.send(Has(last))


def receiver(config: dict[str, Any]) -> tuple[VersionBoard, Outbox, np.ndarray, int]:
    """Its board, its way to tell the publisher, parameters of its own, and their version."""
    outbox = Outbox((Has,), config["address"], config["name"])
    outbox.send(Has(-1))
    n = config["parameters"]
    board = VersionBoard.create(n) if config["fd"] is None else VersionBoard.attach(config["fd"], n)
    return board, outbox, np.empty(n, np.float32), -1


@contextmanager
def processes(target: str, n: int, config: dict[str, Any], fds: list[int]) -> Iterator[None]:
    with LocalCluster() as cluster:
        for index in range(n):
            cluster.start(f"{target}-{index}", f"{HERE}:{target}", {**config, "name": f"{target}-{index}"}, fds)
        yield


def megabytes_per_s(size_bytes: int, consume: Callable[[], None]) -> float:
    count = max(20, min(2_000, 400_000_000 // size_bytes))
    for _ in range(count // 4):
        consume()
    start_s = time.perf_counter()
    for _ in range(count):
        consume()
    return count * size_bytes / (time.perf_counter() - start_s) / 1e6


def through_pool(size_bytes: int, producers: int) -> float:
    pool = MemoryPool.create(layout(size_bytes), (UNDER_WAY + 1) * producers, lent=UNDER_WAY)
    batch = np.empty(size_bytes // 4, np.float32)

    def consume() -> None:
        filled = pool.get(PATIENCE_S)
        assert filled is not None, "no fragment came"
        np.copyto(batch, filled.views["inputs"][0])
        pool.release(filled.slot)

    with processes("produce_to_pool", producers, {"size_bytes": size_bytes, "fd": pool.fd, "address": pool.address}, [pool.fd]):
        rate = megabytes_per_s(size_bytes, consume)
    pool.close()
    return rate


def through_channel(size_bytes: int, producers: int) -> float:
    inbox = Inbox((Fragment,), "tcp://127.0.0.1:*", terms(size_bytes))
    batch = np.empty(size_bytes // 4, np.float32)

    def consume() -> None:
        received = inbox.receive(PATIENCE_S)
        assert received is not None, "no fragment came"
        name, fragment = received
        np.copyto(batch, fragment.body)
        inbox.send(name, More())

    with processes("produce_to_channel", producers, {"size_bytes": size_bytes, "address": inbox.address}, []):
        rate = megabytes_per_s(size_bytes, consume)
    inbox.close()
    return rate


def from_ray(ray: Any, size_bytes: int, producers: int, by_reference: bool) -> float:
    class Producer:
        def __init__(self) -> None:
            self.own = made(size_bytes)

        def make(self) -> np.ndarray:
            return self.own

        def put(self) -> list[Any]:
            return [ray.put(self.own)]

    actors = [ray.remote(Producer).remote() for _ in range(producers)]
    batch = np.empty(size_bytes // 4, np.float32)

    def call(actor: Any) -> Any:
        return (actor.put if by_reference else actor.make).remote()

    under_way = {call(actor): actor for actor in actors for _ in range(UNDER_WAY)}

    def consume() -> None:
        (done,), _ = ray.wait(list(under_way), timeout=PATIENCE_S)
        came = ray.get(done)
        np.copyto(batch, ray.get(came[0]) if by_reference else came)
        actor = under_way.pop(done)
        del done, came
        under_way[call(actor)] = actor

    rate = megabytes_per_s(size_bytes, consume)
    for actor in actors:
        ray.kill(actor)
    return rate


def milliseconds(publish: Callable[[int], None]) -> float:
    """From one publication until everybody has it; the median of many."""
    times = []
    for version in range(1, 23):
        start_s = time.perf_counter()
        publish(version)
        times.append((time.perf_counter() - start_s) * 1e3)
        time.sleep(0.02)
    return median(times[2:])


def published(size_bytes: int, receivers: int, relayed: bool) -> float:
    """Milliseconds by our board, or by root and relays."""
    flat = made(size_bytes)
    board = VersionBoard.create(flat.size)
    inbox = Inbox((Has,), local_address())
    root = Root(board) if relayed else None

    def come(version: int) -> None:
        deadline, missing = time.monotonic() + PATIENCE_S, receivers
        while missing:
            if root is not None:
                root.advance(LOOK_S)
            received = inbox.receive(LOOK_S if root is None else 0.0)
            missing -= received is not None and received[1].version == version
            assert time.monotonic() < deadline, "a version did not come everywhere"

    def publish(version: int) -> None:
        board.publish(version, flat)
        come(version)

    config = {"address": inbox.address, "parameters": flat.size, "root": root and root.address, "fd": None if relayed else board.fd}
    target, fds = ("receive_from_relay", []) if relayed else ("receive_from_board", [board.fd])
    with processes(target, receivers, config, fds):
        come(-1)
        publish(0)
        elapsed = milliseconds(publish)
    if root is not None:
        root.close()
    inbox.close()
    board.close()
    return elapsed


def put_and_got(ray: Any, size_bytes: int, receivers: int) -> float:
    """Milliseconds by Ray's object store."""
    flat = made(size_bytes)

    class Receiver:
        def __init__(self) -> None:
            self.own = np.empty(size_bytes // 4, np.float32)

        def take(self, reference: list[Any]) -> None:
            np.copyto(self.own, ray.get(reference[0]))

    actors = [ray.remote(Receiver).remote() for _ in range(receivers)]

    def publish(version: int) -> None:
        reference = ray.put(flat)
        ray.get([actor.take.remote([reference]) for actor in actors], timeout=PATIENCE_S)

    publish(0)
    elapsed = milliseconds(publish)
    for actor in actors:
        ray.kill(actor)
    return elapsed


def compare(name: str, unit: str, ours: dict[str, Callable[[], float]], theirs: dict[str, Callable[[], float]], runs: int) -> None:
    """Measures all in turn, and prints each of ours beside each of theirs."""
    ways = ours | theirs
    values: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, measure in ways.items():
            values[way].append(measure())
    for mine in ours:
        for peer in theirs:
            figure(f"{name}.{mine}", values[mine], unit, peer, values[peer], digits=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 30_000_000], help="bytes")
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--receivers", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    import ray

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=OBJECT_STORE_BYTES)
    try:
        for size in arguments.sizes:
            for n in arguments.producers:
                ours = {"pool": partial(through_pool, size, n), "channel": partial(through_channel, size, n)}
                theirs = {"Ray calls": partial(from_ray, ray, size, n, False), "Ray put": partial(from_ray, ray, size, n, True)}
                compare(f"fragments.{size}.{n}", "MB/s", ours, theirs, arguments.runs)
            for n in arguments.receivers:
                ours = {"board": partial(published, size, n, False), "relays": partial(published, size, n, True)}
                compare(f"versions.{size}.{n}", "ms", ours, {"Ray put and get": partial(put_and_got, ray, size, n)}, arguments.runs)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
