import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from contract import *  # noqa: F403
from contract import HERE, gone, wait, wait_until_gone

from lamarckian.cluster.local import LocalCluster
from tests.commands import wait_for


@pytest.fixture
def make_cluster(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))  # children find modules where their parent does
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(LocalCluster(**options))


def left_behind() -> set[Path]:
    return {path for folder in ("/dev/shm", tempfile.gettempdir()) if Path(folder).exists() for path in Path(folder).iterdir()}


def test_a_child_inherits_descriptors(cluster):
    read, write = os.pipe()
    for attempt in range(2):
        if attempt:
            cluster.restart("actor")
        else:
            cluster.start("actor", "children:write", {"fd": write}, [write])
        assert wait(cluster).code == 0
        assert os.read(read, 100) == b"written"
    os.close(read)
    os.close(write)


def test_a_cluster_passes_for_several_machines(make_cluster):
    cluster = make_cluster(parts=2)
    assert [machine.name for machine in cluster.machines()] == ["machine-0", "machine-1"]
    assert not gone(cluster.start("actor", "children:sleep", {}, machine="machine-1").pid)


def test_a_child_outlives_the_thread_that_started_it(cluster, tmp_path):
    ready = tmp_path / "ready"

    def start() -> None:
        cluster.start("actor", "children:obey_interrupt", {"ready": str(ready)})
        wait_for(ready.exists, 20.0, "child")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert cluster.poll() == []


def test_nothing_is_left_of_a_run_whose_parent_is_killed():
    before = left_behind()
    parent = subprocess.Popen([sys.executable, str(HERE / "parent.py")], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) >= 2 and not any(map(gone, pids))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    parent.stdout.close()
    wait_until_gone(pids)
    assert {path for path in left_behind() - before if "lamarckian" in path.name or "zmq" in path.name} == set()


def test_a_closed_cluster_holds_no_descriptors(cluster):
    logging.disable(logging.WARNING)
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()
    with LocalCluster() as other:
        for name in "abc":
            other.start(name, "children:sleep", {})
        other.start("d", "children:leave", {})
        wait(other)
        other.restart("d")
        other.stop("b")
    logging.disable(logging.NOTSET)
    after = set(os.listdir("/proc/self/fd")) if before else set()
    assert after <= before
