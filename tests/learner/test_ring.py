"""Rings of real processes: what they add up, and what becomes of them when one is killed, or hangs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from lamarckian.errors import RingError
from lamarckian.learner import ring as module
from lamarckian.learner.ring import Ring
from tests.commands import wait_for
from tests.learner import ringers

PATIENCE_S = 60.0
"""Until processes that share the cores with others are at work."""

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload([ringers.__name__])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Learners:
    """The processes of a ring, and what each has told."""

    def __init__(self, folder: Path, what: str, size: int, **config: object) -> None:
        config |= {"what": what, "size": size, "port": free_port()}
        self._outs = [folder / f"{rank}" for rank in range(size)]
        ours = [{**config, "rank": rank, "out": str(out)} for rank, out in enumerate(self._outs)]
        self.processes = [SPAWN.Process(target=ringers.run, args=(mine,), daemon=True) for mine in ours]
        for process in self.processes:
            process.start()

    def told(self) -> list[dict]:
        """By rank, once all have told something."""
        wait_for(lambda: all(out.exists() for out in self._outs), PATIENCE_S, "word of all")
        return [json.loads(out.read_text()) for out in self._outs]

    def send(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.processes[rank].pid, number)

    def ended(self, rank: int, timeout_s: float) -> int:
        """A learner's exit code."""
        self.processes[rank].join(timeout_s)
        assert self.processes[rank].exitcode is not None, f"learner {rank} goes on after {timeout_s} s"
        return self.processes[rank].exitcode


@pytest.fixture
def learners(tmp_path) -> Callable[..., Learners]:
    started: list[Learners] = []

    def start(what: str, size: int, **config: object) -> Learners:
        started.append(Learners(tmp_path, what, size, **config))
        return started[-1]

    yield start
    for process in [process for ring in started for process in ring.processes]:
        process.kill()
        process.join()


def test_calls(learners):
    all_told = learners("call", 3).told()
    for found in all_told:
        assert found["sums"] == all_told[0]["sums"] and found["scalar"] == 4.5  # to the last bit
        assert found["gathered"] == [["", "", ""], ["", "x", "xx"], ["", "y" * 10_000, ""]]
        assert found["spread"] == [[1, 1, 1], [1, 1, 1]]
        assert found["seconds"] > 0 and found["then"] == 0
    sums = sum((torch.randn(7, generator=torch.Generator().manual_seed(rank)) * 1000).long() for rank in range(3))
    assert all_told[0]["sums"]["torch.int64 7"] == ringers.digest(sums)


def test_learners_end_with_the_same_bits(learners):
    first, *others = learners("learn", 3).told()
    assert first["steps"] == 3 * 5 * 12
    for other in others:
        assert (other["parameters"], other["state"]) == (first["parameters"], first["state"])


@pytest.mark.parametrize("lost", [0, 1])
def test_the_others_end_when_one_is_killed(learners, lost):
    ring = learners("add_forever", 3)
    assert ring.told() == [{"at_work": True}] * 3
    ring.send(lost, signal.SIGKILL)
    rest = [rank for rank in range(3) if rank != lost]
    assert [ring.ended(rank, 20.0) for rank in rest] == [1, 1]
    for rank in rest:
        found = ring.told()[rank]
        assert found["error"] == "RingError" and f"learner {rank} of 3, ring at 127.0.0.1" in found["message"]
        assert f": learner {lost} is lost, or was silent" in found["message"] and "resume the run" in found["message"]


@pytest.mark.parametrize("lost", [0, 1])
def test_the_others_end_when_one_hangs(learners, lost):
    ring = learners("add_forever", 2, timeout_s=2.0)
    assert ring.told() == [{"at_work": True}] * 2
    ring.send(lost, signal.SIGSTOP)
    assert ring.ended(1 - lost, 20.0) == 1
    found = ring.told()[1 - lost]
    assert found["error"] == "RingError" and f": learner {lost} is lost, or was silent for 2 s" in found["message"]


def test_hosts_whose_link_is_cut(make_lab, tmp_path):
    """Each has but its own network, which is not that of the loopback interface."""
    hosts = make_lab(2, 100).hosts
    outs = [tmp_path / f"{rank}" for rank in range(2)]
    config = {"what": "add_forever", "size": 2, "host": hosts[0].address, "port": 7200, "timeout_s": 3.0}
    commands = [json.dumps({**config, "rank": rank, "out": str(out)}) for rank, out in enumerate(outs)]
    processes = [
        host.start([sys.executable, "-m", ringers.__name__, command], stderr=subprocess.DEVNULL)
        for host, command in zip(hosts, commands, strict=True)
    ]
    wait_for(lambda: all(out.exists() for out in outs), PATIENCE_S, "ring")
    hosts[1].cut()
    assert [process.wait(20.0) for process in processes] == [1, 1]
    messages = [json.loads(out.read_text())["message"] for out in outs]
    assert "learner 1 is lost, or was silent for 3 s" in messages[0] and "learner 0 is lost, or was silent for 3 s" in messages[1]


def test_a_ring_of_one_listens_at_its_address_only():
    port = free_port()
    with Ring(0, 1, "127.0.0.1", port, 10.0) as ring:
        numbers = torch.arange(3.0)
        ring.add(numbers)
        assert numbers.tolist() == [0, 1, 2] and ring.gather(b"alone") == [b"alone"]
        listening = [entry.laddr for entry in psutil.Process().net_connections("inet") if entry.status == psutil.CONN_LISTEN]
    assert port in [address.port for address in listening] and {address.ip for address in listening} == {"127.0.0.1"}
    assert "GLOO_SOCKET_IFNAME" not in os.environ


LEAVES = """
import torch
from pathlib import Path
from lamarckian.learner.ring import Ring
def threads(): return {entry.joinpath("comm").read_text().strip() for entry in Path("/proc/self/task").iterdir()}
with Ring(0, 1, "127.0.0.1", PORT, 10.0) as ring:
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    ring.add(torch.zeros(1))
    print("pt_gloo_runloop" in threads())
print("pt_gloo_runloop" in threads())
"""


def test_what_holds_tensors_ends_with_the_ring():
    """Also where the process has its first optimiser in the ring: else torch would keep its threads, and abort now and then at the end."""
    done = subprocess.run([sys.executable, "-c", LEAVES.replace("PORT", str(free_port()))], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]


def test_a_ring_that_does_not_come_together(monkeypatch):
    monkeypatch.setattr(module, "MEET_S", 1.0)
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(RingError, match=r"learner 0 of 2, .* did not come together: .*in use.* a port that is free"):
        Ring(0, 2, "127.0.0.1", taken.getsockname()[1], 10.0)
    with pytest.raises(RingError, match="must be one of learner 0's machine"):
        Ring(0, 2, "203.0.113.7", free_port(), 10.0)
    with pytest.raises(RingError, match=r"learner 0 of 2, .* did not come together"):
        Ring(0, 2, "127.0.0.1", free_port(), 10.0)  # nobody comes
    with pytest.raises(RingError, match=r"learner 1 of 2, .* did not come together"):
        Ring(1, 2, "127.0.0.1", free_port(), 10.0)  # nobody is there
    assert not [thread for thread in threading.enumerate() if thread.name == "missing"]
