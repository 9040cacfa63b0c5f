"""How long until all of n hosts have a version of 4 MB, each behind a link of 100 Mbit/s: three layouts, against size / rate.

The hosts are network namespaces of this machine (`lab.py`), each with a process of its own, and their clock is one. The learner's
host is one more. The relays stay while roots come and go.

    python benchmarks/broadcast.py [--hosts 4 16 64] [--layouts flat tree pipeline] [--runs 5] [--chunk-kib 64] [--rate-mbit 100]
        [--wire float32]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import numpy as np
from figures import figure
from lab import Host, Lab, missing

from lamarckian.transport.broadcast import Wire
from lamarckian.transport.channel import Terms
from lamarckian.transport.layouts import Layout
from lamarckian.transport.relay import Relay
from lamarckian.transport.root import CHUNK_BYTES, Root
from lamarckian.transport.versions import VersionBoard

PARAMETERS = 1_000_000
PORT = 7000
NETWORK = Terms(network=True)
PATIENCE_S = 600.0
SETTLE_S = 1.0


def learner(host: str, layout: Layout, wire: Wire, chunk_bytes: int, first: int) -> None:
    """A root whose board gets a version for each line that comes, once so many relays as it says are there; answers when that was."""
    board = VersionBoard.create(PARAMETERS)
    flat = np.random.default_rng(0).standard_normal(PARAMETERS, np.float32)
    root = Root(board, host, PORT, layout, wire, chunk_bytes, NETWORK)

    def publish() -> None:
        for version, line in enumerate(sys.stdin, first):
            while len(root.statistics().relays) < int(line):
                time.sleep(0.1)
            time.sleep(SETTLE_S)
            print(time.monotonic(), flush=True)
            board.publish(version, flat)

    threading.Thread(target=publish, daemon=True).start()
    while True:
        root.advance(1.0)


def relay(host: str, root: str) -> None:
    """A relay that says when it has a version."""
    board = VersionBoard.create(PARAMETERS)
    follower = Relay(board, root, host, host, NETWORK)
    shown = -1
    while True:
        if (version := follower.advance(1.0)) > shown:
            shown = version
            print(version, time.monotonic(), flush=True)


class Follower:
    """A relay on a host, and what it said."""

    def __init__(self, host: Host, root: str) -> None:
        self._process = _start(host, "relay", host.address, root)
        self.times: dict[int, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            version, when = line.split()
            self.times[int(version)] = float(when)


@contextmanager
def rooted(host: Host, layout: str, wire: str, chunk_bytes: int, first: int) -> Iterator[subprocess.Popen[str]]:
    process = _start(host, "learner", host.address, layout, wire, str(chunk_bytes), str(first), stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _start(host: Host, *arguments: str, **options: int) -> subprocess.Popen[str]:
    return host.start([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, **options)


def seconds(root: subprocess.Popen[str], followers: list[Follower], version: int) -> float:
    """From publication until the last has it."""
    assert root.stdin is not None and root.stdout is not None
    root.stdin.write(f"{len(followers)}\n")
    root.stdin.flush()
    published = float(root.stdout.readline())
    while not all(version in follower.times for follower in followers):
        assert time.monotonic() - published < PATIENCE_S, "a version did not come everywhere"
        time.sleep(0.02)
    return max(follower.times[version] for follower in followers) - published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--layouts", nargs="+", default=list(get_args(Layout)), choices=get_args(Layout))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--chunk-kib", type=int, default=CHUNK_BYTES >> 10)
    parser.add_argument("--rate-mbit", type=float, default=100.0)
    parser.add_argument("--wire", default="float32", choices=get_args(Wire))
    arguments = parser.parse_args()
    if (lacking := missing()) is not None:
        print(lacking, file=sys.stderr)
        return
    size_bytes = PARAMETERS * (2 if arguments.wire == "bfloat16" else 4)
    bound_s = size_bytes * 8 / (arguments.rate_mbit * 1e6)
    version = 0
    with Lab(1 + max(arguments.hosts), arguments.rate_mbit) as lab:
        first, *others = lab.hosts
        followers: list[Follower] = []
        for n in sorted(arguments.hosts):
            followers += [Follower(host, f"tcp://{first.address}:{PORT}") for host in others[len(followers) : n]]
            for layout in arguments.layouts:
                with rooted(first, layout, arguments.wire, arguments.chunk_kib << 10, version) as root:
                    seconds(root, followers, version)  # the relays turn to this root, and connect to each other
                    times = [seconds(root, followers, version + run) for run in range(1, arguments.runs + 1)]
                    version += 1 + arguments.runs
                figure(f"broadcast.{layout}.{n}", times, "s", "size / rate", [bound_s], digits=3)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["learner", host, layout, wire, chunk_bytes, first]:
            learner(host, layout, wire, int(chunk_bytes), int(first))  # type: ignore[arg-type]
        case ["relay", host, root]:
            relay(host, root)
        case _:
            main()
