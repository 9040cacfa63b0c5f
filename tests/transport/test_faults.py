"""A broadcast by real processes, killed; and, where there can be a lab, by hosts whose links are cut or slow."""

import socket
import time

import numpy as np
import pytest

from lamarckian.cluster.local import LocalCluster
from lamarckian.transport.channel import Inbox, local_address
from lamarckian.transport.keys import Keys
from lamarckian.transport.root import RootStatistics
from lamarckian.transport.versions import VersionBoard
from tests.commands import wait_for
from tests.transport.talker import Talker

PORT = 7100


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def go_on(relays: list[Talker], by: int = 3, timeout_s: float = 15.0) -> None:
    """All relays come to show versions that are newer by so many."""
    goal = max(relay.version for relay in relays) + by
    wait_for(lambda: all(relay.version >= goal for relay in relays), timeout_s, f"version {goal}: {[relay.version for relay in relays]}")


@pytest.mark.parametrize("layout", ["tree", "pipeline"])
def test_relays_are_killed_and_versions_go_on(talk, layout):
    port = str(free_port())
    root = talk("root", "127.0.0.1", port, layout, "0.05")
    address = f"tcp://127.0.0.1:{port}"
    relays = {f"relay-{index}": talk("relay", "127.0.0.1", address, f"relay-{index}") for index in range(4)}
    wait_for(lambda: len(root.relays) == 4, 60.0, "four relays")
    go_on(list(relays.values()))
    for _ in range(2):
        parent = next(parent for parent, _ in root.relays.values() if parent is not None)
        relays.pop(parent).process.kill()
        wait_for(lambda parent=parent: parent not in root.relays, 10.0, "notice of the death")
        assert all(other != parent for other, _ in root.relays.values())
        go_on(list(relays.values()))
    relays["relay-new"] = talk("relay", "127.0.0.1", address, "relay-new")
    wait_for(lambda: relays["relay-new"].version > 0, 60.0, "version for who came late")
    go_on(list(relays.values()))
    assert all(relay.process.poll() is None for relay in [root, *relays.values()])


def test_a_root_is_killed_and_another_takes_over(talk):
    port = str(free_port())
    root = talk("root", "127.0.0.1", port, "pipeline", "0.05")
    relays = [talk("relay", "127.0.0.1", f"tcp://127.0.0.1:{port}", f"relay-{index}") for index in range(2)]
    wait_for(lambda: len(root.relays) == 2, 60.0, "two relays")
    go_on(relays)
    root.process.kill()
    root.process.wait()
    talk("root", "127.0.0.1", port, "pipeline", "0.02")
    go_on(relays, timeout_s=60.0)


def test_processes_of_a_cluster_with_a_key(tmp_path):
    Keys.create(tmp_path / "key")
    boards = [VersionBoard.create(1000) for _ in range(3)]
    common = {"parameters": 1000, "host": "127.0.0.1", "network": False, "keys": str(tmp_path / "key")}
    port = free_port()
    reports = Inbox((RootStatistics,), local_address())
    with LocalCluster() as cluster:
        root = {
            **common,
            "port": port,
            "layout": "pipeline",
            "wire": "bfloat16",
            "board_fd": boards[0].fd,
            "report": reports.address,
            "children_port": 0,
        }
        cluster.start("root", "lamarckian.transport.root:main", root, [boards[0].fd])
        for index, board in enumerate(boards[1:]):
            relay = {**common, "root": f"tcp://127.0.0.1:{port}", "name": f"relay-{index}", "board_fd": board.fd, "port": 0}
            cluster.start(f"relay-{index}", "lamarckian.transport.relay:main", relay, [board.fd])
        boards[0].publish(3, np.full(1000, 0.5, np.float32))
        wait_for(lambda: all(board.newest() == 3 for board in boards), 60.0, "version")
        wait_for(lambda: (got := reports.receive(0.1)) and {relay.version for relay in got[1].relays.values()} == {3}, 60.0, "report")
        assert cluster.poll() == []
    reports.close()
    flat = np.empty(1000, np.float32)
    assert boards[2].take(flat, -1) == 3 and (flat == 0.5).all()


def in_lab(lab, period_s: str, layout: str = "pipeline") -> tuple[Talker, list[Talker]]:
    first, *others = lab.hosts
    root = Talker(first.start, "root", first.address, str(PORT), layout, period_s)
    address = f"tcp://{first.address}:{PORT}"
    relays = [Talker(host.start, "relay", host.address, address, f"relay-{index}") for index, host in enumerate(others)]
    wait_for(lambda: len(root.relays) == len(others), 60.0, "relays")
    go_on(relays, timeout_s=30.0)
    return root, relays


def test_a_link_is_cut_and_mended(make_lab):
    lab = make_lab(4, 100)
    root, relays = in_lab(lab, "0.1")
    lost = next(index for index in range(3) if any(parent == f"relay-{index}" for parent, _ in root.relays.values()))
    others = [relay for index, relay in enumerate(relays) if index != lost]
    lab.hosts[1 + lost].cut()
    wait_for(lambda: f"relay-{lost}" not in root.relays, 10.0, "notice of the cut")
    go_on(others)
    time.sleep(3.0)
    behind = relays[lost].version
    lab.hosts[1 + lost].mend()
    wait_for(lambda: f"relay-{lost}" in root.relays, 30.0, "return")
    go_on(relays, timeout_s=30.0)
    assert relays[lost].version > behind


def test_a_slow_host_gets_no_children_and_delays_nobody(make_lab):
    lab = make_lab(5, 100)
    root, relays = in_lab(lab, "0.15")
    slow = next(index for index in range(4) if any(parent == f"relay-{index}" for parent, _ in root.relays.values()))
    lab.hosts[1 + slow].set_rate(5)
    wait_for(lambda: root.relays.get(f"relay-{slow}", (None, False))[1], 60.0, "notice that it is slow")
    assert all(parent != f"relay-{slow}" for parent, _ in root.relays.values())
    others = [relay for index, relay in enumerate(relays) if index != slow]
    before = relays[slow].lines
    go_on(others, by=20, timeout_s=60.0)
    assert relays[slow].lines - before < 15
    go_on(relays, by=1, timeout_s=60.0)
