import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from contract import *  # noqa: F403
from contract import HERE, gone, stop_untold, wait, wait_until_gone

import lamarckian
from lamarckian.cluster import ray as room
from lamarckian.cluster.ray import RayCluster
from lamarckian.errors import MisuseError, ProcessError
from tests.commands import wait_for

pytest.importorskip("ray")
STORE_BYTES = 80 << 20
LOSS_S = 40.0


@pytest.fixture(scope="module")
def folder():
    """Where Ray keeps its files in these tests: short, as paths of sockets must be."""
    path = tempfile.mkdtemp(prefix="ray-")
    yield Path(path)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def ray_cluster(folder):
    """A Ray cluster of one node, which another program made. Its processes die with this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        for setting, value in (("period_ms", 500), ("timeout_ms", 2000), ("failure_threshold", 3)):
            patch.setenv(f"RAY_health_check_{setting}", str(value))
        for name in ("RAY_ADDRESS", "OMP_NUM_THREADS"):
            patch.delenv(name, raising=False)
        patch.syspath_prepend(str(HERE))
        from ray._private.authentication_test_utils import reset_auth_token_state
        from ray.cluster_utils import Cluster

        reset_auth_token_state()
        head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            with RayCluster(cluster.address):  # it takes Ray longer to join than to go on
                yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture
def make_cluster(ray_cluster):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(RayCluster("auto", **options))


@pytest.fixture(scope="module")
def second(ray_cluster):
    """A second node, for the tests that do not end it."""
    node = ray_cluster.add_node(num_cpus=3, num_gpus=1, object_store_memory=STORE_BYTES)  # Ray believes what it is told
    yield node
    ray_cluster.remove_node(node)


def keeper_of(pid: int) -> int:
    return psutil.Process(pid).ppid()


def processes(folder: Path) -> list[str]:
    """Ray's processes that keep their files there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [line for process in psutil.process_iter() if str(folder) in (line := " ".join(process.cmdline()))]
    return processes(folder)


