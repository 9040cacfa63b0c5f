import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from lamarckian.recipe import resolve
from lamarckian.record.checkpoint import Checkpoint, save
from lamarckian.record.run import Run, create

TOYS = Path(__file__).parent
RECIPE = {
    "game": {"name": "toys:Duel", "field": 16},
    "roles": {"left": {"agent": "learner"}, "right": {"agent": "careful"}},
    "network": {"name": "toys:Net"},
    "algorithm": {"name": "toys:Learning"},
}


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "duel.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def lamarckian(*arguments, cwd=TOYS, **environment):
    script = "from lamarckian.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, "COLUMNS": "200", **environment}, capture_output=True, text=True)


def refused(*arguments, says):
    done = lamarckian(*arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_help_names_every_command():
    done = lamarckian("--help")
    assert done.returncode == 0
    for command in ("train", "evolve", "resume", "evaluate", "record", "tournament", "video", "set", "keys", "recipes", "games", "schema"):
        assert f"\n  {command} " in done.stdout


HEAVY = ("torch", "ray", "matplotlib", "numba", "onnxruntime", "gymnasium", "tensorboard", "pydantic")


@pytest.mark.parametrize(
    "script", ["import lamarckian", "import lamarckian.cli, sys; sys.argv = ['lamarckian', '--help']; lamarckian.cli.main()"]
)
def test_import_and_help_load_nothing_heavy(script):
    report = f"import atexit, sys; atexit.register(lambda: print('LOADED', [name for name in {HEAVY} if name in sys.modules]))\n"
    done = subprocess.run([sys.executable, "-c", report + script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["train"], ["evaluate", "x", "--matches", "0"], ["train", "pong/ppo", "--seed", "x"]]
)
def test_wrong_usage_is_misuse(arguments):
    done = lamarckian(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_unknown_recipe_is_misuse():
    refused("train", "pong/pppo", says="nearest: pong/ppo")


def test_an_unknown_key_is_misuse_and_leaves_no_folder(recipe, tmp_path):
    refused("train", recipe, "learner.bach=3", "--run", tmp_path / "run", says="nearest: learner.batch")
    refused("train", recipe, "game.wind={speed: 0}", "--run", tmp_path / "run", says="game.wind.speed: given 0; allowed: greater than 0")
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_misuse(recipe, tmp_path):
    with create(tmp_path / "run", _resolved()) as run:
        _save(run)
    refused("train", recipe, "--run", tmp_path / "run", says=f"lamarckian resume {tmp_path / 'run'}")


def test_a_folder_that_cannot_be_written_to_is_misuse(recipe, tmp_path):
    refused("train", recipe, "--run", recipe, says="is a file")
    refused("train", recipe, "--run", recipe / "run", says="cannot write to")


@pytest.mark.parametrize("command", ["resume", "evaluate", "video"])
def test_a_run_that_is_not_there_is_misuse(command, tmp_path):
    refused(command, tmp_path / "none", says="is not there")
    refused(command, tmp_path, says="no recipe.yaml")


def test_a_video_of_unknown_kind_is_misuse(tmp_path):
    create(tmp_path / "run", _resolved()).close()
    refused("video", tmp_path / "run", "--out", tmp_path / "match.avi", says="ends in .gif or .mp4")
    done = lamarckian("video", tmp_path / "run", "--out", tmp_path / "match.mp4", PATH=str(tmp_path))
    assert done.returncode == 2 and "ffmpeg" in done.stderr and "Traceback" not in done.stderr


def test_recipes_are_listed_by_name_and_purpose():
    done = lamarckian("recipes")
    assert done.returncode == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert "Pong" in lines["pong/ppo"]


def test_games_are_listed_with_bots_and_what_is_missing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pettingzoo'] = None")
    done = lamarckian("games", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert "Bots: tracker" in lines["pong"]
    assert "Gymnasium" in lines["gymnasium"]
    assert "pip install 'lamarckian[pettingzoo]'" in lines["pettingzoo"]


def test_the_schema_is_json():
    done = lamarckian("schema")
    assert done.returncode == 0
    training, evolution = json.loads(done.stdout)["oneOf"]
    assert set(training["properties"]) >= {"game", "roles", "network", "algorithm"}
    assert set(evolution["properties"]) >= {"problem", "algorithm", "mode", "workers", "failures"}


def _resolved():
    path = list(sys.path)
    sys.path.insert(0, str(TOYS))
    try:
        return resolve(RECIPE)
    finally:
        sys.path[:] = path
        sys.modules.pop("toys", None)


def _save(run: Run):
    save(run, Checkpoint(10, 1, 0.5, {}, {"w": np.zeros(2, np.float32)}), keep=1)


TRAINING = """
import json, pathlib, sys
from dataclasses import dataclass
import numpy as np
from lamarckian import cli
from lamarckian.errors import RecipeError
from lamarckian.record.metrics import Metrics

@dataclass
class Summary:
    interrupted: bool
    steps: int = 1000
    score: float = 0.75
    minutes: float = 1.5
    checkpoint: str = "checkpoints/1000"

@dataclass
class Report:
    run: str
    score_mean: float
    against: str | None

class training:
    def train(recipe, run, progress, resume, taken=None):
        print("TRAIN", recipe.seed, run.folder.name, resume, file=sys.stderr)
        if recipe.learner.device == "cuda":
            raise RecipeError("learner.device: there is no CUDA device")
        if recipe.learner.device == "cpu":
            raise KeyboardInterrupt
        with Metrics(run, 0 if resume else None) as metrics:
            for steps in (500, 1000):
                line = {"steps": steps, "minutes": steps / 1000, "score": steps / 2000}
                metrics.write(line)
                progress.update(line)
        return Summary(interrupted="INTERRUPT" in __import__("os").environ)

class matches:
    def evaluate(run, against, matches, checkpoint, stochastic, seed):
        print("EVALUATE", against, matches, checkpoint, stochastic, seed, file=sys.stderr)
        return Report(str(run.folder), 0.5, against)
    def film(run, against, checkpoint, seed):
        if "BLIND" in __import__("os").environ:
            raise ValueError("no screen")
        return (np.full((8, 8, 3), 60 * index, np.uint8) for index in range(4))

sys.modules["lamarckian.evaluate.training"] = training
sys.modules["lamarckian.evaluate.matches"] = matches
cli.main()
"""


def rehearse(*arguments, **environment):
    """The command line with a training that is none, so that all around it can be watched."""
    command = [sys.executable, "-c", TRAINING, *map(str, arguments)]
    return subprocess.run(command, cwd=TOYS, env={**os.environ, **environment}, capture_output=True, text=True)


def test_training_ends_with_pictures_and_says_how_to_go_on(recipe, tmp_path):
    folder = tmp_path / "run"
    done = rehearse("train", recipe, "stop.steps=1000", "--run", folder, "--seed", 5)
    assert done.returncode == 0, done.stderr
    assert "TRAIN 5 run False" in done.stderr
    assert "steps 500  score 0.25" in done.stderr
    result = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert result["score"] == "0.75"
    assert result["curve"] == str(folder / "curve.png") and (folder / "curve.png").exists()
    assert result["video"] == str(folder / "match.gif") and (folder / "match.gif").exists()
    assert result["evaluate"] == f"lamarckian evaluate {folder}"
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["stop"]["steps"] == 1000


def test_a_picture_that_fails_does_not_fail_the_run(recipe, tmp_path):
    done = rehearse("train", recipe, "--run", tmp_path / "run", BLIND="1")
    assert done.returncode == 0
    assert "note: no screen" in done.stderr and "Traceback" not in done.stderr
    assert "curve" in done.stdout and "video" not in done.stdout
    assert "video" not in rehearse("train", recipe, "--run", tmp_path / "other", "--no-video").stdout


def test_quiet_prints_only_the_result(recipe, tmp_path):
    done = rehearse("train", recipe, "--run", tmp_path / "run", "--quiet", BLIND="1")
    assert done.stderr == "TRAIN 0 run False\n"
    assert done.stdout.startswith("steps ")


def test_an_interrupted_run_says_how_to_go_on_and_does(recipe, tmp_path):
    folder = tmp_path / "run"
    done = rehearse("train", recipe, "--run", folder, INTERRUPT="1")
    assert done.returncode == 1
    assert f"To go on: lamarckian resume {folder}" in done.stderr
    done = rehearse("resume", folder, "stop.steps=2000")
    assert done.returncode == 0, done.stderr
    assert "TRAIN 0 run True" in done.stderr
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["stop"]["steps"] == 2000
    [resumed] = json.loads((folder / "versions.json").read_text())["resumed"]
    assert resumed["overrides"] == ["stop.steps=2000"]


def test_what_the_training_refuses_leaves_the_run_as_it_was(recipe, tmp_path):
    folder = tmp_path / "run"
    rehearse("train", recipe, "--run", folder, "--no-video")
    before = {name: (folder / name).read_text() for name in ("recipe.yaml", "versions.json")}
    done = rehearse("resume", folder, "learner.device=cuda")
    assert done.returncode == 2 and "no CUDA device" in done.stderr and "Traceback" not in done.stderr
    assert {name: (folder / name).read_text() for name in before} == before


def test_a_new_run_that_the_training_refuses_is_not_in_the_way(recipe, tmp_path):
    assert rehearse("train", recipe, "learner.device=cuda", "--run", tmp_path / "run").returncode == 2
    assert rehearse("train", recipe, "--run", tmp_path / "run", "--no-video").returncode == 0
    assert rehearse("train", recipe, "--run", tmp_path / "run", "--no-video").returncode == 2


def test_a_run_that_is_stopped_at_once_fails_without_a_traceback(recipe, tmp_path):
    done = rehearse("train", recipe, "learner.device=cpu", "--run", tmp_path / "run")
    assert done.returncode == 1
    assert "stopped without saving" in done.stderr and "Traceback" not in done.stderr


def test_a_run_is_named_by_recipe_and_time_where_nothing_is_said(recipe, tmp_path):
    command = [sys.executable, "-c", TRAINING, "train", recipe, "--no-video"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TOYS)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("duel-")


def test_an_evaluation_is_a_table_or_one_json_object(recipe, tmp_path):
    create(tmp_path / "run", _resolved()).close()
    done = rehearse("evaluate", tmp_path / "run", "--against", "careless", "--matches", 7, "--checkpoint", 10, "--stochastic", "--json")
    assert done.stderr == "EVALUATE careless 7 10 True 0\n"
    assert json.loads(done.stdout) == {"run": str(tmp_path / "run"), "score_mean": 0.5, "against": "careless"}
    assert "score mean  0.5\n" in rehearse("evaluate", tmp_path / "run").stdout


def test_a_video_goes_where_it_is_told(tmp_path):
    create(tmp_path / "run", _resolved()).close()
    done = rehearse("video", tmp_path / "run", "--out", tmp_path / "film.gif")
    assert done.stdout == f"{tmp_path / 'film.gif'}\n"
    assert (tmp_path / "film.gif").exists()
