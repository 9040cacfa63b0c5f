"""The lab of `benchmarks/lab.py`: hosts that reach each other, and nothing that is left behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import wait_for

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
OWNER = f"""
import subprocess, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
from lab import Lab
with Lab(2, 100) as lab:
    sleeper = lab.hosts[0].start(["sleep", "600"])
    print(lab.hosts[0].namespace, sleeper.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(lab_module):
    """A process with a lab; the prefix of its namespaces; a process on a host of it."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    namespace, pid = process.stdout.readline().split()
    yield process, namespace.rpartition("-")[0], int(pid)
    process.kill()
    process.wait()


def namespaces(prefix: str) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(prefix)]


def reaches(lab, source: int, target: int) -> bool:
    code = "import socket, sys; socket.create_connection((sys.argv[1], 7200), 1.0)"
    return lab.hosts[source].start([sys.executable, "-c", code, lab.hosts[target].address], stderr=subprocess.DEVNULL).wait() == 0


def test_hosts_reach_each_other_unless_a_link_is_cut(make_lab):
    lab, other = make_lab(3, 100), make_lab(1, 100)
    code = "import socket, sys; s = socket.create_server((sys.argv[1], 7200)); print('up', flush=True)\nwhile True: s.accept()"
    server = lab.hosts[0].start([sys.executable, "-c", code, lab.hosts[0].address], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "up\n"
    assert reaches(lab, 1, 0) and reaches(lab, 2, 0)
    assert not reaches(other, 0, 0)
    lab.hosts[1].cut()
    assert not reaches(lab, 1, 0) and reaches(lab, 2, 0)
    lab.hosts[1].mend()
    wait_for(lambda: reaches(lab, 1, 0), 20.0, "link")


def test_a_link_has_its_rate(make_lab):
    lab = make_lab(1, 100)
    lab.hosts[0].set_rate(20)
    shown = subprocess.run(["tc", "-n", lab.hosts[0].namespace, "qdisc"], capture_output=True, text=True, check=True).stdout
    assert "tbf" in shown and "rate 20Mbit" in shown


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_lab_leaves_nothing(owner, lab_module, ending):
    process, prefix, pid = owner
    assert len(namespaces(prefix)) == 3
    process.send_signal(ending)
    process.wait(30)
    if ending == signal.SIGTERM:
        lab_module.Lab(0, 100).__enter__().close()
    assert namespaces(prefix) == []
    wait_for(lambda: not alive(pid), 10.0, "end of the process on the host")


def test_what_a_killed_lab_leaves_the_next_one_removes(owner, make_lab):
    process, prefix, pid = owner
    process.kill()
    process.wait()
    assert len(namespaces(prefix)) == 3
    make_lab(1, 100)
    assert namespaces(prefix) == []
    wait_for(lambda: not alive(pid), 10.0, "end of the process on the host")


def test_a_lab_that_is_at_work_is_left_alone(owner, make_lab):
    _, prefix, pid = owner
    make_lab(1, 100)
    assert len(namespaces(prefix)) == 3 and alive(pid)


def test_a_lab_says_what_it_lacks(lab_module, monkeypatch):
    monkeypatch.setattr(lab_module.shutil, "which", lambda tool: None)
    assert "iproute2" in lab_module.missing()
    with pytest.raises(lab_module.LabError, match="iproute2"):
        lab_module.Lab(1, 100)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
