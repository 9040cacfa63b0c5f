"""Trainings whose algorithm remembers: a replay comes back with the newest checkpoint, and only with that."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lamarckian.errors import CheckpointError, RecipeError
from lamarckian.evaluate.training import train
from lamarckian.recipe import load
from lamarckian.record import checkpoint
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen
from tests.evaluate.test_training import assert_same, saved

SERIAL = [
    "network.hidden=[16]",
    "actor.matches=4",
    "actor.fragment=8",
    "learner.batch=64",
    "learner.threads=1",
    "mode=serial",
    "algorithm.learning_starts=100",
    "algorithm.minibatch=32",
    "algorithm.replay_ratio=3",
    "algorithm.replay_samples=200",
    "algorithm.learning_rate_schedule=constant",
    "algorithm.epsilon_steps=400",  # schedules by the share of a run that is done differ between a run and its half
    "algorithm.final_importance_exponent=0.4",
]
IMAGE = [
    "game={name: pong, rounds: 1, rally_ticks: 60, observation: image, image_size: 32}",
    "network.convolutions=[{channels: 4, kernel: 8, stride: 4}]",
]


def begin(folder: Path, recipe: str, *more: str) -> None:
    resolved = load(recipe, [*SERIAL, *more])
    with create(folder, resolved) as run:
        train(resolved, run, Progress("", resolved.stop, quiet=True))


def go_on(folder: Path, *overrides: str) -> str:
    """Resumes the run; what it said meanwhile."""
    run, resolved = reopen(folder, list(overrides))
    said = io.StringIO()
    with run:
        train(resolved, run, Progress("", resolved.stop, console=Console(file=said, width=200)), resume=True)
    return said.getvalue()


def replay(folder: Path) -> dict[str, np.ndarray]:
    found = checkpoint.load_replay(open_run(folder), saved(folder).steps)
    assert found
    return found


@pytest.mark.parametrize(("recipe", "more"), [("cartpole/dqn", []), ("pong/dqn", IMAGE)], ids=["coroutines-vector", "batched-image"])
def test_serial_runs_repeat_and_resume_bit_for_bit(recipe, more, tmp_path):
    begin(tmp_path / "whole", recipe, *more, "stop={updates: 12}")
    begin(tmp_path / "half", recipe, *more, "stop={updates: 6}")
    assert go_on(tmp_path / "half", "stop.updates=12").count("replay") == 0
    whole = saved(tmp_path / "whole")
    assert whole.version == 12 and int(whole.optimizer["counts"][0]) > 30
    assert_same(whole, saved(tmp_path / "half"))
    left, right = replay(tmp_path / "whole"), replay(tmp_path / "half")
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def test_a_run_that_has_lost_its_replay_says_so_and_fills_it_anew(tmp_path):
    begin(tmp_path / "run", "cartpole/dqn", "stop={updates: 4}")
    before = saved(tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / str(before.steps) / "replay.safetensors").unlink()
    said = go_on(tmp_path / "run", "stop.updates=5")
    assert f"checkpoint {before.steps} of {tmp_path / 'run'} has lost its replay" in said.replace("\n", "")
    after = saved(tmp_path / "run")
    assert after.version == 5
    assert int(after.optimizer["counts"][0]) == int(before.optimizer["counts"][0])  # 64 samples are fewer than learning_starts
    assert len(replay(tmp_path / "run")["reward"]) == 8


def test_a_replay_of_another_size_is_refused(tmp_path):
    begin(tmp_path / "run", "cartpole/dqn", "stop={updates: 2}")
    with pytest.raises(CheckpointError, match=r"the saved replay does not fit.*algorithm\.replay_samples"):
        go_on(tmp_path / "run", "algorithm.replay_samples=400", "stop.updates=3")


def test_a_replay_of_other_fragments_is_refused(tmp_path):
    """In parallel mode, which starts new matches: there nothing else depends on the length of fragments."""
    begin(tmp_path / "run", "cartpole/dqn", "stop={updates: 2}", "mode=parallel", "actor.count=1")
    with pytest.raises(CheckpointError, match=r"the saved replay does not fit: .* of 8 steps, .* of 16; leave .* actor\.fragment"):
        go_on(tmp_path / "run", "actor.fragment=16", "stop.updates=3")


def test_who_starts_from_another_runs_network_has_it_as_its_target_too(tmp_path):
    begin(tmp_path / "first", "cartpole/dqn", "stop={updates: 4}")
    begin(tmp_path / "second", "cartpole/dqn", "stop={updates: 1}", f"start={tmp_path / 'first'}", "algorithm.replay_ratio=0.01")
    first, second = saved(tmp_path / "first"), saved(tmp_path / "second")
    for name, array in first.policy.items():
        if name != "epsilon":
            np.testing.assert_array_equal(array, second.policy[name])
    differing = int((second.optimizer["parameters"] != second.optimizer["target"]).sum())
    assert differing <= 1  # ε at most, which is of who acts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("algorithm.learning_starts=201", "algorithm.learning_starts: given 201; the replay has room for 200 samples"),
        ("algorithm.epsilon_steps=null", "algorithm.epsilon_steps: missing; .* which has no end here"),
    ],
)
def test_what_would_never_learn_is_refused(change, says, tmp_path):
    with pytest.raises(RecipeError, match=says):
        begin(tmp_path / "run", "cartpole/dqn", "stop={score: 500}", change)
