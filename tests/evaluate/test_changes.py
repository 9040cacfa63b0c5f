"""Weights of rewards that change while a run goes on, and while it does not."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
import yaml
from rich.console import Console

from lamarckian import cli
from lamarckian.actor.process import build_mdp
from lamarckian.errors import RecipeError, RunFolderError
from lamarckian.evaluate import changes
from lamarckian.evaluate.plan import plan
from lamarckian.evaluate.training import train
from lamarckian.mdp.wrappers import ZeroSum
from lamarckian.recipe import load, resolve, resolve_any
from lamarckian.record import checkpoint
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen

DOCUMENT = {
    "game": {"name": "tests.evaluate.games:Chosen"},
    "network": {"hidden": [8]},
    "algorithm": {"learning_rate": 0.03, "entropy_weight": 0.0, "epochs": 2, "minibatches": 1},
    "actor": {"matches": 8, "fragment": 16},
    "learner": {"batch": 128, "threads": 1},
    "rewards": {"weights": {"careful": 0.1}},
    "mode": "serial",
    "stop": {"updates": 20},
    "record": {"every_s": 0.001, "score_window": 16},
    "checkpoint": {"every_s": None},
}


class Hook(Progress):
    """Calls `then` once, with the run going on, when `updates` are done; keeps what is said."""

    def __init__(self, recipe, updates=0, then=None):
        self.said = io.StringIO()
        super().__init__("", recipe.stop, console=Console(file=self.said, width=200))
        self._at, self._then = updates, then

    def update(self, values):
        super().update(values)
        if self._then is not None and values["updates"] >= self._at:
            then, self._then = self._then, None
            then()


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(changes, "LOOK_EVERY_S", 0.0)


def begin(folder, updates=0, then=None, **sections):
    recipe = resolve(DOCUMENT | sections)
    with create(folder, recipe) as run:
        hook = Hook(recipe, updates, then)
        train(recipe, run, hook)
    return hook.said.getvalue()


def go_on(folder, *overrides):
    asked, taken = changes.waiting(folder)
    run, recipe = reopen(folder, [*asked, *overrides])
    with run:
        hook = Hook(recipe)
        train(recipe, run, hook, resume=True, taken=taken)
    return hook.said.getvalue()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def effects(folder):
    return [(line["steps"], line["updates"], line["weights"], line["taken"]) for line in lines(folder / "changes.jsonl") if "taken" in line]


def weights(folder):
    return yaml.safe_load((folder / "recipe.yaml").read_text())["rewards"]["weights"]


def command(monkeypatch, *arguments):
    """The exit code of the command line, run in this process."""
    monkeypatch.setattr(sys, "argv", ["lamarckian", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


def test_a_change_takes_effect_while_the_run_goes_on_and_is_written_down(tmp_path, monkeypatch, capsys):
    said = begin(
        tmp_path / "run",
        20,
        lambda: command(monkeypatch, "set", tmp_path / "run", "rewards.brave=0.25", "rewards.careful=5"),
        stop={"updates": 60},
    )
    assert capsys.readouterr().out == "rewards.brave = 0.25, rewards.careful = 5: from one of the next updates on\n"
    assert "rewards.brave = 0.25, rewards.careful = 5 from step 2,560 on" in said
    now = {"brave": 0.25, "careful": 5.0}
    assert effects(tmp_path / "run") == [(20 * 128, 20, now, 1)]
    assert weights(tmp_path / "run") == now
    records = {line["updates"]: line for line in lines(tmp_path / "run" / "metrics.jsonl")}
    for updates, line in records.items():
        brave, careful = (1.0, 0.1) if updates <= 20 else (0.25, 5.0)
        assert (line["weight/brave"], line["weight/careful"]) == (brave, careful)
        mean = line["reward/brave"]
        assert line["reward/careful"] == pytest.approx(1 - mean)  # each step pays the one or the other
        assert line["reward_share/brave"] == pytest.approx(brave * mean / (brave * mean + careful * (1 - mean)))
        assert line["reward_share/brave"] + line["reward_share/careful"] == pytest.approx(1)
        assert line["value_loss/brave"] > 0 and line["value_loss/careful"] > 0
    assert records[20]["reward/brave"] > 0.8  # what was learned before
    assert records[60]["reward/brave"] < 0.2  # and since


def test_a_run_that_is_not_going_on_takes_a_change_when_it_is_resumed(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    begin(folder, stop={"updates": 2})
    assert command(monkeypatch, "set", folder, "rewards.brave=-1", "rewards.careful=3") == 0
    assert f"the run is not going on now; from when it does: lamarckian resume {folder}" in capsys.readouterr().out
    assert weights(folder) == {"brave": 1.0, "careful": 0.1} and effects(folder) == []
    changes.ask(folder, ["rewards.careful=4"])
    said = go_on(folder, "stop.updates=4")
    assert "from here on rewards.brave = -1, rewards.careful = 4" in said
    now = {"brave": -1.0, "careful": 4.0}
    assert weights(folder) == now and effects(folder) == [(256, 2, now, 2)]
    assert lines(folder / "metrics.jsonl")[-1]["weight/careful"] == 4.0
    go_on(folder, "stop.updates=6")  # with nothing new
    assert weights(folder) == now and len(effects(folder)) == 1
    go_on(folder, "stop.updates=8", "rewards.weights.brave=7")
    assert effects(folder)[1:] == [(768, 6, {"brave": 7.0, "careful": 4.0}, 2)]
    changes.ask(folder, ["rewards.careful=1"])
    go_on(folder, "rewards.weights.careful=9")  # with nothing to do
    assert effects(folder)[2:] == [(1024, 8, {"brave": 7.0, "careful": 9.0}, 3)]
    assert changes.waiting(folder) == ([], 3)


def test_what_a_resume_sets_comes_after_what_was_asked_for_before_it(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    begin(folder, stop={"updates": 2})
    changes.ask(folder, ["rewards.brave=2", "rewards.careful=3"])
    assert command(monkeypatch, "resume", folder, "stop.updates=4", "rewards.weights.brave=5", "--no-video", "--quiet") == 0
    assert weights(folder) == {"brave": 5.0, "careful": 3.0}
    assert effects(folder) == [(256, 2, {"brave": 5.0, "careful": 3.0}, 1)]


def test_a_refused_resume_leaves_a_change_waiting(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    begin(folder, stop={"updates": 2})
    changes.ask(folder, ["rewards.brave=2"])
    assert command(monkeypatch, "resume", folder, "network.hidden=[4]", "--no-video", "--quiet") == 2
    assert weights(folder)["brave"] == 1.0 and effects(folder) == []
    go_on(folder, "stop.updates=4")
    assert weights(folder)["brave"] == 2.0


def test_a_change_outlives_the_checkpoint_that_was_before_it(tmp_path):
    folder = tmp_path / "run"

    def change_and_stop():
        changes.ask(folder, ["rewards.brave=3"])
        hook.then_stop = True

    class Stopped(Hook):
        then_stop = False

        def update(self, values):
            super().update(values)
            if self.then_stop and values["updates"] == 8:
                raise KeyboardInterrupt

    recipe = resolve(DOCUMENT | {"checkpoint": {"every_s": None, "every_updates": 3}})
    with create(folder, recipe) as run:
        hook = Stopped(recipe, 7, change_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, run, hook)
    now = {"brave": 3.0, "careful": 0.1}
    assert effects(folder) == [(7 * 128, 7, now, 1)]
    assert checkpoint.load(open_run(folder)).version == 6
    go_on(folder, "stop.updates=9")
    assert effects(folder) == [(7 * 128, 7, now, 1), (6 * 128, 6, now, 1)]  # from the checkpoint on
    assert [line["weight/brave"] for line in lines(folder / "metrics.jsonl")] == [1.0] * 6 + [3.0] * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("rewards.brav=2", "rewards.weights.brav: given 'brav'; nearest: brave; known rewards: brave, careful"),
        ("rewards.weights.brave=2", "given 'weights.brave'"),
        ("rewards.brave=1e10", "rewards.weights.brave: given"),
        ("rewards.brave=much", "cannot set 'rewards.brave=much'; a change reads rewards.NAME=NUMBER"),
        ("rewards.brave=nan", "a change reads"),
        ("rewards.brave", "a change reads"),
        ("rewards.=2", "a change reads"),
        ("brave=2", "a change reads"),
        ("learner.batch=4096", "a change reads"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_not_written_down(change, says, tmp_path):
    recipe = resolve(DOCUMENT)
    with create(tmp_path / "run", recipe) as run:
        with pytest.raises(RecipeError) as error:
            changes.ask(run.folder, ["rewards.careful=2", change])
        assert says in str(error.value) and not run.changes_path.exists()


def test_no_run_and_an_evolution_are_refused(tmp_path, monkeypatch, capsys):
    assert command(monkeypatch, "set", tmp_path / "run", "rewards.brave=2") == 2
    assert "is not there" in capsys.readouterr().err
    evolution = resolve_any({"problem": {"name": "zdt1"}, "algorithm": {"name": "nsga2"}})
    with create(tmp_path / "evolution", evolution) as run, pytest.raises(RunFolderError, match="an evolution, which has no rewards"):
        changes.ask(run.folder, ["rewards.brave=2"])
    assert command(monkeypatch, "set", tmp_path / "evolution", "rewards.brave=2") == 2
    assert command(monkeypatch, "set", tmp_path / "evolution") == 2


def test_a_line_that_was_cut_off_is_passed_over_and_a_new_run_forgets_the_changes_of_the_old(tmp_path):
    recipe = resolve(DOCUMENT)
    with create(tmp_path / "run", recipe) as run:
        changes.ask(run.folder, ["rewards.brave=2"])
        with run.changes_path.open("a") as file:
            file.write('{"time": "2026-01-01T00:00:00", "se')
        assert changes.ask(run.folder, ["rewards.careful=3"]) == ({"careful": 3.0}, True)
    asked, count = changes.waiting(run.folder)
    assert (yaml.safe_load(asked[0].partition("=")[2]), count) == ({"brave": 2.0, "careful": 3.0}, 2)
    with create(tmp_path / "run", recipe, overwrite=True) as run:
        assert changes.waiting(run.folder) == ([], 0)
    assert not run.at_work()


def test_the_file_is_looked_at_once_in_a_while_only(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "LOOK_EVERY_S", 1000.0)
    recipe = resolve(DOCUMENT)
    with create(tmp_path / "run", recipe) as run:
        changing = changes.Changes(run, recipe, 0)
        assert changing.look() is None
        changes.ask(run.folder, ["rewards.brave=2"])
        assert changing.look() is None
        changing = changes.Changes(run, recipe, 0)
        assert changing.look() == {"brave": 2.0} and changing.weights == {"brave": 2.0, "careful": 0.1}


def test_one_reward_of_weight_1_adds_nothing_to_the_metrics(tmp_path):
    recipe = load(
        "cartpole/ppo", ["mode=serial", "network.hidden=[8]", "actor={matches: 8, fragment: 16}", "learner={batch: 128, threads: 1}"]
    )
    recipe = recipe.model_copy(
        update={"stop": recipe.stop.model_copy(update={"updates": 2, "score": None, "steps": None, "minutes": None})}
    )
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Hook(recipe))
    names = set(lines(tmp_path / "run" / "metrics.jsonl")[-1])
    assert not [name for name in names if name.startswith(("weight/", "reward/", "reward_share/"))]


def test_a_recipe_may_make_its_game_zero_sum_in_both_ways(tmp_path):
    recipes = [
        load(
            "pong/ppo",
            [
                "rewards.zero_sum=true",
                "game={name: pong, rounds: 1, rally_ticks: 60}",
                f"actor={{matches: 8, fragment: 64, way: {way}}}",
                "learner={batch: 1024, threads: 1}",
                "network.hidden=[8]",
                "mode=serial",
                "stop={updates: 2}",
            ],
        )
        for way in ("batched", "coroutines")
    ]
    saved = []
    for recipe in recipes:
        assert isinstance(build_mdp(plan(recipe).description), ZeroSum)
        with create(tmp_path / recipe.actor.way, recipe) as run:
            train(recipe, run, Hook(recipe))
        saved.append(checkpoint.load(open_run(run.folder)))
    batched, coroutines = saved
    assert batched.state["acting"]["zero_sum"] is True
    assert batched.state["outcomes"] == coroutines.state["outcomes"] and len(batched.state["outcomes"]) > 0
    for name, array in batched.policy.items():
        np.testing.assert_array_equal(array, coroutines.policy[name])
