"""Trainings whose actors compute gradients: repeatable in serial mode, not to be stopped by deaths in parallel mode."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from lamarckian.evaluate.gradients import HeldVersion
from lamarckian.evaluate.training import train
from lamarckian.recipe import load, resolve
from lamarckian.record.progress import Progress
from lamarckian.record.run import create
from lamarckian.record.run import resume as reopen
from lamarckian.transport.versions import VersionBoard
from tests.commands import run, start, wait_for
from tests.evaluate.test_training import ROOT, assert_same, children, metrics, saved

SMALL = ["network.hidden=[16]", "actor.matches=8", "actor.fragment=16", "learner.threads=1"]
EASY = {
    "game": {"name": "tests.evaluate.games:Faulty"},
    "network": {"hidden": [16]},
    "algorithm": {"name": "a3c", "learning_rate": 0.01},
    "actor": {"matches": 8, "fragment": 16, "count": 1},
    "learner": {"batch": 128, "threads": 1},
    "record": {"every_s": 0.2},
}


def train_here(folder: Path, document: dict, then: int | None = None) -> None:
    """Trains in this process, in serial mode; and goes on to `then` updates."""
    recipe = resolve({**document, "mode": "serial"})
    with create(folder, recipe) as fresh:
        train(recipe, fresh, Progress("", recipe.stop, quiet=True))
    if then is not None:
        old, recipe = reopen(folder, [f"stop.updates={then}"])
        with old:
            train(recipe, old, Progress("", recipe.stop, quiet=True), resume=True)


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("cartpole/a3c", ["learner.batch=128"]),
        ("pong/a3c", ["learner.batch=128", "game.rounds=1", "game.rally_ticks=100"]),
        ("pong/a3c", ["learner.batch=256", "game.rounds=1", "game.rally_ticks=100", "roles.right={agent: learner}"]),
    ],
    ids=["coroutines", "batched", "two-roles"],
)
def test_serial_runs_repeat_and_resume_bit_for_bit(recipe, more, tmp_path):
    constant = ["algorithm.learning_rate_schedule=constant", "algorithm.final_entropy_weight=null"]
    document = load(recipe, [*SMALL, *more, *constant]).model_dump(mode="json")
    train_here(tmp_path / "whole", {**document, "stop": {"updates": 12}})
    train_here(tmp_path / "again", {**document, "stop": {"updates": 12}})
    train_here(tmp_path / "half", {**document, "stop": {"updates": 6}}, then=12)
    whole = saved(tmp_path / "whole")
    assert whole.version == 12
    assert_same(whole, saved(tmp_path / "again"))
    assert_same(whole, saved(tmp_path / "half"))
    assert all(line["staleness"] == line["staleness/max"] == 0 for line in metrics(tmp_path / "whole"))


def test_a_held_version_stays_until_it_is_renewed():
    board = VersionBoard.create(5)
    held, into = HeldVersion(board, 5), np.zeros(3, np.float32)
    assert not held.renew() and held.take(into, -1) is None
    board.publish(4, np.arange(5, dtype=np.float32))
    assert held.renew() and not held.renew()
    board.publish(5, np.full(5, 9.0, np.float32))
    assert held.take(into, -1) == 4 and into.tolist() == [0, 1, 2]
    assert held.take(into, 4) is None
    assert held.renew() and held.version == 5 and held.publication.tolist() == [9.0] * 5
    board.close()


def test_weights_of_rewards_decide_what_actors_learn(tmp_path):
    for name, weights in (("brave", {"careful": 0.1}), ("careful", {"brave": 0.1})):
        document = {**EASY, "game": {"name": "tests.evaluate.games:Chosen"}, "rewards": {"weights": weights}, "stop": {"updates": 60}}
        train_here(tmp_path / name, {**document, "record": {"score_window": 16, "every_s": 0.001}})
    brave, careful = (metrics(tmp_path / name)[-1] for name in ("brave", "careful"))
    assert brave["score"] > 0.8 > 0.2 > careful["score"]
    assert brave["reward/brave"] + brave["reward/careful"] == pytest.approx(1.0)
    assert brave["steps"] == 60 * 128


@pytest.fixture
def parallel(tmp_path):
    processes = []

    def begin(*more: str):  # type: ignore[no-untyped-def]
        overrides = [*SMALL, "learner.batch=128", "record.every_s=0.2", "checkpoint.every_s=1", "stop={updates: 1000000}", *more]
        processes.append(start("train", "cartpole/a3c", *overrides, "--run", tmp_path / "run", "--no-video", cwd=ROOT))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_a_killed_actor_is_replaced_and_training_goes_on(parallel, tmp_path):
    process = parallel("actor.count=2")
    wait_for(lambda: metrics(tmp_path / "run"), 60, "metrics")
    victim = children(process)[0]
    os.kill(victim.pid, signal.SIGKILL)
    wait_for(lambda: len([child for child in children(process) if child.pid != victim.pid]) == 2, 10, "new actor")
    updates = metrics(tmp_path / "run")[-1]["updates"]
    wait_for(lambda: metrics(tmp_path / "run")[-1]["updates"] > updates + 20, 30, "progress")
    line = metrics(tmp_path / "run")[-1]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "was ended by SIGKILL" in err and "starting it anew" in err and "Traceback" not in err
    assert saved(tmp_path / "run").version > updates
    shares = [line[f"actor/{name}"] for name in ("environment", "inference", "bookkeeping", "waiting", "learning")]
    assert sum(shares) == pytest.approx(1.0) and line["actor/learning"] > 0


def test_gradients_that_are_too_old_are_dropped_and_counted(parallel, tmp_path):
    parallel("actor.count=3", "algorithm.max_staleness=0")
    lines = wait_for(lambda: [line for line in metrics(tmp_path / "run") if line["pool/stale"] > 5 and line["updates"] > 5], 60, "drops")
    assert all(line["staleness"] == line["staleness/max"] == 0 for line in lines)
    assert lines[-1]["steps"] == 128 * lines[-1]["updates"]


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_a_number_that_is_not_finite_ends_the_run_and_is_named(mode, tmp_path):
    (tmp_path / "easy.yaml").write_text(yaml.safe_dump({**EASY, "mode": mode}))
    bad = ["algorithm.learning_rate=1e30", "algorithm.max_gradient_norm=null", "stop.updates=1000"]
    done = run("train", tmp_path / "easy.yaml", *bad, "--run", tmp_path / "run", "--no-video", "--quiet", cwd=ROOT)
    assert done.returncode == 1, done.stderr
    assert "A3C, gradient at version 1: loss.policy.a is -inf" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_easy_game_is_learned_by_several_actors(tmp_path):
    (tmp_path / "easy.yaml").write_text(yaml.safe_dump({**EASY, "actor": {**EASY["actor"], "count": 2}}))
    done = run("train", tmp_path / "easy.yaml", "stop.updates=300", "--run", tmp_path / "run", "--no-video", "--quiet", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert saved(tmp_path / "run").score > 0.8
