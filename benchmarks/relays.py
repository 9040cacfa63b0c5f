"""What a version of 4 MB costs a relay and a root in processor time, and what they cost when nothing is published; over loopback.

A chain of two says what it takes a relay to receive (the last has no children) and to hand on to one child; a flat broadcast to one and to
three says what one more child costs a root. What they cost in as much time when nothing is published is taken off.

    python benchmarks/relays.py [--versions 50] [--runs 3]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import psutil
from figures import figure
from processes import free_port

from lamarckian.cluster.local import LocalCluster
from lamarckian.transport.channel import Inbox, local_address
from lamarckian.transport.layouts import Layout
from lamarckian.transport.root import RootStatistics
from lamarckian.transport.versions import VersionBoard

PARAMETERS = 1_000_000
PAUSE_S = 0.1
PATIENCE_S = 60.0


def measure(layout: Layout, n: int, versions: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the root and its n relays, as laid out, `[1 + n]`: ms of processor time a version, and share of a core without any."""
    learners, *boards = (VersionBoard.create(PARAMETERS) for _ in range(1 + n))
    flat = np.random.default_rng(0).standard_normal(PARAMETERS, np.float32)
    common = {"host": "127.0.0.1", "parameters": PARAMETERS, "network": False, "keys": None}
    version = 0

    def publish(to: list[VersionBoard]) -> None:
        nonlocal version
        version += 1
        learners.publish(version, flat)
        everywhere(to, version)

    port = free_port()
    reports = Inbox((RootStatistics,), local_address())
    with LocalCluster() as cluster:
        config = {
            **common,
            "port": port,
            "children_port": 0,
            "layout": layout,
            "wire": "float32",
            "board_fd": learners.fd,
            "report": reports.address,
        }
        started = [cluster.start("root", "lamarckian.transport.root:main", config, [learners.fd])]
        for index, board in enumerate(boards):  # one after another, so that they stand in this order
            config = {**common, "root": f"tcp://127.0.0.1:{port}", "port": 0, "name": f"relay-{index}", "board_fd": board.fd}
            started.append(cluster.start(config["name"], "lamarckian.transport.relay:main", config, [board.fd]))
            publish(boards[: index + 1])
        processes = [psutil.Process(process.pid) for process in started]
        start_s, before = time.monotonic(), busy_s(processes)
        time.sleep(versions * PAUSE_S)
        idle = (busy_s(processes) - before) / (time.monotonic() - start_s)
        start_s, before = time.monotonic(), busy_s(processes)
        for _ in range(versions):
            publish(boards)
            time.sleep(PAUSE_S)
        spent_s = busy_s(processes) - before - idle * (time.monotonic() - start_s)
    reports.close()
    for board in (learners, *boards):
        board.close()
    return spent_s / versions * 1e3, idle


def busy_s(processes: list[psutil.Process]) -> np.ndarray:
    """Of processor time, each, so far."""
    return np.array([sum(process.cpu_times()[:2]) for process in processes])


def everywhere(boards: list[VersionBoard], version: int) -> None:
    """Waits until all boards show it."""
    deadline = time.monotonic() + PATIENCE_S
    while any(board.newest() < version for board in boards):
        assert time.monotonic() < deadline, "a version did not come everywhere"
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    chains, flats = [], []
    for _ in range(arguments.runs):
        chains.append(measure("pipeline", 2, arguments.versions))
        flats.append([measure("flat", n, arguments.versions)[0][0] for n in (1, 3)])
    figure("relay.receive", [spent[2] for spent, _ in chains], "ms a version", digits=2)
    figure("relay.hand_on", [spent[1] - spent[2] for spent, _ in chains], "ms a version and child", digits=2)
    figure("root.hand_on", [(three - one) / 2 for one, three in flats], "ms a version and child", digits=2)
    figure("relay.idle", [float(idle[1:].mean()) for _, idle in chains], "share of a core", digits=4)
    figure("root.idle", [float(idle[0]) for _, idle in chains], "share of a core", digits=4)


if __name__ == "__main__":
    main()
