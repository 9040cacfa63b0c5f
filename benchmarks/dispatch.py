"""Fragments from an actor through a dispatch to a memory pool over loopback, by how they are packed; each against fragments as they are.

The pool takes what comes and says so; it unpacks nothing. Two kinds of fragments, of 1 MiB: floats, as a small game's observations are,
and images that are mostly still.

    python benchmarks/dispatch.py [--runs 5]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec
import numpy as np
from figures import figure

from lamarckian.actor.dispatch import DispatchConfig, DispatchReport
from lamarckian.cluster.local import LocalCluster
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.parcels import Arrive, Parcel, Room, terms
from lamarckian.data.pool import Meta, PoolClient, create_block
from lamarckian.transport.channel import LOCAL, Inbox, batch, local_address, wait

LAYOUT = Layout(16, 16, {"inputs": Field(16, (4096,), np.dtype(np.uint8))})
SLOTS = 8
FRAGMENTS = 400
AHEAD_BYTES = 64 << 20
PATIENCE_S = 60.0


def content(kind: str) -> np.ndarray:
    random = np.random.default_rng(0)
    if kind == "floats":
        return random.standard_normal(LAYOUT.size_bytes // 4, np.float32).view(np.uint8)
    images = np.zeros((LAYOUT.size_bytes // 4096, 64, 64), np.uint8)
    images[:, 20:28, 20:28] = random.integers(0, 256, (len(images), 8, 8))
    return images.reshape(-1)


def produce(config: dict) -> None:
    own = LAYOUT.views(content(config["kind"]))
    client = PoolClient(config["fd"], LAYOUT, config["address"], "producer")
    while (claim := client.claim(PATIENCE_S)) is not None:
        np.copyto(claim.views["inputs"], own["inputs"])
        client.submit(claim.slot, Meta(0, 0, 256))


def megabytes_per_second(kind: str, packing: str, cluster: LocalCluster) -> tuple[float, float]:
    """Unpacked; and how many times smaller packing made them."""
    pool = Inbox((Arrive, Parcel), "tcp://127.0.0.1:*", terms(LOCAL, LAYOUT.size_bytes))
    station, block, address = Inbox((DispatchReport,), local_address()), create_block(LAYOUT, SLOTS), local_address()
    config = DispatchConfig(
        "machine", LAYOUT.plain(), block.fd, SLOTS, address, station.address, [pool.address], 256 << 20, lent=4, packing=packing
    )
    cluster.start("dispatch", "lamarckian.actor.dispatch:main", msgspec.to_builtins(config), [block.fd])
    cluster.start("producer", f"{Path(__file__).stem}:produce", {"kind": kind, "fd": block.fd, "address": address}, [block.fd])
    taken = packed_bytes = 0
    start, first = 0.0, FRAGMENTS // 10
    while taken < first + FRAGMENTS:
        wait([pool], PATIENCE_S)
        life = None
        for _, message in batch(pool):
            life = message.life
            if isinstance(message, Parcel) and message.number == taken:
                taken += 1
                packed_bytes += message.body.nbytes
                if taken == first:
                    start = time.perf_counter()
        if life is not None:
            pool.send("machine", Room(1, life, taken, taken * LAYOUT.size_bytes + AHEAD_BYTES))
    seconds = time.perf_counter() - start
    for process in ("producer", "dispatch"):
        cluster.stop(process)
    for closing in (pool, station, block):
        closing.close()
    return (taken - first) * LAYOUT.size_bytes / seconds / 1e6, taken * LAYOUT.size_bytes / packed_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with LocalCluster() as cluster:
        for kind in ("floats", "images"):
            pairs = [(megabytes_per_second(kind, "auto", cluster), megabytes_per_second(kind, "none", cluster)) for _ in range(runs)]
            packed, plain = zip(*pairs, strict=True)
            figure(f"dispatch_{kind}", [rate for rate, _ in packed], "MB/s", "not packed", [rate for rate, _ in plain])
            figure(f"dispatch_{kind}_packed", [ratio for _, ratio in packed], "times smaller")


if __name__ == "__main__":
    main()
