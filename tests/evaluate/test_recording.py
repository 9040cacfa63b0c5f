"""Matches are recorded as they were played, and refused where they do not belong together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lamarckian.cli import app
from lamarckian.errors import CheckpointError, MisuseError, RecipeError, RunFolderError
from lamarckian.evaluate.matches import evaluate
from lamarckian.evaluate.recording import record
from lamarckian.evaluate.training import train
from lamarckian.games.pong.bots import Interceptor
from lamarckian.mdp import Observations
from lamarckian.recipe import load
from lamarckian.record.progress import Progress
from lamarckian.record.recordings import open_recordings
from lamarckian.record.run import create

QUICK = ["game.rounds=2", "game.rally_ticks=100"]
BOTS = {"left": "interceptor", "right": "tracker"}


def rules(*more: str):
    return load("pong/ppo", [*QUICK, *more])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two matches of both roles."""
    folder = tmp_path_factory.mktemp("recordings") / "two"
    return record(rules(), BOTS, ["left", "right"], 2, folder, seed=0)


def test_what_was_recorded_is_what_was_done(two):
    assert [(entry.match, entry.role) for entry in two.recorded] == [(0, "left"), (0, "right"), (1, "left"), (1, "right")]
    for entry in two.recorded:
        arrays = two.read(entry)
        assert {len(array) for array in arrays.values()} == {entry.steps}
        assert arrays["inputs.vector"].dtype == np.float32 and arrays["action.move"].dtype == np.int32
        assert arrays["terminated"].tolist() == [False] * (entry.steps - 1) + [True]
        assert arrays["learn"].all() and not arrays["truncated"].any()
        assert entry.agents == BOTS
        assert entry.score == pytest.approx((arrays["reward"].sum() + 2) / 4)
    left, right = (two.read(entry) for entry in two.recorded[:2])
    assert (left["reward"] == -right["reward"]).all()
    bot = Interceptor()
    bot.start(np.arange(len(left["action.move"])), [0] * len(left["action.move"]))
    np.testing.assert_array_equal(bot.act(Observations({"vector": left["inputs.vector"]}))["move"], left["action.move"])


def test_a_folder_gets_more_matches_and_a_seed_repeats_them(two, tmp_path):
    parts = record(rules(), BOTS, [], 1, tmp_path / "parts", seed=0)
    assert [entry.role for entry in parts.recorded] == ["left"]
    parts = record(rules(), BOTS, ["left"], 1, tmp_path / "parts", seed=0)
    assert [entry.seed for entry in parts.recorded] == [entry.seed for entry in two.recorded if entry.role == "left"]
    for mine, entry in zip(parts.recorded, [entry for entry in two.recorded if entry.role == "left"], strict=True):
        for name, array in two.read(entry).items():
            np.testing.assert_array_equal(array, parts.read(mine)[name])
    other = record(rules(), BOTS, [], 1, tmp_path / "other", seed=1)
    assert other.recorded[0].seed != parts.recorded[0].seed


def test_another_game_is_not_added(two, tmp_path):
    with pytest.raises(RunFolderError, match=r"matches of another game: game.rounds is 2 there, 3 now"):
        record(rules("game.rounds=3"), BOTS, [], 1, two.folder, 0)
    with pytest.raises(RunFolderError, match=r"rewards.zero_sum is False there, True now"):
        record(rules("rewards.zero_sum=true"), BOTS, [], 1, two.folder, 0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="holds files that are not recorded matches"):
        record(rules(), BOTS, [], 1, tmp_path / "full", 0)
    with pytest.raises(RunFolderError, match="is a file"):
        record(rules(), BOTS, [], 1, tmp_path / "full" / "notes.txt", 0)
    assert len(two.recorded) == 4


