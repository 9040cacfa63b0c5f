"""Whole trainings: exactly repeatable in serial mode, and not to be stopped by deaths in parallel mode."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from lamarckian.errors import RecipeError
from lamarckian.evaluate.plan import build_learning, plan
from lamarckian.evaluate.training import train
from lamarckian.recipe import load
from lamarckian.record import checkpoint
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen
from tests.commands import SMALL, run, start, wait_for

ROOT = Path(__file__).parents[2]
# Schedules are by the share of a run that is done, so a run and its half differ where there is one.
SERIAL = [*SMALL, "mode=serial", "learner.threads=1", "algorithm.learning_rate_schedule=constant", "algorithm.final_entropy_weight=null"]
FAULTY = {"game": {"name": "tests.evaluate.games:Faulty"}, "record": {"every_s": 0.2}}


def metrics(folder: Path) -> list[dict]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def saved(folder: Path) -> checkpoint.Checkpoint:
    return checkpoint.load(open_run(folder))


def assert_same(left: checkpoint.Checkpoint, right: checkpoint.Checkpoint) -> None:
    assert (left.steps, left.version, left.score) == (right.steps, right.version, right.score)
    for one, other in ((left.policy, right.policy), (left.optimizer, right.optimizer), (left.arrays, right.arrays)):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert left.state["outcomes"] == right.state["outcomes"]
    assert left.state["fleet"] == right.state["fleet"]


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("cartpole/ppo", []),
        ("pong/ppo", ["game.rounds=1", "game.rally_ticks=100"]),
        ("pong/ppo", ["game.rounds=1", "game.rally_ticks=100", "actor.way=coroutines"]),
        ("cartpole/ppo", ["network.memory={kind: gru, size: 8}"]),
        ("pong/ppo", ["game.rounds=1", "game.rally_ticks=100", "network.memory={size: 8, truncation: 4}"]),
    ],
    ids=["coroutines", "batched", "two-roles", "recurrent", "recurrent-batched"],
)
def test_serial_runs_repeat_and_resume_bit_for_bit(recipe, more, tmp_path):
    train_here(tmp_path / "whole", recipe, *more, "stop={updates: 8}")
    train_here(tmp_path / "again", recipe, *more, "stop={updates: 8}")
    train_here(tmp_path / "half", recipe, *more, "stop={updates: 4}")
    run, resumed = reopen(tmp_path / "half", ["stop.updates=8"])
    with run:
        train(resumed, run, Progress("", resumed.stop, quiet=True), resume=True)
    whole = saved(tmp_path / "whole")
    assert whole.version == 8
    assert_same(whole, saved(tmp_path / "again"))
    assert_same(whole, saved(tmp_path / "half"))
    train_here(tmp_path / "other", recipe, *more, "stop={updates: 8}", "seed=1")
    other = saved(tmp_path / "other")
    assert any(not np.array_equal(array, other.policy[name]) for name, array in whole.policy.items())


def train_here(folder: Path, recipe: str, *more: str) -> None:
    """Trains in this process, in serial mode."""
    resolved = load(recipe, [*SERIAL, *more])
    with create(folder, resolved) as run:
        train(resolved, run, Progress("", resolved.stop, quiet=True))


@pytest.mark.parametrize(
    ("recipe", "change", "says"),
    [
        ("cartpole/ppo", "learning_rate_schedule=linear", "learning_rate_schedule: given 'linear'; .* has no end: give 'constant', or"),
        ("cartpole/dqn", "learning_rate_schedule=cosine", "algorithm.learning_rate_schedule: given 'cosine'"),
        ("cartpole/impala", "final_entropy_weight=0.5", "algorithm.final_entropy_weight: given 0.5; .* give 0.01, or stop.steps"),
        ("cartpole/dqn", "final_importance_exponent=0.5", "algorithm.final_importance_exponent: given 0.5; .* give 0.4, or"),
    ],
)
def test_a_schedule_needs_an_end(recipe, change, says):
    still = ["algorithm.learning_rate_schedule=constant"]
    still += ["algorithm.epsilon_steps=100"] if recipe.endswith("dqn") else ["algorithm.final_entropy_weight=null"]
    for more, refused in (([f"algorithm.{change}"], True), ([], False)):
        resolved = load(recipe, [*still, *more, "stop={score: 500}"])
        with pytest.raises(RecipeError, match=says) if refused else contextlib.nullcontext():
            build_learning(plan(resolved))


def train_parallel(folder: Path, *more: str):  # type: ignore[no-untyped-def]
    overrides = [
        *SMALL,
        "learner.threads=1",
        "actor.count=2",
        "record.every_s=0.2",
        "checkpoint.every_s=1",
        "stop={updates: 1000000}",
        *more,
    ]
    return start("train", "cartpole/ppo", *overrides, "--run", folder, "--no-video", cwd=ROOT)


def children(process) -> list[psutil.Process]:  # type: ignore[no-untyped-def]
    """The actors that are alive."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # dead by now
            if "lamarckian.cluster.child" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_a_killed_actor_is_replaced_and_training_goes_on(tmp_path):
    process = train_parallel(tmp_path / "run")
    try:
        wait_for(lambda: metrics(tmp_path / "run"), 60, "metrics")
        victim = children(process)[0]
        os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda: len([child for child in children(process) if child.pid != victim.pid]) == 2, 5, "new actor")
        updates = metrics(tmp_path / "run")[-1]["updates"]
        wait_for(lambda: metrics(tmp_path / "run")[-1]["updates"] > updates + 5, 30, "progress")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "was ended by SIGKILL" in err
    assert "starting it anew" in err
    assert "lamarckian resume" in err
    assert "Traceback" not in err
    assert saved(tmp_path / "run").version > updates


