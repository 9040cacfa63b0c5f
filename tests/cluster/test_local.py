import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from lamarckian.cluster.interface import Exit
from lamarckian.cluster.local import LocalCluster
from lamarckian.errors import GameError, ProcessError

HERE = Path(__file__).parent


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))  # children find modules where their parent does
    with LocalCluster() as cluster:
        yield cluster


def wait(cluster: LocalCluster, timeout_s: float = 10.0) -> Exit:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if exits := cluster.poll():
            (exit,) = exits
            return exit
        time.sleep(0.01)
    raise TimeoutError


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pids: list[int], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline, [pid for pid in pids if not gone(pid)]
        time.sleep(0.01)


def left_behind() -> set[Path]:
    return {path for folder in ("/dev/shm", tempfile.gettempdir()) if Path(folder).exists() for path in Path(folder).iterdir()}


def test_a_killed_child_is_told_and_started_anew(cluster):
    first = cluster.start("actor", "children:sleep", {})
    assert cluster.poll() == []
    os.kill(first.pid, signal.SIGKILL)
    exit = wait(cluster, 1.0)
    assert (exit.name, exit.attempt, exit.code, exit.signal, exit.failure) == ("actor", 0, None, signal.SIGKILL, None)
    assert "ended by SIGKILL, perhaps because memory ran out" in exit.describe()
    assert cluster.poll() == []
    second = cluster.restart("actor")
    assert second.attempt == 1 and second.pid != first.pid and not gone(second.pid)


def test_a_child_gets_its_config_descriptors_and_environment(cluster):
    read, write = os.pipe()
    text = "x" * 300_000
    for attempt in range(2):
        if attempt:
            cluster.restart("actor")
        else:
            cluster.start("actor", "children:tell", {"fd": write, "text": text}, [write], {"OMP_NUM_THREADS": "1"})
        assert wait(cluster).code == 0
        assert os.read(read, 100).decode() == f"{attempt} 1 False False 300000"
    os.close(read)
    os.close(write)


def test_a_child_tells_what_it_failed_of(cluster):
    cluster.start("actor", "children:fail", {"error": "game"})
    exit = wait(cluster)
    assert exit.code == 2 and type(exit.error()) is GameError and str(exit.error()) == "no such game as 'Pogn'"
    assert "OddGameError" in exit.failure.traceback

    cluster.start("actor", "children:fail", {"error": "value"})
    exit = wait(cluster)
    assert exit.code == 1 and type(exit.error()) is ProcessError
    assert (
        re.fullmatch(r"actor failed: ValueError: a bad number \(.*children.py, line \d+\)", str(exit.error()))
        and "children.py" in exit.failure.traceback
    )

    cluster.start("actor", "children:nothing", {})
    assert "no attribute 'nothing'" in str(wait(cluster).error())


def test_last_words(cluster, caplog):
    cluster.start("actor", "children:die", {})
    exit = wait(cluster)
    assert exit.signal == signal.SIGSEGV and "some last words" in exit.tail and "Segmentation fault" in exit.tail
    assert "actor: some last words" in caplog.messages
    cluster.start("actor", "children:leave", {})
    exit = wait(cluster)
    assert exit.describe() == "actor ended with exit code 3; its last words: on stdout"


def test_too_many_deaths_are_an_error(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    with LocalCluster(max_deaths=2, window_s=60.0) as cluster:
        cluster.start("actor", "children:die", {})
        for _ in range(2):
            wait(cluster)
            cluster.restart("actor")
        wait(cluster)
        with pytest.raises(ProcessError, match=r"ended 3 times within 60 s: actor was ended by SIGSEGV; its last words: some last words"):
            cluster.restart("actor")


def test_deaths_long_ago_do_not_count(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    with LocalCluster(max_deaths=0, window_s=0.05) as cluster:
        cluster.start("actor", "children:leave", {})
        for attempt in range(1, 3):
            wait(cluster)
            time.sleep(0.1)
            assert cluster.restart("actor").attempt == attempt


def test_names_are_unique_and_only_the_dead_are_started_anew(cluster):
    cluster.start("actor", "children:sleep", {})
    with pytest.raises(ValueError, match="there already"):
        cluster.start("actor", "children:sleep", {})
    for name in ("actor", "nobody"):
        with pytest.raises(ValueError, match="whose end was told"):
            cluster.restart(name)


def test_stop_and_close_end_even_the_deaf(cluster, tmp_path):
    ready = tmp_path / "ready"
    deaf = cluster.start("deaf", "children:deafly_sleep", {"ready": str(ready)})
    others = [cluster.start(name, "children:sleep", {}) for name in "ab"]
    while not ready.exists():
        time.sleep(0.01)
    cluster.stop("a")
    assert gone(others[0].pid) and cluster.poll() == []
    cluster.stop("a")
    cluster.close()
    assert gone(deaf.pid) and gone(others[1].pid) and cluster.poll() == []
    cluster.close()


def test_ctrl_c_is_the_parents_affair(cluster):
    read, write = os.pipe()
    cluster.start("actor", "children:obey_interrupt", {"fd": write}, [write])
    assert os.read(read, 100) == b"still here"
    young = cluster.start("young", "children:sleep", {})
    os.kill(young.pid, signal.SIGINT)
    time.sleep(0.3)
    assert cluster.poll() == []
    os.close(read)
    os.close(write)


def test_a_child_outlives_the_thread_that_started_it(cluster):
    read, write = os.pipe()

    def start() -> None:
        cluster.start("actor", "children:obey_interrupt", {"fd": write}, [write])
        os.read(read, 100)  # it is at work

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert cluster.poll() == []
    os.close(read)
    os.close(write)


def test_nothing_is_left_of_a_run_whose_parent_is_killed():
    before = left_behind()
    parent = subprocess.Popen([sys.executable, str(HERE / "parent.py")], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) >= 2 and not any(map(gone, pids))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    parent.stdout.close()
    wait_until_gone(pids, 2.0)
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
