"""Whole trainings with a supervisor, a learner and stations, each in processes of their own, on this machine that passes for several."""

from __future__ import annotations

import json
import shutil
import tempfile

import pytest
import yaml

from lamarckian.record import checkpoint
from lamarckian.record.run import Run, open_run
from lamarckian.record.status import MachineStatus, read_status
from tests.commands import run, wait_for
from tests.evaluate.clusters import BATCH, SMALL, ClusterRun, begin

ONE = "cluster.machines=1"


def learned(going: ClusterRun) -> dict:
    """The last line of metrics of a training that comes to its end, and leaves nothing."""
    with going:
        assert going.process.wait(120) == 0, going.said
        going.wait_until_nothing_is_left()
        return going.look()[-1]


def names(going: ClusterRun) -> dict[int, str]:
    """The names of all processes of a run, by their numbers."""
    return {process.pid: process.cmdline()[-1] for process in going.named("") if "lamarckian.cluster.child" in process.cmdline()}


def saved(going: ClusterRun) -> list[int]:
    """The steps of its checkpoints."""
    return sorted(int(path.name) for path in (going.folder / "checkpoints").glob("[0-9]*"))


def grows(numbers: list[int]) -> bool:
    return numbers == sorted(set(numbers))


def test_two_machines_train_together_and_nothing_is_left(tmp_path):
    last = learned(begin(tmp_path / "run", "stop={updates: 30}"))
    assert last["updates"] == 30 and last["steps"] == 30 * BATCH
    assert last["pool/produced"] >= last["pool/used"] >= 28
    assert checkpoint.load(open_run(tmp_path / "run")).version == 30


def test_the_status_names_machines_processes_and_queues(tmp_path):
    def is_settled(machine: MachineStatus) -> bool:
        return machine.actors == 1 and machine.queues.get("fragments", 0) > 0

    with begin(tmp_path / "run") as going:
        opened = Run(going.folder)
        wait_for(opened.status_path.exists, 60, "status")
        wait_for(lambda: sum(is_settled(machine) for machine in read_status(opened).machines) == 2, 60, "two machines at work")
        told = json.loads(run("status", going.folder, "--json").stdout)
        shown = run("status", going.folder).stdout
        there = set(names(going).values())
        assert going.interrupt() == 1 and "interrupted; saved" in going.said
    here, *machines = told["machines"]
    assert {machine["name"] for machine in machines} == {"machine-0", "machine-1"}
    assert {"learner-0", "root", "pool"} == {process["name"] for process in here["processes"]}
    for machine in machines:
        kinds = {process["name"].partition("-")[0] for process in machine["processes"]}
        assert kinds == {"relay", "dispatch", "actor"} and machine["actors"] == 1 and machine["version"] >= 0
        assert machine["queues"]["fragments"] > 0
    assert shown.startswith("at work") and "machine-1 at 127.0.0.1" in shown and "relay" in shown
    assert {"station-machine-0", "station-machine-1", "learner-0", "root", "pool", "relay", "dispatch"} <= there
    assert "not at work" in run("status", tmp_path / "run").stdout


@pytest.mark.parametrize("victim", ["root", "pool", "relay", "dispatch", "actor-", "station-machine-0"])
def test_what_is_killed_is_replaced_and_training_goes_on(victim, tmp_path):
    with begin(tmp_path / "run", ONE) as going:
        going.wait_for_updates(5, 60)
        [process] = going.named(victim)
        name = names(going)[process.pid]
        process.kill()
        wait_for(lambda: [other for other in going.named(victim) if other.pid != process.pid], 20, "another")
        going.wait_for_updates(20, 60)
        assert going.interrupt() == 1
        assert f"{name} was ended by SIGKILL" in going.said
        assert grows([line["updates"] for line in going.look()])


@pytest.mark.parametrize(("learners", "victim"), [(1, "learner-0"), (2, "learner-1")])
def test_a_killed_learner_goes_on_from_its_last_checkpoint(learners, victim, tmp_path):
    with begin(tmp_path / "run", ONE, f"cluster.learners={learners}") as going:
        wait_for(lambda: saved(going), 60, "checkpoint")
        [process] = going.named(victim)
        process.kill()
        wait_for(lambda: "going on from checkpoint" in going.said, 60, "next life")
        before = saved(going)[-1]
        wait_for(lambda: going.look()[-1]["steps"] > before + 20 * BATCH, 90, "progress")
        assert going.interrupt() == 1
        assert f"{victim} was ended by SIGKILL" in going.said
        lines = (going.folder / "metrics.jsonl").read_text().splitlines()
    assert grows([json.loads(line)["steps"] for line in lines])


def test_an_error_of_the_game_ends_the_run_and_says_what_it_was(tmp_path):
    game = {"game": {"name": "tests.evaluate.games:Faulty", "fault": "observation"}, "cluster": {"address": "local"}}
    (tmp_path / "faulty.yaml").write_text(yaml.safe_dump(game))
    with ClusterRun(tmp_path / "run", "train", tmp_path / "faulty.yaml", "actor.count=1", "--run", tmp_path / "run", "--no-video") as going:
        assert going.process.wait(120) == 1
        assert "error: " in going.said and "input 'x' is not finite: [nan]" in going.said
        going.wait_until_nothing_is_left()


@pytest.mark.parametrize("recipe", ["cartpole/a3c", "cartpole/dqn", "cartpole/impala"])
def test_other_algorithms_learn_from_many_machines_too(recipe, tmp_path):
    shape = [setting for setting in SMALL if setting.startswith(("actor.", "learner.threads", "record.", "cluster."))]
    more = ["cluster.machines=2", "learner.batch=128", "stop={updates: 20}", "--run", tmp_path / "run", "--no-video"]
    assert learned(ClusterRun(tmp_path / "run", "train", recipe, *shape, *more))["updates"] == 20


def test_ray_places_what_runs(tmp_path, monkeypatch, request):
    ray = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets have long names
    request.addfinalizer(lambda: shutil.rmtree(ray, ignore_errors=True))
    monkeypatch.setenv("RAY_TMPDIR", ray)  # not to join what others have started here
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    going = begin(tmp_path / "run", ONE, "cluster.address=auto", "cluster.learners=2", "stop={updates: 20}")
    assert learned(going)["updates"] == 20
    assert "open to whoever" not in going.said  # a Ray of one's own is nobody else's


def test_a_pool_with_no_room_for_a_fragment_is_refused_before_anything_starts(tmp_path):
    done = run("train", "cartpole/ppo", *SMALL, "cluster.pool.size=1KB", "--run", tmp_path / "run")
    assert done.returncode == 2 and "cluster.pool.size: given 1KB; a fragment of this recipe has" in done.stderr


def test_two_learners_learn_together_and_count_for_both(tmp_path):
    last = learned(begin(tmp_path / "run", "cluster.learners=2", "stop={updates: 20}"))
    assert last["updates"] == 20 and last["steps"] == 20 * BATCH and last["time/ring"] > 0


def test_the_channels_of_a_cluster_take_a_key(tmp_path):
    assert run("keys", tmp_path / "key").returncode == 0
    assert learned(begin(tmp_path / "run", f"cluster.keys={tmp_path / 'key'}", "stop={updates: 10}"))["updates"] == 10
