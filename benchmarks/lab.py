"""Many hosts on one machine: network namespaces on a bridge, each with an address and a link of its own that has a rate and can be cut.

    with Lab(hosts=4, rate_mbit=100) as lab:
        process = lab.hosts[0].start(["python3", "-m", "http.server", "--bind", lab.hosts[0].address])
        lab.hosts[0].cut()

Nothing shows in the machine's own network: the bridge, too, stands in a namespace, so that labs do not meet. A lab holds a lock for as long
as its process lives; a new lab removes what others left behind whose process was killed. This kernel delays no packets (`netem` is
missing), so links have rates, and no latency but the machine's own. Needs Linux, root, `ip` and `tc`; `missing()` says what is not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PREFIX = "lamarckian"
LOCKS = Path("/run/lamarckian-labs")
SUBNET = "10.77"
BURST_BYTES = 16 << 10
"""How much goes out at once on a link that was idle; the largest packets, too, are that small."""
PACKET_BYTES = 15 << 10
QUEUE_BYTES = 8 << 20


class LabError(Exception):
    """A command of the lab failed; says which, and what it said."""


class Host:
    """A host of a lab. address: IPv4, which all hosts of the lab reach."""

    def __init__(self, namespace: str, hub: str, index: int) -> None:
        self.namespace = namespace
        self.address = f"{SUBNET}.{(index + 1) // 256}.{(index + 1) % 256}"
        self._hub = hub
        self._port = f"port{index}"
        self._processes: list[subprocess.Popen[Any]] = []

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Runs a command on the host, with the options of `subprocess.Popen`. It is killed when the lab closes, or this process ends."""
        bound = ["setpriv", "--pdeathsig", "KILL", *command]
        process = subprocess.Popen(["ip", "netns", "exec", self.namespace, *bound], **options)
        self._processes.append(process)
        return process

    def kill(self) -> None:
        """Kills all that `start` started and still runs."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def set_rate(self, rate_mbit: float) -> None:
        """The rate of the link, the same in both directions."""
        for namespace, device in ((self.namespace, "eth0"), (self._hub, self._port)):
            shape = f"rate {rate_mbit}mbit burst {BURST_BYTES} limit {QUEUE_BYTES}"
            _run(f"tc -n {namespace} qdisc replace dev {device} root tbf {shape}")

    def cut(self) -> None:
        """Takes the link down: nothing comes or goes, and nobody is told."""
        _run(f"ip -n {self._hub} link set {self._port} down")

    def mend(self) -> None:
        """Takes the link up again."""
        _run(f"ip -n {self._hub} link set {self._port} up")

    def build(self) -> None:
        """Makes the namespace, its address and its link to the hub."""
        _run(f"ip netns add {self.namespace}")
        link = f"link add eth0 netns {self.namespace} gso_max_size {PACKET_BYTES} type veth"
        _run(f"ip {link} peer name {self._port} netns {self._hub} gso_max_size {PACKET_BYTES}")
        inside = ["link set lo up", f"addr add {self.address}/16 dev eth0", "link set eth0 addrgenmode none", "link set eth0 up"]
        _run(f"ip -n {self.namespace} -batch -", "\n".join(inside))
        port = f"link set {self._port}"
        _run(f"ip -n {self._hub} -batch -", "\n".join([f"{port} addrgenmode none", f"{port} master bridge", f"{port} up"]))


class Lab:
    """A number of hosts, each with a link of so many Mbit/s to one switch. Raises LabError when they cannot be made."""

    def __init__(self, hosts: int, rate_mbit: float) -> None:
        if (lacking := missing()) is not None:
            raise LabError(lacking)
        self._hosts = hosts
        self._rate_mbit = rate_mbit
        self._stack = contextlib.ExitStack()
        self.hosts: list[Host] = []

    def __enter__(self) -> Lab:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills the hosts' processes and removes all that was made, undisturbed by signals. Harmless when repeated."""
        with _undisturbed():
            for host in self.hosts:
                host.kill()
            self.hosts.clear()
            self._stack.close()

    def _build(self) -> None:
        with _all_labs():
            _sweep()
            name = secrets.token_hex(3)
            lock = _lock(LOCKS / name)
            assert lock is not None
            self._stack.callback(_release, name, lock)
        hub = f"{PREFIX}-{name}-hub"
        _run(f"ip netns add {hub}")
        _run(f"ip -n {hub} -batch -", "link add bridge type bridge forward_delay 0\nlink set bridge up\nlink set lo up")
        for index in range(self._hosts):
            host = Host(f"{PREFIX}-{name}-{index}", hub, index)
            host.build()
            self.hosts.append(host)
            host.set_rate(self._rate_mbit)


def missing() -> str | None:
    """Why there can be no lab on this machine; None when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a lab needs Linux and root"
    lacking = [tool for tool in ("ip", "tc", "setpriv") if shutil.which(tool) is None]
    if lacking:
        return f"a lab needs {', '.join(lacking)} (packages iproute2 and util-linux)"
    trial = f"{PREFIX}-trial-{secrets.token_hex(3)}"
    try:
        _run(f"ip netns add {trial}")
        try:
            _run(f"ip link add eth0 netns {trial} type veth peer name port0 netns {trial}")
            _run(f"tc -n {trial} qdisc add dev eth0 root tbf rate 100mbit burst {BURST_BYTES} limit {QUEUE_BYTES}")
        finally:
            _run(f"ip netns del {trial}")
    except LabError as error:
        return f"a lab needs the right to make namespaces and to shape links: {error}"
    return None


def _run(command: str, lines: str = "") -> str:
    done = subprocess.run(command.split(), input=lines, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{command}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that would end this process wait until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _all_labs() -> Iterator[None]:
    """No other lab begins or is swept meanwhile."""
    LOCKS.mkdir(exist_ok=True)
    with open(LOCKS / ".all", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock(path: Path) -> int | None:
    """The lock of a lab, held by its descriptor; None when somebody else holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _sweep() -> None:
    """Removes the labs whose processes are no more."""
    for path in LOCKS.glob("[!.]*"):
        if (fd := _lock(path)) is not None:
            _release(path.name, fd)


def _release(name: str, lock: int) -> None:
    for line in _run("ip netns list").splitlines():
        namespace = line.split()[0]
        if namespace.startswith(f"{PREFIX}-{name}-"):
            for pid in _run(f"ip netns pids {namespace}").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run(f"ip netns del {namespace}")  # its links go with it
    (LOCKS / name).unlink(missing_ok=True)
    os.close(lock)
