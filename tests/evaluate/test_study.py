"""Trainings from recorded matches: what is in an epoch, exact repeats and resumes, and how others go on from there."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save as to_safetensors

from lamarckian.data.episodes import discounted
from lamarckian.errors import CheckpointError, MisuseError, RunFolderError
from lamarckian.evaluate.matches import evaluate
from lamarckian.evaluate.plan import load_policy, plan
from lamarckian.evaluate.recording import record
from lamarckian.evaluate.study import Study, split
from lamarckian.evaluate.training import train
from lamarckian.recipe import load
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


class Listener:
    """A student that only notes what it is shown."""

    gamma = np.array([0.9])

    def __init__(self, settings) -> None:
        self.settings = settings
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
    listener = Listener(type("Settings", (), {"data": data.folder, "validation_share": 0.4}))
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
    run, resumed = reopen(tmp_path / "half", ["stop.updates=9"])
    with run:
        train(resumed, run, Progress("", resumed.stop, quiet=True), resume=True)
    whole = saved(tmp_path / "whole")
    assert whole.version == 9 and whole.state["fleet"]
    assert_same(whole, saved(tmp_path / "half"))
    assert_same(whole, saved(tmp_path / "parallel"))


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
    one = record(load("pong/ppo", QUICK), {"left": "stay"}, [], 1, tmp_path / "one", 0)
    with pytest.raises(RunFolderError, match="has 1 matches"):
        learn(tmp_path / "single", recipe(one))


def test_policy_gradient_resumes_bit_for_bit(tmp_path):
    small = [*QUICK, "actor.matches=8", "actor.fragment=16", "learner.batch=256", "mode=serial", "algorithm={name: pg, replay: 1.5}"]
    learn(tmp_path / "whole", load("pong/ppo", [*small, "stop={updates: 12}"]))
    learn(tmp_path / "half", load("pong/ppo", [*small, "stop={updates: 7}"]))
    run, resumed = reopen(tmp_path / "half", ["stop.updates=12"])
    with run:
        train(resumed, run, Progress("", resumed.stop, quiet=True), resume=True)
    whole = saved(tmp_path / "whole")
    assert whole.optimizer["buffer.uses"].any() and whole.optimizer["buffer.open.length"].any()
    assert_same(whole, saved(tmp_path / "half"))
