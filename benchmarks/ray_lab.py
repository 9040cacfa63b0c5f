"""A Ray cluster on the hosts of a lab (`lab.py`): a node on each, the first of them the head.

with RayLab(hosts=3, rate_mbit=1000) as there:
    process = there.start(["lamarckian", "train", "pendulum/ppo", f"cluster.address={there.address}"])
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import Host, Lab

PORT = 6379
STORE_BYTES = 200_000_000
PATIENCE_S = 120.0
STARTED = "Ray runtime started"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


class RayLab:
    """A lab whose hosts are the nodes of a Ray cluster, each with one core to give. All that runs there ends with the block.

    python: of the environment whose Ray it is. environment: variables of the nodes, and of what is started.
    Raises LabError where there can be no lab, and TimeoutError where a node does not come.
    """

    def __init__(self, hosts: int, rate_mbit: float, python: str = sys.executable, environment: dict[str, str] | None = None) -> None:
        self._lab = Lab(hosts, rate_mbit)
        self._ray = Path(python).with_name("ray")
        self._folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, as paths of sockets must be
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_TMPDIR": str(self._folder)}
        self._environment = {**QUIET, **secret, **(environment or {})}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RayLab:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            head, *others = stack.enter_context(self._lab).hosts
            self.address = f"{head.address}:{PORT}"
            self._start_node(head, "--head", f"--port={PORT}", "--include-dashboard=false")
            for host in others:  # one after the other: all use the head's folder, and two at a time would take the same names there
                self._start_node(host, f"--address={self.address}")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, command: Sequence[str], env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
        """Runs a command on the head, as `Host.start` does; it finds the cluster by RAY_ADDRESS, too. env: instead of this process's."""
        environment = {**(env or os.environ), **self._environment, "RAY_ADDRESS": self.address}
        return self._lab.hosts[0].start(command, env=environment, **options)

    def _start_node(self, host: Host, *role: str) -> None:
        log = self._folder / host.namespace
        command = [
            str(self._ray),
            "start",
            *role,
            f"--node-ip-address={host.address}",
            "--num-cpus=1",
            f"--object-store-memory={STORE_BYTES}",
        ]
        environment = {**os.environ, **self._environment}
        with open(log, "w") as output:
            host.start([*command, "--disable-usage-stats", "--block"], env=environment, stdout=output, stderr=output)
        deadline = time.monotonic() + PATIENCE_S
        while STARTED not in log.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"a Ray node did not come within {PATIENCE_S:g} s: {log.read_text()[-1000:]}")
            time.sleep(0.2)