def test_a_killed_learner_leaves_nothing_behind_and_its_run_goes_on(tmp_path):
    process = train_parallel(tmp_path / "run")
    try:
        wait_for(lambda: list((tmp_path / "run").glob("checkpoints/[0-9]*")), 60, "checkpoint")
        assert len(children(process)) == 2
        orphans = psutil.Process(process.pid).children(recursive=True)  # shared memory has no name, and ends with the last of them
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(orphan.is_running() and orphan.status() != "zombie" for orphan in orphans), 5, "end of the actors")
    old = saved(tmp_path / "run")
    done = run("resume", tmp_path / "run", f"stop.updates={old.version + 20}", "--no-video", "--quiet", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert saved(tmp_path / "run").version == old.version + 20
    steps = [line["steps"] for line in metrics(tmp_path / "run")]
    assert steps == sorted(set(steps))


@pytest.fixture
def faulty(tmp_path):
    def train(fault: str | None, mode: str, *more: str):  # type: ignore[no-untyped-def]
        path = tmp_path / "faulty.yaml"
        path.write_text(yaml.safe_dump(FAULTY | {"mode": mode}))
        overrides = [*SMALL, "learner.threads=1", "actor.count=1", f"game.fault={fault or 'null'}", *more]
        return run("train", path, *overrides, "--run", tmp_path / "run", "--no-video", "--quiet", cwd=ROOT)

    return train


@pytest.mark.parametrize("mode", ["serial", "parallel"])
@pytest.mark.parametrize(
    ("fault", "says"), [("observation", "input 'x' is not finite: [nan]"), ("reward", "a reward is not finite: [inf]")], ids=["nan", "inf"]
)
def test_numbers_that_are_not_finite_stop_the_run_and_are_named(fault, says, mode, faulty):
    done = faulty(fault, mode, "stop.updates=1000")
    assert done.returncode == 1, done.stderr
    assert says in done.stderr
    assert "lane" in done.stderr or "match" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_diverged_update_keeps_the_last_good_checkpoint(faulty, tmp_path):
    assert faulty(None, "serial", "stop.updates=2").returncode == 0
    good = saved(tmp_path / "run")
    bad = ["algorithm.learning_rate=1e30", "algorithm.max_gradient_norm=null", "stop.updates=50"]
    done = run("resume", tmp_path / "run", *bad, "--quiet", cwd=ROOT)
    assert done.returncode == 1, done.stderr
    assert "update 3: PPO" in done.stderr
    assert f"the last good checkpoint is {tmp_path / 'run' / 'checkpoints' / str(good.steps)}" in done.stderr
    assert "Traceback" not in done.stderr
    assert_same(good, saved(tmp_path / "run"))


def test_a_game_that_raises_says_where(faulty):
    done = faulty("exception", "parallel", "stop.updates=100000")
    assert done.returncode == 1
    assert "ZeroDivisionError: the game's own fault" in done.stderr
    assert "games.py, line" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_checkpoint_that_does_not_fit_the_game_is_refused(faulty, tmp_path):
    done = faulty(None, "serial", "stop.updates=2")
    assert done.returncode == 0, done.stderr
    done = run("resume", tmp_path / "run", "game.width=3", "--quiet", cwd=ROOT)
    assert done.returncode == 2
    assert "head 'a': n is 2 in the checkpoint, 3 in the game" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("resume", tmp_path / "run", "network.hidden=[32]", "--quiet", cwd=ROOT)
    assert done.returncode == 2
    assert "another network" in done.stderr
    done = run("resume", tmp_path / "run", "actor.matches=16", "--quiet", cwd=ROOT)
    assert done.returncode == 2
    assert "'matches': 8" in done.stderr


def test_an_easy_game_is_learned_and_evaluated(faulty, tmp_path):
    done = faulty(None, "parallel", "stop.updates=150", "algorithm.learning_rate=1e-2")
    assert done.returncode == 0, done.stderr
    done = run("evaluate", tmp_path / "run", "--matches", 70, "--json", cwd=ROOT)
    report = json.loads(done.stdout)
    assert set(report) == {"run", "version", "matches", "score_mean", "score_std", "return_mean", "return_std", "against"}
    assert report["matches"] == 70
    assert report["score_mean"] > 0.9
    assert report["return_mean"] == pytest.approx(20 * report["score_mean"])
    again = run("evaluate", tmp_path / "run", "--matches", 70, "--json", cwd=ROOT)
    assert json.loads(again.stdout) == report


def test_a_run_plays_against_another(tmp_path):
    for name, seed in (("one", 0), ("other", 1)):
        train_here(tmp_path / name, "pong/ppo", "game.rounds=2", "game.rally_ticks=100", "stop={updates: 1}", f"seed={seed}")
    for against in (tmp_path / "other", "interceptor", "self"):
        done = run("evaluate", tmp_path / "one", "--against", against, "--matches", 10, "--json", "--stochastic", cwd=ROOT)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert 0 <= report["score_mean"] <= 1
        assert str(against) in report["against"]
    done = run("evaluate", tmp_path / "one", "--against", "traker", cwd=ROOT)
    assert done.returncode == 2
    assert "nearest: tracker" in done.stderr
    done = run("video", tmp_path / "one", "--out", tmp_path / "match.gif", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "match.gif").stat().st_size > 1000
