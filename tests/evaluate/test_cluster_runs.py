"""Whole trainings with a supervisor, a learner and stations, each in processes of their own, on this machine that passes for several."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from lamarckian.record import checkpoint
from lamarckian.record.run import Run, open_run
from lamarckian.record.status import MachineStatus, read_status
from tests.commands import run, start, wait_for
from tests.evaluate.clusters import ROOT, SMALL


def metrics(folder: Path) -> list[dict]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def family(pid: int) -> dict[int, str]:
    """The names of all processes that belong to a run, by their numbers."""
    found = {}
    for child in psutil.Process(pid).children(recursive=True):
        try:
            command = child.cmdline()
        except psutil.Error:
            continue
        if "lamarckian.cluster.child" in command:
            found[child.pid] = command[-1]
    return found


def train(folder: Path, *more: str, recipe: str = "cartpole/ppo"):  # type: ignore[no-untyped-def]
    return start("train", recipe, *SMALL, "stop={}", "checkpoint.every_s=1", *more, "--run", folder, "--no-video", cwd=ROOT)


def end(process) -> str:  # type: ignore[no-untyped-def]
    """Stops a run by Ctrl-C; what it said."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return err


def test_two_machines_train_together_and_nothing_is_left(tmp_path):
    done = run(
        "train", "cartpole/ppo", *SMALL, "cluster.machines=2", "stop={updates: 30}", "--run", tmp_path / "run", "--no-video", cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    last = metrics(tmp_path / "run")[-1]
    assert last["updates"] == 30 and last["steps"] == 30 * 256
    assert last["pool/produced"] >= last["pool/used"] >= 28
    assert checkpoint.load(open_run(tmp_path / "run")).version == 30
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_the_status_names_machines_processes_and_queues(tmp_path):
    def is_settled(machine: MachineStatus) -> bool:
        return machine.actors == 1 and machine.queues.get("fragments", 0) > 0

    process = train(tmp_path / "run", "cluster.machines=2")
    opened = Run(tmp_path / "run")
    try:
        wait_for((tmp_path / "run" / "status.json").exists, 60, "status")
        wait_for(lambda: sum(is_settled(machine) for machine in read_status(opened).machines) == 2, 60, "two machines at work")
        told = json.loads(run("status", tmp_path / "run", "--json").stdout)
        shown = run("status", tmp_path / "run").stdout
        names = set(family(process.pid).values())
    finally:
        err = end(process)
    assert process.returncode == 1 and "interrupted; saved" in err
    here, *machines = told["machines"]
    assert {machine["name"] for machine in machines} == {"machine-0", "machine-1"}
    assert {"learner", "root", "pool"} == {process["name"] for process in here["processes"]}
    for machine in machines:
        kinds = {process["name"].partition("-")[0] for process in machine["processes"]}
        assert kinds == {"relay", "dispatch", "actor"} and machine["actors"] == 1 and machine["version"] >= 0
        assert machine["queues"]["fragments"] > 0
    assert shown.startswith("at work") and "machine-1 at 127.0.0.1" in shown and "relay" in shown
    assert {"station-machine-0", "station-machine-1", "learner-0", "root", "pool", "relay", "dispatch"} <= names
    assert "not at work" in run("status", tmp_path / "run").stdout


@pytest.mark.parametrize("victim", ["root", "pool", "relay", "dispatch", "actor-", "station-machine-0"])
def test_what_is_killed_is_replaced_and_training_goes_on(victim, tmp_path):
    process = train(tmp_path / "run")
    try:
        wait_for(lambda: metrics(tmp_path / "run") and metrics(tmp_path / "run")[-1]["updates"] > 5, 60, "updates")
        pid, name = next((pid, name) for pid, name in family(process.pid).items() if name.startswith(victim))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: any(other != pid and there.startswith(victim) for other, there in family(process.pid).items()), 20, "another")
        updates = metrics(tmp_path / "run")[-1]["updates"]
        wait_for(lambda: metrics(tmp_path / "run")[-1]["updates"] > updates + 20, 60, "progress")
    finally:
        err = end(process)
    assert process.returncode == 1
    assert f"{name} was ended by SIGKILL" in err
    updates = [line["updates"] for line in metrics(tmp_path / "run")]
    assert updates == sorted(updates)


