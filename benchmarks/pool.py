"""Fragments from one process to another: through the memory pool, and through a ZeroMQ socket to compare with.

Either way the producer writes a fragment from arrays of its own, and the consumer copies it to a batch of its own.
And a version of a million parameters: published, compared with a plain copy of as many.

    python benchmarks/pool.py [--runs 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zmq
from figures import figure

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import MemoryPool, Meta, PoolClient
from lamarckian.transport.channel import local_address
from lamarckian.transport.versions import VersionBoard

ROWS = {"small": 16, "large": 1024}  # 64 KiB and 4 MiB a fragment
FRAGMENTS = {"small": 4000, "large": 400}
PATIENCE_S = 60.0
PARAMETERS = 1_000_000


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
        block = bytearray(shape.size_bytes)
        for name, view in shape.views(block).items():
            np.copyto(view, own[name])
        socket.send(block, copy=False)


def through_pool(size: str, cluster: LocalCluster) -> float:
    """GB/s."""
    shape = layout(size)
    batch = shape.empty()
    pool = MemoryPool.create(shape, 8, lent=4)
    cluster.start("producer", f"{Path(__file__).stem}:produce_to_pool", {"size": size, "fd": pool.fd, "address": pool.address}, [pool.fd])

    def consume() -> None:
        filled = pool.get(PATIENCE_S)
        assert filled is not None
        for name, view in filled.views.items():
            np.copyto(batch[name], view)
        pool.release(filled.slot)

    rate = gigabytes_per_second(size, consume)
    cluster.stop("producer")
    pool.close()
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


def milliseconds(work: Callable[[int], None], repeats: int = 50) -> float:
    start = time.perf_counter()
    for number in range(repeats):
        work(number)
    return (time.perf_counter() - start) / repeats * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with LocalCluster() as cluster:
        for size in ROWS:
            pairs = [(through_pool(size, cluster), through_socket(size, cluster)) for _ in range(runs)]
            kibibytes = layout(size).size_bytes >> 10
            ours, sockets = (list(side) for side in zip(*pairs, strict=True))
            figure(f"pool_{kibibytes}_KiB", ours, "GB/s", "ZeroMQ PUSH/PULL over ipc", sockets, digits=4)
    flat, into = np.ones(PARAMETERS, np.float32), np.zeros(PARAMETERS, np.float32)
    published, copied = [], []
    for _ in range(runs):
        board = VersionBoard.create(PARAMETERS)
        for version in range(2):
            board.publish(version, flat)
        published.append(milliseconds(lambda number, board=board: board.publish(number + 2, flat)))
        copied.append(milliseconds(lambda _: np.copyto(into, flat)))
        board.close()
    figure("publish_1M_parameters", published, "ms", "numpy copy", copied, digits=4)


if __name__ == "__main__":
    main()
