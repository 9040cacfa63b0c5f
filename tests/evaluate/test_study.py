"""Trainings from recorded matches: what is in an epoch, exact repeats and resumes, and how others go on from there."""

from __future__ import annotations

import contextlib
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save as to_safetensors
from typer.testing import CliRunner

from lamarckian.cli import app
from lamarckian.data.episodes import discounted
from lamarckian.errors import CheckpointError, MisuseError, NumericsError, RecipeError, RunFolderError
from lamarckian.evaluate.matches import evaluate
from lamarckian.evaluate.paid import Paid
from lamarckian.evaluate.plan import load_policy, plan
from lamarckian.evaluate.recording import record
from lamarckian.evaluate.study import Study, _check_actions, split
from lamarckian.evaluate.training import train
from lamarckian.mdp import Continuous, Discrete, Role, Vector
from lamarckian.recipe import load, resolve
from lamarckian.record import checkpoint
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen
from tests.evaluate.test_training import assert_same, saved

QUICK = ["game.rounds=2", "game.rally_ticks=100", "network.hidden=[16]", "learner.threads=1"]
STUDY = [
    *QUICK,
    "actor.matches=4",
    "actor.fragment=16",
    "learner.batch=256",
    "algorithm.minibatches=4",
    "algorithm.learning_rate_schedule=constant",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Five matches of the interceptor."""
    return record(load("pong/ppo", QUICK), {"left": "interceptor"}, [], 5, tmp_path_factory.mktemp("recordings") / "five", seed=0)


def recipe(data, *more: str):
    return load("pong/imitation", [*STUDY, f"algorithm.data={data.folder}", *more])


def learn(folder, resolved):
    with create(folder, resolved) as run:
        return train(resolved, run, Progress("", resolved.stop, quiet=True))


def resume(folder, *overrides):
    run, resumed = reopen(folder, list(overrides))
    with run:
        return train(resumed, run, Progress("", resumed.stop, quiet=True), resume=True)


class Restless:
    """Acts 1 at every other decision of a match."""

    def start(self, seed) -> None:
        self._count = 0

    async def act(self, observation):
        self._count += 1
        return {"a": self._count % 2}


class Listener:
    """A student that only notes what it is shown."""

    def __init__(self, data, share: float, rewards: int = 1) -> None:
        self.settings = SimpleNamespace(data=data.folder, validation_share=share)
        self.gamma = np.full(rewards, 0.9)
        self.validated: list[np.ndarray] = []

    def validate(self, batches):
        self.validated += [rows(batch) for batch in batches]
        return {"validation.loss.policy": 1.0, "validation.since_best": 0}


def rows(batch) -> np.ndarray:
    """The steps to learn from, a row each, of inputs, action and return."""
    arrays = {name: np.asarray(x) for name, x in batch.items()}
    kept = arrays["learn"]
    return np.concatenate([arrays["inputs.vector"][kept], arrays["action.move"][kept][:, None], arrays["return"][kept]], 1)


def epoch(study) -> tuple[list[np.ndarray], dict]:
    found, judged = [], None
    while judged is None:
        found.append(rows(study.get().tensors))
        judged = study.judge()
    return found, judged


def ordered(found) -> np.ndarray:
    together = np.concatenate(found)
    return together[np.lexsort(together.T)]


def test_an_epoch_has_each_step_once_and_no_match_is_in_both_parts(data):
    resolved = recipe(data, "algorithm.validation_share=0.4")
    shape = plan(resolved)
    listener = Listener(data, 0.4)
    study = Study(shape, listener, None)
    first, judged = epoch(study)
    training, validation = split(data, 0.4, resolved.seed)
    assert (len(training), len(validation)) == (3, 2) and training | validation == set(range(5))
    for found, numbers in ((first, training), (listener.validated, validation)):
        expected = []
        for entry in data.recorded:
            if entry.match in numbers:
                arrays = data.read(entry)
                returns = discounted(arrays["reward"], np.zeros(1), np.array([0.9]))
                expected.append(np.concatenate([arrays["inputs.vector"], arrays["action.move"][:, None], returns], 1))
        np.testing.assert_array_equal(ordered(found), ordered(expected))
    assert judged["epoch"] == 1 and study.score == -1.0
    second, judged = epoch(study)
    assert judged["epoch"] == 2
    np.testing.assert_array_equal(ordered(first), ordered(second))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))


def test_at_least_one_match_is_on_either_side(data):
    assert [len(part) for part in split(data, 0.01, 0)] == [4, 1]
    assert [len(part) for part in split(data, 0.99, 0)] == [1, 4]
    assert split(data, 0.4, 0) == split(data, 0.4, 0) != split(data, 0.4, 1)


def test_runs_repeat_and_resume_bit_for_bit_in_both_modes(data, tmp_path):
    learn(tmp_path / "whole", recipe(data, "stop={updates: 9}"))
    learn(tmp_path / "parallel", recipe(data, "stop={updates: 9}", "mode=parallel"))
    learn(tmp_path / "half", recipe(data, "stop={updates: 4}"))
    resume(tmp_path / "half", "stop.updates=9")
    whole = saved(tmp_path / "whole")
    assert whole.version == 9 and whole.state["fleet"]
    assert_same(whole, saved(tmp_path / "half"))
    assert_same(whole, saved(tmp_path / "parallel"))


def test_a_resumed_run_goes_on_with_the_matches_that_it_began_with(data, tmp_path):
    shutil.copytree(data.folder, tmp_path / "data")
    own = f"algorithm.data={tmp_path / 'data'}"
    learn(tmp_path / "whole", recipe(data, "stop={updates: 9}", own))
    learn(tmp_path / "half", recipe(data, "stop={updates: 4}", own))
    record(load("pong/ppo", QUICK), {"left": "interceptor"}, [], 3, tmp_path / "data", seed=0)
    resume(tmp_path / "half", "stop.updates=9")
    whole, half = saved(tmp_path / "whole"), saved(tmp_path / "half")
    assert_same(whole, half)
    shutil.rmtree(tmp_path / "data")
    record(load("pong/ppo", QUICK), {"left": "interceptor"}, [], 8, tmp_path / "data", seed=1)
    with pytest.raises(RunFolderError, match=r"does not hold the 5 files that this run began with, .* begin a new run with start=RUN"):
        resume(tmp_path / "half", "stop.updates=12")


def test_what_is_measured_is_measured_of_recorded_steps_only(tmp_path):
    """Matches of ten steps, cut into fragments of 4, 4 and 2: eight in the first batch of an epoch, four in the second."""
    document = {
        "game": {"name": "tests.evaluate.games:Chosen"},
        "algorithm": {"name": "imitation", "data": str(tmp_path / "data"), "minibatches": 1},
        "actor": {"fragment": 4, "matches": 8},
        "learner": {"batch": 32, "threads": 1},
        "stop": {"updates": 2},
    }
    resolved = resolve(document)
    recorded = record(resolved, {"p0": "tests.evaluate.test_study:Restless"}, [], 5, tmp_path / "data", 0)
    study = Study(plan(resolved), Listener(recorded, 0.1, rewards=2), None)
    steps, sums = 0, np.zeros(2)
    for _ in range(2):
        batch = study.get()
        steps, sums = steps + batch.steps, sums + batch.rewards.sum(0)
        found = Paid(["p0"], lambda: {"brave": 1.0, "careful": 3.0})(batch)
        assert (found["reward.brave"], found["reward.careful"]) == (0.5, 0.5)
        assert (found["reward_share.brave"], found["reward_share.careful"]) == (0.25, 0.75)
    assert steps == 40 and sums.tolist() == [20, 20]
    assert learn(tmp_path / "run", resolved).steps == 40


def test_matches_without_a_step_to_learn_from_are_refused(data, tmp_path):
    training, validation = split(data, 0.1, 0)
    for name, dull in (("training", training), ("validation", validation)):
        shutil.copytree(data.folder, tmp_path / name)
        for entry in data.recorded:
            if entry.match in dull:
                arrays = data.read(entry)
                (tmp_path / name / entry.file).write_bytes(to_safetensors(arrays | {"learn": np.zeros(entry.steps, np.bool_)}))
        with pytest.raises(RunFolderError, match=f"the matches for {name} have no step to learn from"):
            learn(tmp_path / f"run-{name}", recipe(data, f"algorithm.data={tmp_path / name}"))


def test_an_action_that_is_none_is_refused_where_it_is_learned(data, tmp_path):
    shutil.copytree(data.folder, tmp_path / "data")
    entry = data.recorded[2]
    arrays = data.read(entry)
    arrays["action.move"][7] = 3
    (tmp_path / "data" / entry.file).write_bytes(to_safetensors(arrays))
    damaged = recipe(data, f"algorithm.data={tmp_path / 'data'}", "stop={updates: 1}")
    with pytest.raises(CheckpointError, match=rf"{entry.file}: action.move is 3 at step 7, allowed: 0 to 2"):
        learn(tmp_path / "run", damaged)
    arrays["learn"][7] = False
    (tmp_path / "data" / entry.file).write_bytes(to_safetensors(arrays))
    assert learn(tmp_path / "run", damaged).version == 1


AIMING = Role(
    {"x": Vector(1)},
    {
        "button": Discrete(2, masked=True),
        "target": Discrete(3, masked=True, given="button", active=(False, True)),
        "aim": Continuous(-1.0, 1.0, (2,)),
    },
)


@pytest.mark.parametrize(
    ("name", "step", "value", "says"),
    [
        ("action.button", 2, 0, "action.button is 0 at step 2, which legal.button forbids there"),
        ("action.target", 1, 2, "action.target is 2 at step 1, which legal.target forbids there"),
        ("action.target", 0, 2, None),  # without the button it does not matter
        ("action.target", 0, -1, "action.target is -1 at step 0, allowed: 0 to 2"),
        ("action.aim", 3, [0.5, np.nan], r"action.aim is \[0.5 nan\] at step 3, allowed: \[-1. -1.\] to \[1. 1.\]"),
        ("action.aim", 4, [9, 9], None),  # not learned
    ],
)
def test_actions_are_held_to_ranges_and_to_the_masks_that_matter(name, step, value, says):
    arrays = {
        "action.button": np.array([0, 1, 1, 1, 7], np.int32),
        "action.target": np.array([0, 1, 1, 0, 7], np.int32),
        "action.aim": np.zeros((5, 2), np.float32),
        "legal.button": np.array([[1, 1], [0, 1], [0, 1], [1, 1], [0, 0]], np.bool_),
        "legal.target": np.tile(np.array([[1, 0, 0], [1, 1, 0]], np.bool_), (5, 1, 1)),
        "learn": np.array([1, 1, 1, 1, 0], np.bool_),
    }
    _check_actions(AIMING, arrays, "file")
    arrays[name][step] = value
    with contextlib.nullcontext() if says is None else pytest.raises(CheckpointError, match=f"file: {says}"):
        _check_actions(AIMING, arrays, "file")


def test_the_best_is_that_of_the_lowest_validation_loss(data, tmp_path):
    summary = learn(tmp_path / "run", recipe(data, "stop={updates: 60}", "record.every_s=0.0001", "algorithm.learning_rate=3e-3"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = {line["steps"]: line["validation/loss/policy"] for line in lines if "validation/loss/policy" in line}
    best = checkpoint.load(open_run(tmp_path / "run"), "best")
    assert best.steps == min(losses, key=losses.get) and best.score == pytest.approx(-min(losses.values()))
    assert losses[best.steps] < 0.8 * next(iter(losses.values()))
    assert summary.score == pytest.approx(-list(losses.values())[-1])
    assert "matches" not in lines[-1] and lines[-1]["loss/policy"] < lines[0]["loss/policy"]


def test_a_role_of_the_league_makes_none_where_nobody_plays(data, tmp_path):
    learn(tmp_path / "run", recipe(data, "roles.right={agent: league}", "stop={updates: 9}", "record.every_s=0.0001"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["validation/loss/policy"] for line in lines if "validation/loss/policy" in line]
    assert checkpoint.load(open_run(tmp_path / "run"), "best").score == pytest.approx(-min(losses))
    assert "league" not in saved(tmp_path / "run").state and not (tmp_path / "run" / "league").exists()
    assert evaluate(open_run(tmp_path / "run"), "tracker", 2, "best", False, 0).matches == 2
    with pytest.raises(MisuseError, match=r"has no league.*; or name whom it is to meet: --against"):
        evaluate(open_run(tmp_path / "run"), None, 2, "best", False, 0)


def test_it_stops_at_a_score(data, tmp_path):
    assert learn(tmp_path / "run", recipe(data, "stop={updates: 200, score: -1.05}")).version < 200


@pytest.mark.parametrize("name", ["pong/ppo", "pong/imitation"])
def test_another_training_goes_on_from_its_best(name, data, tmp_path):
    learn(tmp_path / "first", recipe(data, "stop={updates: 6}"))
    more = ["mode=serial", "stop={updates: 1}", "algorithm.learning_rate=1e-30", f"start={tmp_path / 'first'}"]
    if name == "pong/imitation":
        more.append(f"algorithm.data={data.folder}")
    learn(tmp_path / "second", load(name, [*STUDY, "network.activation=relu", *more]))
    _, best = load_policy(str(tmp_path / "first"), load_role())
    for parameter, x in saved(tmp_path / "second").policy.items():
        np.testing.assert_array_equal(x, best.policy[parameter])
    assert saved(tmp_path / "second").version == 1


def load_role():
    from lamarckian.games.pong import Pong

    return Pong().roles["left"]


def test_a_run_that_goes_on_cannot_begin_from_another(data, tmp_path):
    for name in ("first", "other"):
        learn(tmp_path / name, recipe(data, "stop={updates: 1}"))
    first, other = (f"start={tmp_path / name}" for name in ("first", "other"))
    learn(tmp_path / "second", recipe(data, "stop={updates: 1}", first))
    before = [(path, path.read_text()) for path in sorted((tmp_path / "second").glob("*.[yj]*"))]
    for folder, start in (("second", other), ("second", "start=null"), ("first", other)):
        with pytest.raises(RecipeError, match=r"start: given .*; a run that goes on has parameters already.* `lamarckian train`"):
            reopen(tmp_path / folder, [start])
    assert [(path, path.read_text()) for path, _ in before] == before
    assert resume(tmp_path / "second", first, "stop.updates=2").version == 2
    assert resume(tmp_path / "second", "stop.updates=3").version == 3


def test_a_validation_that_is_not_finite_says_which_update_and_what_is_saved(data, tmp_path):
    whole = ["learner.batch=1024", "algorithm.minibatches=1"]  # an epoch in one update
    good = learn(tmp_path / "run", recipe(data, *whole, "stop={updates: 1}"))
    with pytest.raises(NumericsError, match=rf"update 2: the validation loss is .*; the last good checkpoint is {good.checkpoint}"):
        resume(tmp_path / "run", "stop.updates=2", "algorithm.learning_rate=1e38", "algorithm.max_gradient_norm=null")


def test_before_the_first_epoch_is_over_there_is_no_score(data, tmp_path, monkeypatch):
    summary = learn(tmp_path / "run", recipe(data, "stop={updates: 1}"))
    assert (summary.score, summary.scored) == (None, "epoch")
    monkeypatch.setattr("lamarckian.cli._pictures", lambda run, video: {})
    overrides = [*STUDY, f"algorithm.data={data.folder}", "stop={updates: 1}"]
    done = CliRunner().invoke(app, ["train", "pong/imitation", *overrides, "--run", str(tmp_path / "again"), "--quiet"])
    assert "score       no epoch has finished\n" in done.stdout


def test_another_network_or_game_is_no_start(data, tmp_path):
    learn(tmp_path / "first", recipe(data, "stop={updates: 1}"))
    start = f"start={tmp_path / 'first'}"
    with pytest.raises(CheckpointError, match=r"start: the run .* has another network: hidden is \[16\] there, \[8\] here"):
        learn(tmp_path / "other", load("pong/ppo", [*STUDY, "network.hidden=[8]", start]))
    with pytest.raises(CheckpointError, match="the checkpoint has it, the game does not"):
        solo = ["learner.batch=256", "actor.matches=8", "network={hidden: [16], activation: relu}"]
        learn(tmp_path / "solo", load("cartpole/ppo", [*solo, start]))
    with pytest.raises(RunFolderError, match="is not there"):
        learn(tmp_path / "none", load("pong/ppo", [*STUDY, f"start={tmp_path / 'nowhere'}"]))


def test_data_that_does_not_fit_is_refused(data, tmp_path):
    with pytest.raises(CheckpointError, match="input 'vector': the recording has it, the game does not"):
        learn(tmp_path / "image", recipe(data, "game.observation=image", "network.convolutions=nature"))
    with pytest.raises(RunFolderError, match="is not there; `lamarckian record`"):
        learn(tmp_path / "none", recipe(data, f"algorithm.data={tmp_path / 'nowhere'}"))
    header = (data.folder / "dataset.json").read_text()
    for name, array, says in (("lacks", {}, "lacks the array 'inputs.vector', float32"), ("wide", {"inputs.vector": 3}, "must be float32")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dataset.json").write_text(header)
        for entry in data.recorded:
            arrays = {key: np.zeros((entry.steps, width), np.float32) for key, width in array.items()}
            (tmp_path / name / entry.file).write_bytes(to_safetensors(arrays))
        with pytest.raises(CheckpointError, match=says):
            learn(tmp_path / f"run-{name}", recipe(data, f"algorithm.data={tmp_path / name}"))
    for change, says in (
        ("game.rounds=3", "game.rounds is 3 in this recipe, 2 there"),
        ("actor.frame_skip=2", "actor.frame_skip is 2 in this recipe, 1 there"),
        ("rewards.zero_sum=true", "rewards.zero_sum is True in this recipe, False there"),
    ):
        with pytest.raises(RecipeError, match=f"algorithm.data: .* cannot be learned from, for it holds matches of another game: {says}"):
            learn(tmp_path / "game", recipe(data, change))
    one = record(load("pong/ppo", QUICK), {"left": "stay"}, [], 1, tmp_path / "one", 0)
    with pytest.raises(RunFolderError, match="has 1 matches"):
        learn(tmp_path / "single", recipe(one))


def test_policy_gradient_resumes_bit_for_bit(tmp_path):
    small = [*QUICK, "actor.matches=8", "actor.fragment=16", "learner.batch=256", "mode=serial", "algorithm={name: pg, replay: 1.5}"]
    learn(tmp_path / "whole", load("pong/ppo", [*small, "stop={updates: 12}"]))
    learn(tmp_path / "half", load("pong/ppo", [*small, "stop={updates: 7}"]))
    resume(tmp_path / "half", "stop.updates=12")
    whole = saved(tmp_path / "whole")
    assert whole.optimizer["buffer.uses"].any() and whole.optimizer["buffer.open.length"].any()
    assert_same(whole, saved(tmp_path / "half"))