def test_a_killed_learner_goes_on_from_its_last_checkpoint(tmp_path):
    process = train(tmp_path / "run")
    try:
        folder = tmp_path / "run" / "checkpoints"
        wait_for(lambda: list(folder.glob("[0-9]*")), 60, "checkpoint")
        pid = next(pid for pid, name in family(process.pid).items() if name == "learner-0")
        os.kill(pid, signal.SIGKILL)
        before = max(int(path.name) for path in folder.glob("[0-9]*"))
        wait_for(lambda: metrics(tmp_path / "run")[-1]["steps"] > before + 20 * 256, 60, "progress")
    finally:
        err = end(process)
    assert process.returncode == 1
    assert f"going on from checkpoint {before}" in err
    steps = [line["steps"] for line in metrics(tmp_path / "run")]
    assert steps == sorted(set(steps))


def test_an_error_of_the_game_ends_the_run_and_says_what_it_was(tmp_path):
    game = {"game": {"name": "tests.evaluate.games:Faulty", "fault": "observation"}, "cluster": {"address": "local"}}
    (tmp_path / "faulty.yaml").write_text(yaml.safe_dump(game))
    done = run("train", tmp_path / "faulty.yaml", "actor.count=1", "--run", tmp_path / "run", "--no-video", cwd=ROOT)
    assert done.returncode == 1, done.stderr
    assert "error: " in done.stderr and "input 'x' is not finite: [nan]" in done.stderr


@pytest.mark.parametrize("recipe", ["cartpole/a3c", "cartpole/dqn", "cartpole/impala"])
def test_other_algorithms_learn_from_many_machines_too(recipe, tmp_path):
    shape = ["actor.matches=8", "actor.fragment=16", "actor.count=1", "learner.batch=128", "learner.threads=1", "record.every_s=0.2"]
    where = ["cluster.address=local", "cluster.machines=2"]
    done = run("train", recipe, *shape, *where, "stop={updates: 20}", "--run", tmp_path / "run", "--no-video", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "run")[-1]["updates"] == 20


def test_two_learners_learn_together_and_count_for_both(tmp_path):
    where = ["cluster.machines=2", "cluster.learners=2", "stop={updates: 20}"]
    done = run("train", "cartpole/ppo", *SMALL, *where, "--run", tmp_path / "run", "--no-video", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    last = metrics(tmp_path / "run")[-1]
    assert last["updates"] == 20 and last["steps"] == 20 * 256 and last["time/ring"] > 0


def test_a_learner_of_two_is_killed_and_both_go_on_from_the_last_checkpoint(tmp_path):
    process = train(tmp_path / "run", "cluster.learners=2")
    try:
        folder = tmp_path / "run" / "checkpoints"
        wait_for(lambda: list(folder.glob("[0-9]*")), 60, "checkpoint")
        os.kill(next(pid for pid, name in family(process.pid).items() if name == "learner-1"), signal.SIGKILL)
        before = max(int(path.name) for path in folder.glob("[0-9]*"))
        wait_for(lambda: metrics(tmp_path / "run")[-1]["steps"] > before + 20 * 256, 90, "progress")
    finally:
        err = end(process)
    assert process.returncode == 1 and "going on from checkpoint" in err and "learner-1 was ended by SIGKILL" in err
    steps = [line["steps"] for line in metrics(tmp_path / "run")]
    assert steps == sorted(set(steps))


def test_the_channels_of_a_cluster_take_a_key(tmp_path):
    assert run("keys", tmp_path / "key").returncode == 0
    where = [f"cluster.keys={tmp_path / 'key'}", "stop={updates: 10}"]
    done = run("train", "cartpole/ppo", *SMALL, *where, "--run", tmp_path / "run", "--no-video", cwd=ROOT)
    assert done.returncode == 0, done.stderr
