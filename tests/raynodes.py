"""Ray nodes on the hosts of a lab."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.commands import wait_for

RAY = Path(sys.executable).with_name("ray")


class Nodes:
    """A Ray cluster; the first host's node is its head.

    folder: for what nodes write, of a short path. settings: of Ray, in the environment. path: where nodes find modules before others.
    environment: of processes that are to join.
    """

    def __init__(self, lab: Any, folder: Path, settings: Mapping[str, str] | None = None, path: str = "") -> None:
        self.lab = lab
        self._folder = folder
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_TMPDIR": str(folder)}
        self.environment = {**os.environ, **secret, **(settings or {}), "PYTHONPATH": os.pathsep.join([path, *sys.path])}
        self.address = f"{lab.hosts[0].address}:6379"

    def start_node(self, index: int) -> None:
        """A node of one core on a host."""
        host = self.lab.hosts[index]
        role = ["--head", "--port=6379", "--include-dashboard=false"] if index == 0 else [f"--address={self.address}"]
        log = self._folder / f"node-{index}"
        command = [str(RAY), "start", *role, f"--node-ip-address={host.address}", "--num-cpus=1", "--object-store-memory=80000000"]
        with open(log, "w") as output:
            host.start([*command, "--disable-usage-stats", "--block"], env=self.environment, stdout=output, stderr=output)
        wait_for(lambda: "Ray runtime started" in log.read_text(), 120.0, f"node on host {index}")
