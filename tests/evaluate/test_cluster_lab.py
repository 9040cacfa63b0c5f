"""A training on the hosts of a lab, by Ray: a link that is slow, one that is cut and mended, a host that ends, and one that comes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from lamarckian.record.run import open_run
from lamarckian.record.status import Status, read_status
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


def behind(going: ClusterRun) -> dict[str, float]:
    """By how many versions each machine, by its address, is behind the learner: the median of what the run says again and again."""
    told: dict[float, Status] = {}

    def enough() -> bool:
        status = read_status(open_run(going.folder))
        told[status.time_s] = status
        return len(told) > 50

    wait_for(enough, 60, "fifty statuses")
    found = defaultdict(list)
    for status in told.values():
        for machine in status.machines:
            found[machine.address].append(status.metrics["updates"] - machine.version)
    return {address: median(versions) for address, versions in found.items()}


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

        lab.hosts[2].set_rate(RATE_MBIT / 30)
        first, second, slow = (host.address for host in lab.hosts[:3])
        wait_for(lambda: f"relay {slow} is slow" in going.said, 60, "notice that it is slow")
        versions = behind(going)
        print(f"versions behind the learner, with {slow} at the end of a slow link: {versions}")
        assert 2 * max(versions[first], versions[second]) < versions[slow], "others wait for it"
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
