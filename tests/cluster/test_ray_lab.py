"""A Ray cluster of machines of their own: links that are cut, machines that end and come."""

import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from contract import HERE, wait_until_gone

from tests.commands import wait_for
from tests.raynodes import Nodes

pytest.importorskip("ray")
SETTINGS = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "1000", "RAY_health_check_failure_threshold": "3"}


class Network(Nodes):
    """A Ray cluster on the hosts of a lab, and a follower on the first of them."""

    def __init__(self, lab, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(lab, folder, settings, str(HERE))
        self.output = folder / "output"

    def follow(self) -> None:
        command = [sys.executable, str(HERE / "follower.py"), self.address]
        with open(self.output, "w") as output:
            self.lab.hosts[0].start(command, env=self.environment, stdout=output, stderr=output)

    def started(self, index: int, timeout_s: float = 60.0) -> int:
        """The process id of what was started on a host last."""
        pattern = rf"started {re.escape(self.lab.hosts[index].address)}, (\d+)\n"
        return int(wait_for(lambda: re.findall(pattern, self.output.read_text()), timeout_s, f"process on host {index}")[-1])

    def ended(self, index: int, timeout_s: float) -> str:
        """What was told of the end of the process on a host."""
        pattern = rf"ended {re.escape(self.lab.hosts[index].address)}: (.*)\n"
        return wait_for(lambda: re.findall(pattern, self.output.read_text()), timeout_s, f"end on host {index}")[-1]


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="ray-"))  # short, as paths of sockets must be
    yield path
    for output in filter(Path.is_file, sorted(path.iterdir())):
        print(f"{output.name}:\n{output.read_text()[-3000:]}")
    shutil.rmtree(path, ignore_errors=True)  # Ray may still be at its end


@pytest.mark.slow
def test_links_are_cut_and_machines_end_and_come(make_lab, folder):
    network = Network(make_lab(4, 1000), folder, SETTINGS)
    for index in range(3):
        network.start_node(index)
    network.follow()
    pids = [network.started(index) for index in range(3)]

    network.lab.hosts[2].cut()
    assert f"the machine {network.lab.hosts[2].address} is gone" in network.ended(2, 40.0)

    network.lab.hosts[1].kill()
    assert f"the machine {network.lab.hosts[1].address} is gone" in network.ended(1, 40.0)
    wait_until_gone([pids[1]])

    network.start_node(3)
    network.started(3)

    network.lab.hosts[2].mend()
    wait_until_gone([pids[2]], 60.0)  # Ray had counted it out, and tells it so
