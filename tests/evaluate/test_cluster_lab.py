"""A training on the hosts of a lab, by Ray: a link that is slow, one that is cut and mended, a host that ends, and one that comes."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.commands import wait_for
from tests.evaluate.clusters import SMALL, ClusterRun
from tests.raynodes import Nodes

pytest.importorskip("ray")
RATE_MBIT = 30
WIDE = "network.hidden=[128,128]"  # versions of 70 kB, so that a slow link cannot bring them all


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="ray-"))  # short, as paths of sockets must be
    yield path
    shutil.rmtree(path, ignore_errors=True)  # Ray may still be at its end


def settled(going: ClusterRun, machines: int, timeout_s: float) -> None:
    """Waits until so many machines, of an actor each, take part."""
    wait_for(
        lambda: (lines := going.look()) and lines[-1]["machines"] == lines[-1]["actors"] == machines, timeout_s, f"{machines} machines"
    )


def updates_hz(going: ClusterRun, seconds: float) -> float:
    start = len(going.look())
    time.sleep(seconds)
    first, *_, last = going.look()[start:]
    return (last["updates"] - first["updates"]) / (60 * (last["minutes"] - first["minutes"]))


@pytest.mark.slow
def test_links_and_hosts_fail_and_training_goes_on(make_lab, folder, tmp_path):
    lab = make_lab(4, RATE_MBIT)
    nodes = Nodes(lab, folder)
    for index in range(3):
        nodes.start_node(index)
    where = [f"cluster.address={nodes.address}", "stop={updates: 1000000}", "checkpoint.every_s=5", WIDE]
    prefix = ["ip", "netns", "exec", lab.hosts[0].namespace]
    arguments = ["train", "cartpole/ppo", *SMALL, *where, "--run", tmp_path / "run", "--no-video"]
    with ClusterRun(tmp_path / "run", *arguments, prefix=prefix, environment=nodes.environment) as going:
        settled(going, 3, 120)

        usual = updates_hz(going, 15)
        lab.hosts[2].set_rate(RATE_MBIT / 10)
        slow = updates_hz(going, 15)
        print(f"{usual:.1f} updates/s with three machines alike, {slow:.1f} with one at the end of a slow link")
        assert slow > 0.4 * usual
        lab.hosts[2].set_rate(RATE_MBIT)

        lab.hosts[2].cut()
        cut_s = time.monotonic()
        settled(going, 2, 15)
        going.wait_for_updates(10, 10)
        time.sleep(max(0.0, cut_s + 20 - time.monotonic()))
        lab.hosts[2].mend()
        settled(going, 3, 40)
        assert "is gone" not in going.said

        lab.hosts[1].kill()
        settled(going, 2, 30)
        going.wait_for_updates(10, 10)
        wait_for(lambda: f"machine {lab.hosts[1].address} is gone" in going.said, 60, "notice")

        nodes.start_node(3)
        settled(going, 3, 60)
        assert f"machine {lab.hosts[3].address} has come" in going.said

        assert going.interrupt() == 1 and "interrupted; saved" in going.said
        going.wait_until_nothing_is_left()
