"""Fragments from one process to another: through the memory pool, through a pool server as from another machine, and through a ZeroMQ
socket to compare with.

Each way the producer writes a fragment from arrays of its own, and the consumer copies it to a batch of its own.

    python benchmarks/pool.py [--runs 5]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zmq
from figures import figure
from processes import free_port

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.data.pool import MemoryPool, Meta, PoolClient, Source
from lamarckian.data.reader import SERVER, PoolReader
from lamarckian.data.server import PoolSettings
from lamarckian.transport.channel import LOCAL, Outbox, local_address

ROWS = {"small": 16, "large": 1024}  # 64 KiB and 4 MiB a fragment
FRAGMENTS = {"small": 4000, "large": 400}
POOL_BYTES = 64 << 20
PATIENCE_S = 60.0


def layout(size: str) -> Layout:
    return Layout(ROWS[size], 16, {"inputs": Field(ROWS[size], (64,), np.dtype(np.float32))})


def produce_to_pool(config: dict) -> None:
    shape = layout(config["size"])
    own = shape.empty()
    client = PoolClient(config["fd"], shape, config["address"], "producer")
    while (claim := client.claim(PATIENCE_S)) is not None:
        for name, view in claim.views.items():
            np.copyto(view, own[name])
        client.submit(claim.slot, Meta(0, 0, ROWS[config["size"]] * 16))


def produce_to_socket(config: dict) -> None:
    shape = layout(config["size"])
    own = shape.empty()
    socket = zmq.Context.instance().socket(zmq.PUSH)
    socket.sndhwm = 2
    socket.connect(config["address"])
    while True:
        block = np.empty(shape.size_bytes, np.uint8)
        for name, view in shape.views(block).items():
            np.copyto(view, own[name])
        socket.send(block, copy=False)


def produce_to_server(config: dict) -> None:
    shape = layout(config["size"])
    own = shape.empty()
    outbox = Outbox((Room,), config["address"], "producer", terms(LOCAL, shape.size_bytes))
    meta = Meta(0, 0, ROWS[config["size"]] * 16)
    room_bytes = 0
    for number in itertools.count():
        block = np.empty(shape.size_bytes, np.uint8)
        for name, view in shape.views(block).items():
            np.copyto(view, own[name])
        parcel = Parcel(1, number, "actor", meta, 0.0, shape.steps, shape.columns, shape.size_bytes, "none", block)
        while (number + 1) * shape.size_bytes > room_bytes or not outbox.send(parcel):
            if (room := outbox.receive(0.01)) is None:
                outbox.send(Arrive(1))
            else:
                room_bytes = room.bytes


def consumer(source: Source, size: str) -> Callable[[], None]:
    """Copies a fragment of the source to a batch."""
    batch = layout(size).empty()

    def consume() -> None:
        filled = source.get(PATIENCE_S)
        assert filled is not None
        for name, view in filled.views.items():
            np.copyto(batch[name], view)
        source.release(filled.slot)

    return consume


def through_pool(size: str, cluster: LocalCluster) -> float:
    """GB/s."""
    pool = MemoryPool.create(layout(size), 8, lent=4)
    cluster.start("producer", f"{Path(__file__).stem}:produce_to_pool", {"size": size, "fd": pool.fd, "address": pool.address}, [pool.fd])
    rate = gigabytes_per_second(size, consumer(pool, size))
    cluster.stop("producer")
    pool.close()
    return rate


def through_server(size: str, cluster: LocalCluster) -> float:
    """GB/s."""
    settings = PoolSettings("127.0.0.1", free_port(), POOL_BYTES)
    reader = PoolReader(layout(size), settings)
    cluster.start("pool", SERVER, reader.config, reader.fds)
    cluster.start("producer", f"{Path(__file__).stem}:produce_to_server", {"size": size, "address": reader.address})
    rate = gigabytes_per_second(size, consumer(reader, size))
    for name in ("producer", "pool"):
        cluster.stop(name)
    reader.close()
    return rate


def through_socket(size: str, cluster: LocalCluster) -> float:
    """GB/s."""
    shape = layout(size)
    batch = shape.empty()
    address = local_address()
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.rcvhwm = 2
        socket.bind(address)
        cluster.start("producer", f"{Path(__file__).stem}:produce_to_socket", {"size": size, "address": address})

        def consume() -> None:
            assert socket.poll(PATIENCE_S * 1000)
            for name, view in shape.views(socket.recv(copy=False).buffer).items():
                np.copyto(batch[name], view)

        rate = gigabytes_per_second(size, consume)
        cluster.stop("producer")
    return rate


def gigabytes_per_second(size: str, consume: Callable[[], None]) -> float:
    for _ in range(20):
        consume()
    start = time.perf_counter()
    for _ in range(FRAGMENTS[size]):
        consume()
    return FRAGMENTS[size] * layout(size).size_bytes / (time.perf_counter() - start) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with LocalCluster() as cluster:
        for size in ROWS:
            runs_of = [[way(size, cluster) for way in (through_pool, through_server, through_socket)] for _ in range(runs)]
            ours, served, plain = (list(way) for way in zip(*runs_of, strict=True))
            kibibytes = layout(size).size_bytes >> 10
            figure(f"pool_{kibibytes}_KiB", ours, "GB/s", "ZeroMQ PUSH/PULL over ipc", plain, digits=4)
            figure(f"pool_server_{kibibytes}_KiB", served, "GB/s", "ZeroMQ PUSH/PULL over ipc", plain, digits=4)


if __name__ == "__main__":
    main()