@pytest.mark.parametrize(
    ("agents", "roles", "says"),
    [
        ({}, [], r"--agents: nobody plays left yet, the recipe's is 'learner'; write left=NAME, .*\(tracker, .*\), the folder of a run"),
        ({"left": "run"}, [], r"--agents: given left=run, which says nobody; write left=NAME, .* the folder of a run, or module:Class"),
        ({"left": "league"}, [], "--agents: given left=league, which says nobody"),
        ({"left": "runs/nowhere"}, [], r"--agents: given 'runs/nowhere'; known bots of the game: .*the folder of a run"),
        ({"lefd": "stay"}, [], "--agents: given 'lefd'; nearest: left"),
        ({"left": "trakcer"}, [], "--agents: given 'trakcer'; nearest: tracker"),
        ({"left": "self"}, [], "given left=self, which says nobody"),
        (BOTS, ["up"], "--roles: given 'up'"),
    ],
)
def test_who_cannot_play_is_refused(agents, roles, says, tmp_path):
    with pytest.raises(MisuseError, match=says):
        record(rules(), agents, roles, 1, tmp_path / "new", 0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("agent", ["league", "self"])
def test_whom_a_training_makes_has_to_be_named(agent, tmp_path):
    resolved = rules(f"roles.right={{agent: {agent}}}")
    with pytest.raises(MisuseError, match=f"--agents: nobody plays right yet, the recipe's is '{agent}'; write right=NAME"):
        record(resolved, {"left": "stay"}, [], 1, tmp_path / "new", 0)


def small_run(folder):
    small = rules("network.hidden=[8]", "actor.matches=8", "actor.fragment=16", "learner.batch=128", "mode=serial", "stop={updates: 1}")
    with create(folder, small) as run:
        train(small, run, Progress("", small.stop, quiet=True))


def test_a_run_of_another_game_is_not_let_in(tmp_path):
    small_run(tmp_path / "run")
    agents = {"left": str(tmp_path / "run"), "right": "stay"}
    with pytest.raises(RecipeError, match=r"--agents: .*run cannot play here, .* actor.frame_skip is 4 in this recipe, 1 in .*run"):
        record(rules("actor.frame_skip=4"), agents, [], 1, tmp_path / "new", 0)
    seated = rules("game.rounds=3", f"roles.right={{agent: run, path: {tmp_path / 'run'}}}")
    with pytest.raises(RecipeError, match=r"roles.right.path: .*run cannot play here, .* game.rounds is 3 in this recipe, 2 in .*run"):
        record(seated, {"left": "stay"}, [], 1, tmp_path / "new", 0)
    record(rules("rewards.zero_sum=true"), agents, [], 1, tmp_path / "new", 0)  # who plays does not see what is paid
    other = rules("actor.frame_skip=2")
    with (
        create(tmp_path / "other", other) as run,
        pytest.raises(RecipeError, match=r"--against: .*run cannot play here, .*frame_skip is 2"),
    ):
        evaluate(run, str(tmp_path / "run"), 2, "best", False, 0)


def test_a_trained_agent_is_recorded(tmp_path):
    small_run(tmp_path / "run")
    found = record(rules(), {"left": str(tmp_path / "run"), "right": "stay"}, ["left"], 1, tmp_path / "new", 0)
    again = record(rules(), {"left": str(tmp_path / "run"), "right": "stay"}, ["left"], 1, tmp_path / "again", 0)
    np.testing.assert_array_equal(found.read(found.recorded[0])["action.move"], again.read(again.recorded[0])["action.move"])


def test_damage_is_named(two, tmp_path):
    with pytest.raises(RunFolderError, match="is not there; `lamarckian record`"):
        open_recordings(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"has no dataset.json"):
        open_recordings(tmp_path)
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(CheckpointError, match="damaged, or not of recorded matches"):
        open_recordings(tmp_path)
    (tmp_path / "dataset.json").write_text((two.folder / "dataset.json").read_text().replace('"number": 2', '"number": 3'))
    with pytest.raises(CheckpointError, match="number 3; this version"):
        open_recordings(tmp_path)
    (tmp_path / "dataset.json").write_text((two.folder / "dataset.json").read_text())
    broken = open_recordings(tmp_path)
    with pytest.raises(CheckpointError, match="cannot read"):
        broken.read(broken.recorded[0])
    (tmp_path / broken.recorded[0].file).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is damaged"):
        broken.read(broken.recorded[0])
    (tmp_path / broken.recorded[0].file).write_bytes((two.folder / two.recorded[2].file).read_bytes())
    assert broken.recorded[0].steps != two.recorded[2].steps, "the other match is not of another length"
    with pytest.raises(CheckpointError, match="should have"):
        broken.read(broken.recorded[0])


def test_the_command_records(tmp_path):
    arguments = ["record", "pong/ppo", "--agents", "left=interceptor", "--matches", "2", "--out", str(tmp_path / "new"), *QUICK]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.stdout.splitlines()[0].split() == ["matches", "2"]
    assert len(json.loads((tmp_path / "new" / "dataset.json").read_text())["recorded"]) == 2
    with pytest.raises(MisuseError, match="it reads ROLE=AGENT"):
        CliRunner().invoke(app, [*arguments, "--agents", "interceptor"], catch_exceptions=False)