def drive(address: str, folder: Path, **options) -> subprocess.Popen:
    environment = {**os.environ, "RAY_TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, str(HERE / "driver.py"), address]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def ready(driver: subprocess.Popen) -> tuple[int, int, str]:
    line = driver.stdout.readline()
    assert line.startswith("ready "), line + driver.communicate(timeout=60)[0]
    _, child, keeper, handler = line.split()
    return int(child), int(keeper), handler


def test_descriptors_are_refused(cluster):
    with pytest.raises(ValueError, match="descriptors, which mean nothing on another machine"):
        cluster.start("actor", "children:sleep", {}, fds=[0])


def test_a_process_that_cannot_be_started_is_an_error(cluster):
    with pytest.raises(ProcessError, match=r"actor cannot be started on .*: illegal environment variable name"):
        cluster.start("actor", "children:sleep", {}, environment={"A=B": "c"})
    assert cluster.start("actor", "children:sleep", {}).attempt == 0


def test_a_child_has_no_thread_count_of_rays(cluster, tmp_path):
    cluster.start("actor", "children:tell", {"path": str(tmp_path / "told"), "text": ""})
    assert wait(cluster).code == 0
    assert (tmp_path / "told").read_text() == "0 None False False 0"


def test_an_end_that_is_under_way_when_its_process_is_stopped_is_not_told(cluster):
    first = cluster.start("actor", "children:sleep", {})
    time.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    wait_until_gone([first.pid])
    assert cluster.poll() == []  # it asks the keeper, whose answer will have the end in it
    stop_untold(cluster)


def test_machines_have_names_and_what_other_jobs_leave_them(cluster, second):
    import ray

    wait_for(lambda: [machine.cores for machine in cluster.machines()] == [2, 3], 20.0, "free cores")
    here, there = cluster.machines()
    assert (here.gpus, there.gpus) == (0, 1)
    assert here.name == here.address == there.address and there.name == f"{here.name}-2"

    @ray.remote(num_cpus=1)
    class Other:
        def answer(self) -> int:
            return 1

    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    other = Other.options(scheduling_strategy=affinity(ray.get_runtime_context().get_node_id(), soft=False)).remote()
    ray.get(other.answer.remote())
    wait_for(lambda: [machine.cores for machine in cluster.machines()] == [1, 3], 20.0, "core fewer")
    cluster.start("actor", "children:sleep", {})
    assert [machine.cores for machine in cluster.machines()] == [1, 3]
    wait_for(lambda: ray.available_resources().get("CPU") == 3, 20.0, "reserve")
    ray.kill(other)


@pytest.mark.parametrize("taken", [False, True])
def test_a_child_sees_the_gpus_that_are_reserved(cluster, second, tmp_path, taken):
    import ray

    wait_for(lambda: cluster.machines()[1].gpus == 1, 20.0, "free GPU")
    if taken:
        other = ray.remote(num_gpus=1)(type("Other", (), {"answer": lambda self: 1})).remote()
        ray.get(other.answer.remote())
        wait_for(lambda: cluster.machines()[1].gpus == 0, 20.0, "GPU taken by somebody else")
    cluster.start("actor", "children:see_gpus", {"path": str(tmp_path / "seen")}, machine=cluster.machines()[1].name)
    assert wait(cluster).code == 0
    assert (tmp_path / "seen").read_text() == ("" if taken else "0")
    if taken:
        ray.kill(other)


def test_cores_that_somebody_else_has_taken_meanwhile(cluster, monkeypatch):
    import ray

    machine = wait_for(lambda: next((machine for machine in cluster.machines() if machine.cores == 2), None), 20.0, "free cores")
    other = ray.remote(num_cpus=2)(type("Other", (), {"answer": lambda self: 1})).remote()
    ray.get(other.answer.remote())
    monkeypatch.setattr(cluster, "_machine", lambda *_: machine)
    monkeypatch.setattr(room, "_version_there", lambda *_: ray.put(lamarckian.__version__))
    monkeypatch.setattr(room, "_START_S", 1.0)
    with pytest.raises(ProcessError, match=f"{machine.name} gave us no 2 cores and 0 GPUs within 1 s; `ray status` says who"):
        cluster.start("actor", "children:sleep", {})
    ray.kill(other)


def test_children_of_one_machine_do_not_mind_the_other(cluster, second):
    here, there = cluster.machines()
    left, right = (cluster.start(name, "children:sleep", {}, machine=machine.name) for name, machine in (("left", here), ("right", there)))
    assert keeper_of(left.pid) != keeper_of(right.pid)
    os.kill(right.pid, signal.SIGKILL)
    assert wait(cluster).name == "right" and not gone(left.pid)
    again = cluster.restart("right")
    assert keeper_of(again.pid) == keeper_of_machine(cluster, there.name)


def keeper_of_machine(cluster: RayCluster, machine: str) -> int:
    pid = cluster.start(f"probe of {machine}", "children:sleep", {}, machine=machine).pid
    return keeper_of(pid)


def test_a_killed_keeper_takes_its_children_along_and_is_made_anew(cluster, second):
    here, there = cluster.machines()
    mine = cluster.start("mine", "children:sleep", {})
    theirs = [cluster.start(name, "children:sleep", {}, machine=there.name) for name in "ab"]
    os.kill(keeper_of(theirs[0].pid), signal.SIGKILL)
    exits = []
    wait_for(lambda: exits.extend(cluster.poll()) or len(exits) == 2, 30.0, "end of two processes")
    for name, exit in zip("ab", sorted(exits, key=lambda exit: exit.name), strict=True):
        assert (exit.name, exit.attempt, exit.code, exit.signal, exit.failure.kind) == (name, 0, None, None, "")
        assert exit.describe() == f"{name} failed: the machine {there.name} is gone, or the keeper of the processes there"
        assert type(exit.error()) is ProcessError
    wait_until_gone([process.pid for process in theirs])
    assert cluster.restart("a").attempt == 1
    assert cluster.start("c", "children:sleep", {}, machine=there.name).attempt == 0
    assert [machine.name for machine in cluster.machines()] == [here.name, there.name]
    assert not gone(mine.pid) and cluster.poll() == []


def test_a_keeper_whose_death_was_not_told_is_made_anew_too(cluster):
    first = cluster.start("a", "children:sleep", {})
    os.kill(keeper_of(first.pid), signal.SIGKILL)
    second = cluster.start("b", "children:sleep", {})
    assert not gone(second.pid)
    assert wait(cluster).name == "a"
    cluster.stop("a")
    assert not gone(second.pid)


def test_a_process_on_a_lost_machine_can_be_stopped(cluster):
    first = cluster.start("a", "children:sleep", {})
    os.kill(keeper_of(first.pid), signal.SIGKILL)
    cluster.stop("a")
    assert cluster.poll() == []


def test_deaths_count_across_keepers(make_cluster):
    cluster = make_cluster(max_deaths=1)
    neighbour = cluster.start("b", "children:sleep", {})
    cluster.start("a", "children:die", {})
    wait(cluster)
    os.kill(keeper_of(neighbour.pid), signal.SIGKILL)
    assert wait(cluster).outside
    cluster.restart("a")
    wait(cluster)
    with pytest.raises(ProcessError, match="ended 2 times within 60 s"):
        cluster.restart("a")


def test_a_machine_that_is_lost_and_one_that_joins(cluster, ray_cluster):
    names = [machine.name for machine in cluster.machines()]
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    (lost,) = [machine for machine in cluster.machines() if machine.name not in names]
    assert lost.cores == 1
    process = cluster.start("a", "children:sleep", {}, machine=lost.name)
    ray_cluster.remove_node(node, allow_graceful=False)
    exit = wait(cluster, LOSS_S)
    assert exit.name == "a" and f"machine {lost.name} is gone" in exit.describe()
    wait_until_gone([process.pid])
    wait_for(lambda: [machine.name for machine in cluster.machines()] == names, LOSS_S, "loss")
    with pytest.raises(ProcessError, match=rf"a is to run on '{lost.name}', but the machines are {names[0]}"):
        cluster.restart("a")


def test_another_version_is_refused(cluster, monkeypatch):
    there = lamarckian.__version__
    monkeypatch.setattr(lamarckian, "__version__", "9.9")
    with pytest.raises(ProcessError, match=rf"has Lamarckian {there}, this machine has 9.9; install the same .* lamarckian==9.9"):
        cluster.start("actor", "children:sleep", {})


def test_a_machine_without_lamarckian_is_refused(cluster, monkeypatch):
    import ray

    monkeypatch.setattr(room, "_version_there", lambda *_: ray.put(""))
    with pytest.raises(ProcessError, match=f"{cluster.machines()[0].name} has no Lamarckian that its Python finds, this machine has"):
        cluster.start("actor", "children:sleep", {})


def test_a_process_joins_one_cluster(cluster, ray_cluster):
    with RayCluster("auto") as same:
        assert [machine.name for machine in same.machines()] == [machine.name for machine in cluster.machines()]
        same.start("actor", "children:sleep", {})
    with pytest.raises(MisuseError, match=r"this process has joined a Ray cluster before, and cannot join 10\.0\.0\.1:6379"):
        RayCluster("10.0.0.1:6379")
    assert cluster.machines()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"no Ray cluster at .*:1: Connection refused. Is it there \(`ray start --head`\)"),
        ("nonsense", "is 'auto' or HOST:PORT, not 'nonsense'"),
    ],
)
def test_a_cluster_that_is_not_there(address, message, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(MisuseError, match=message):
        RayCluster(address)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MisuseError, match=r"Ray, which is not installed: pip install 'lamarckian\[cluster\]'"):
        RayCluster()


def test_ray_is_imported_only_when_it_is_used():
    code = "import sys, lamarckian.cli, lamarckian.cluster.ray; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_killed_driver_leaves_nothing_running(ray_cluster, folder):
    driver = drive(ray_cluster.address, folder)
    child, keeper, _ = ready(driver)
    driver.kill()
    driver.communicate()
    wait_until_gone([child, keeper])


def test_a_cluster_that_is_started_is_quiet_and_ended_and_leaves_signals_alone(folder):
    own = folder / "own"
    (own / "ray").mkdir(parents=True)
    (own / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # of one that was killed
    driver = drive("auto", own, start_new_session=True)
    child, _, handler = ready(driver)
    assert handler == "SIG_IGN" and processes(own)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    out, _ = driver.communicate(timeout=60)
    address = out.splitlines()[-1].split(" machine ")[1].split()[0]
    assert out == f"[] True\nactor failed: the machine {address} is gone, or the keeper of the processes there\n"
    assert driver.returncode == 0
    wait_until_gone([child])
    wait_for(lambda: not processes(own), 20.0, "end of Ray")
