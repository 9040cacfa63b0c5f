"""Trainings with a league: they repeat, resume, and are looked at from outside."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian.actor.inference import Inference
from lamarckian.errors import MisuseError, RecipeError
from lamarckian.evaluate.matches import evaluate, film
from lamarckian.evaluate.plan import load_member, load_policy, members, plan
from lamarckian.evaluate.plan import trained as trained_model
from lamarckian.evaluate.tournament import tournament
from lamarckian.evaluate.training import train
from lamarckian.games.pong import Pong
from lamarckian.recipe import load
from lamarckian.record.league import LeagueFolder
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen
from tests.commands import start, wait_for
from tests.evaluate.test_league import files, index
from tests.evaluate.test_training import SERIAL, SMALL, assert_same, metrics, saved

ROOT = Path(__file__).parents[2]
SHORT = ["game.rounds=1", "game.rally_ticks=60", "league.add={name: updates, every: 3}", "algorithm.final_entropy_weight=null"]


def train_here(folder: Path, *more: str) -> Path:
    recipe = load("pong/league", [*SERIAL, *SHORT, *more])
    with create(folder, recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    return folder


@pytest.mark.parametrize("way", ["batched", "coroutines"])
def test_serial_runs_repeat_and_resume_bit_for_bit(way, tmp_path):
    more = [f"actor.way={way}", "league.bots={tracker: 0.2, random: 0.1}", "league.size=4", "league.opponents={name: quality, latest: 0.3}"]
    train_here(tmp_path / "whole", *more, "stop={updates: 20}")
    train_here(tmp_path / "again", *more, "stop={updates: 20}")
    train_here(tmp_path / "half", *more, "stop={updates: 11}")
    run, recipe = reopen(tmp_path / "half", ["stop.updates=20"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    whole = saved(tmp_path / "whole")
    assert_same(whole, saved(tmp_path / "again"))
    assert_same(whole, saved(tmp_path / "half"))
    assert whole.state["league"] == saved(tmp_path / "again").state["league"] == saved(tmp_path / "half").state["league"]
    assert [version for version, _ in whole.state["league"]["versions"]] == [0, 12, 15, 18]
    assert np.array(whole.state["league"]["payoffs"]["counts"]).sum() > 0
    for name in files(tmp_path / "whole" / "league"):
        assert (tmp_path / "whole" / "league" / name).read_bytes() == (tmp_path / "half" / "league" / name).read_bytes(), name
    standings = [json.loads((tmp_path / name / "league.json").read_text()) for name in ("whole", "half")]
    assert standings[0] == standings[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_here(tmp_path_factory.mktemp("runs") / "small", "stop={updates: 8}", "record.every_s=0.001", "league.bots={stay: 0.2}")


def test_metrics_and_standings_tell_of_the_league(trained):
    line = metrics(trained)[-1]
    assert line["league/members"] == 3
    assert line["league/rating"] > 0
    assert 0 < line["league/entropy"] < np.log(6)
    standings = json.loads((trained / "league.json").read_text())
    assert [member["name"] for member in standings["members"]][-3:] == ["v0", "v3", "v6"]
    assert standings["version"] == 8
    assert saved(trained).score == standings["present"]["elo"]


def test_it_is_evaluated_against_the_youngest_past_version_or_whom_one_names(trained):
    run = open_run(trained)
    assert evaluate(run, None, 4, "last", False, 0).against == "v6 of its league"
    assert evaluate(run, "stay", 4, "last", False, 0).against == "stay"
    assert next(film(run, None, "last", 0)).ndim == 3
    with pytest.raises(RecipeError, match="--against: 'league' is whom the run plays where --against is left out"):
        evaluate(run, "league", 4, "last", False, 0)


def test_past_versions_play_a_tournament(trained, tmp_path):
    standings = tournament([trained], ["stay"], matches=2, checkpoints="league")
    assert sorted(standings.names) == sorted([*(f"{trained}@v{version}" for version in (0, 3, 6)), "stay"])
    recipe = load("pong/ppo", [*SERIAL, *SHORT[:2], "stop={updates: 1}"])
    with create(tmp_path / "alone", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    with pytest.raises(MisuseError, match="has no league"):
        members(str(tmp_path / "alone"))


def test_trained_runs_are_met_too_unless_their_game_is_another(trained, tmp_path):
    runs = f"league.runs={{{trained}: 0.4}}"
    train_here(tmp_path / "run", runs, "stop={updates: 6}")
    assert index(tmp_path / "run" / "league")[str(trained)] == 0.4
    assert str(trained) in saved(tmp_path / "run").state["league"]["payoffs"]["names"]
    with pytest.raises(
        RecipeError, match=r"league.runs: .*small cannot play here, for it was trained in another game: game.rounds is 2 in this"
    ):
        train_here(tmp_path / "other", runs, "game.rounds=2")
    alone = [f"roles={{left: {{agent: learner}}, right: {{agent: run, path: {trained}}}}}", "league=null", "game.rounds=2"]
    with pytest.raises(RecipeError, match=r"roles.right.path: .*small cannot play here"):
        plan(load("pong/league", alone))


def best(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "checkpoints" / "best.json").read_text())


def test_a_run_without_a_league_may_get_one(tmp_path):
    recipe = load("pong/ppo", [*SERIAL, *SHORT[:2], "stop={updates: 2}", "mode=parallel", "actor.count=1"])
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    run, recipe = reopen(tmp_path / "run", ["roles.right={agent: league}", "league.add.every=3", "stop.updates=6"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    assert [version for version, _ in saved(tmp_path / "run").state["league"]["versions"]] == [2, 5]
    rated = best(tmp_path / "run")
    assert rated["measure"] == "rating from v2" and rated["score"] > 100
    run, recipe = reopen(tmp_path / "run", ["roles.right={agent: tracker}", "league=null", "stop.updates=8", "record.score_window=1"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    played = best(tmp_path / "run")
    assert played["measure"] == "score" and played["score"] <= 1 and played["steps"] > rated["steps"]


def test_opponents_explore_as_little_as_dqn_will_in_the_end(tmp_path):
    recipe = load(
        "pong/dqn",
        [
            *SHORT[:3], "roles.right={agent: league}", "network={name: q, hidden: [16]}", "actor={matches: 8, fragment: 16}",
            "learner={batch: 256, threads: 1}", "mode=serial", "stop={updates: 4}",
            "algorithm={name: dqn, replay_size: 8MB, learning_starts: 1, epsilon_steps: 100_000, final_epsilon: 0.25}",
        ],
    )  # fmt: skip
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    folder, role = str(tmp_path / "run"), Pong().roles["left"]
    newest = load_policy(folder, role, "last")[0]
    assert float(newest.epsilon) > 0.9
    assert [float(load_member(folder, role, version).epsilon) for version in (0, 3)] == [0.25, 0.25]
    infer = Inference(trained_model(folder, role))  # as the opponent of another run
    assert infer({"vector": np.zeros((2, role.inputs["vector"].size), np.float32)})["head.move.epsilon"].tolist() == [[0.25], [0.25]]


def test_a_killed_run_goes_on_with_the_league_of_its_checkpoint(tmp_path):
    """The index names files that are there at any time, and what came after the checkpoint is gone when the run goes on."""
    folder = tmp_path / "run"
    more = [
        *SMALL,
        *SHORT,
        "league.add.every=1",
        "learner.threads=1",
        "actor.count=1",
        "checkpoint.every_s=1",
        "stop={updates: 1000000}",
        "league.size=5",
    ]
    process = start("train", "pong/league", *more, "--run", folder, "--no-video", cwd=ROOT)
    try:
        wait_for(lambda: list(folder.glob("checkpoints/[0-9]*")), 60, "checkpoint")
        first = max(int(path.name) for path in folder.glob("checkpoints/[0-9]*"))
        wait_for(lambda: len(list(folder.glob("league/v*"))) > 6 or max(map(int, _steps(folder))) > first, 60, "more versions")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    (folder / "league" / ".v999.safetensors.part").write_bytes(b"")  # as if it had been killed while it wrote
    named = {f"v{opponent.version}.safetensors" for opponent in LeagueFolder(folder / "league").opponents() if opponent.version is not None}
    assert named <= files(folder / "league")
    state = saved(folder).state["league"]
    run, recipe = reopen(folder, [f"stop.updates={saved(folder).version + 1}", "league.add.every=1000"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    assert saved(folder).state["league"]["versions"] == state["versions"]
    kept = {f"v{version}.safetensors" for version, _ in state["versions"]}
    dropped = {f"v{version}.safetensors" for version, *_ in state["dropped"]}
    assert {"index.json", *kept} <= files(folder / "league") <= {"index.json", *kept, *dropped}


def _steps(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("checkpoints/[0-9]*")]
