"""What every `Cluster` keeps: tests for the modules that say by the fixture `make_cluster` of which one. `cluster` is one of them.

`make_cluster` takes the options of a cluster and returns one that need not be closed. Children find the module `children`.
"""

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from lamarckian.cluster.interface import Cluster, Exit
from lamarckian.errors import GameError, ProcessError
from tests.commands import wait_for

HERE = Path(__file__).parent


@pytest.fixture
def cluster(make_cluster):
    return make_cluster()


def wait(cluster: Cluster, timeout_s: float = 30.0) -> Exit:
    (exit,) = wait_for(cluster.poll, timeout_s, "end of a process")
    return exit


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pids: list[int], timeout_s: float = 20.0) -> None:
    wait_for(lambda: all(map(gone, pids)), timeout_s, f"end of {pids}")


def stop_untold(cluster: Cluster) -> None:
    """Stops a process that has ended, of which nobody is told, though another of its name lives."""
    cluster.stop("actor")
    second = cluster.start("actor", "children:sleep", {})
    for _ in range(10):
        assert cluster.poll() == []
        time.sleep(0.05)
    assert second.attempt == 0 and not gone(second.pid)


def test_a_killed_child_is_told_and_started_anew(cluster):
    first = cluster.start("actor", "children:sleep", {})
    assert cluster.poll() == []
    os.kill(first.pid, signal.SIGKILL)
    exit = wait(cluster)
    assert (exit.name, exit.attempt, exit.code, exit.signal, exit.failure) == ("actor", 0, None, signal.SIGKILL, None)
    assert "ended by SIGKILL, perhaps because memory ran out" in exit.describe()
    assert cluster.poll() == []
    second = cluster.restart("actor")
    assert second.attempt == 1 and second.pid != first.pid and not gone(second.pid)


def test_a_child_gets_its_config_and_environment(cluster, tmp_path):
    path = tmp_path / "told"
    for attempt in range(2):
        if attempt:
            cluster.restart("actor")
        else:
            cluster.start("actor", "children:tell", {"path": str(path), "text": "x" * 300_000}, environment={"OMP_NUM_THREADS": "1"})
        assert wait(cluster).code == 0
        assert path.read_text() == f"{attempt} 1 False False 300000"


def test_a_child_tells_what_it_failed_of(cluster):
    cluster.start("actor", "children:fail", {"error": "game"})
    exit = wait(cluster)
    assert exit.code == 2 and type(exit.error()) is GameError and str(exit.error()) == "no such game as 'Pogn'"
    assert "OddGameError" in exit.failure.traceback

    cluster.start("actor", "children:fail", {"error": "value"})
    exit = wait(cluster)
    assert exit.code == 1 and type(exit.error()) is ProcessError
    assert re.fullmatch(r"actor failed: ValueError: a bad number \(.*children.py, line \d+\)", str(exit.error()))
    assert "children.py" in exit.failure.traceback

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


def test_too_many_deaths_are_an_error(make_cluster):
    cluster = make_cluster(max_deaths=2, window_s=60.0)
    cluster.start("actor", "children:die", {})
    for _ in range(2):
        wait(cluster)
        cluster.restart("actor")
    wait(cluster)
    with pytest.raises(ProcessError, match=r"ended 3 times within 60 s: actor was ended by SIGSEGV; its last words: some last words"):
        cluster.restart("actor")


def test_deaths_long_ago_do_not_count(make_cluster):
    cluster = make_cluster(max_deaths=0, window_s=0.05)
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


def test_a_process_starts_on_a_machine_that_is_there(cluster):
    own = cluster.machines()[0]
    assert cluster.start("actor", "children:sleep", {}, machine=own.name).attempt == 0
    with pytest.raises(ProcessError, match=rf"other is to run on 'moon', but the machines are {own.name}"):
        cluster.start("other", "children:sleep", {}, machine="moon")


def test_an_end_before_a_stop_is_not_told(cluster):
    first = cluster.start("actor", "children:sleep", {})
    cluster.poll()
    os.kill(first.pid, signal.SIGKILL)
    wait_until_gone([first.pid])
    stop_untold(cluster)


def test_stop_and_close_end_even_the_deaf(cluster, tmp_path):
    ready = tmp_path / "ready"
    deaf = cluster.start("deaf", "children:deafly_sleep", {"ready": str(ready)})
    others = [cluster.start(name, "children:sleep", {}) for name in "ab"]
    wait_for(ready.exists, 20.0, "child")
    cluster.stop("a")
    assert gone(others[0].pid) and cluster.poll() == []
    cluster.stop("a")
    cluster.close()
    assert gone(deaf.pid) and gone(others[1].pid) and cluster.poll() == []
    cluster.close()


def test_ctrl_c_is_the_parents_affair(cluster, tmp_path):
    ready = tmp_path / "ready"
    cluster.start("actor", "children:obey_interrupt", {"ready": str(ready)})
    wait_for(ready.exists, 20.0, "child that survived a Ctrl-C")
    young = cluster.start("young", "children:sleep", {})
    os.kill(young.pid, signal.SIGINT)
    time.sleep(0.3)
    assert cluster.poll() == []
