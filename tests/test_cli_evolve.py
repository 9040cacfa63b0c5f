"""The commands of evolution."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from lamarckian.cli import main
from tests.commands import run

ROOT = Path(__file__).parents[1]
TOY = {"name": "tests.evaluate.problems:Toy"}


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe of the toy problem; gives its path."""

    def write(**document):
        path = tmp_path / "toy.yaml"
        path.write_text(yaml.safe_dump({"problem": TOY, "algorithm": {"name": "nsga2", "population": 8}, **document}))
        return path

    return write


@pytest.fixture
def lamarckian(monkeypatch, capsys):
    """The command line, in this process."""
    monkeypatch.chdir(ROOT)

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["lamarckian", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        done = subprocess.CompletedProcess(arguments, ended.value.code, *capsys.readouterr())
        assert done.returncode == code, done.stderr
        return done

    return call


@pytest.fixture
def refused(lamarckian):
    def call(*arguments, says):
        done = lamarckian(*arguments, code=2)
        assert done.stdout == ""
        assert says in done.stderr

    return call


def table(done):
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def test_a_run_ends_with_its_front_and_pictures(lamarckian, refused, tmp_path):
    folder = tmp_path / "run"
    done = lamarckian("evolve", "zdt/nsga2", "problem.variables=4", "stop.evaluations=2000", "--seed", 5, "--run", folder)
    assert f"run {folder}\n" in done.stderr and "generation" in done.stderr and "evaluations/s" in done.stderr
    result = table(done)
    with (folder / "front.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    assert result["front"] == f"{len(rows)} in {folder / 'front.csv'} and front.json"
    assert (result["evaluations"], result["generations"]) == ("2,000", "20")
    [*_, last] = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert result["hypervolume"] == f"{last['hypervolume']:.6g}"
    assert result["checkpoint"] == str(folder / "checkpoints" / "2000") and (folder / "checkpoints" / "2000").is_dir()
    assert "failed" not in result
    for name in ("front.png", "curve.png"):
        assert result[name] == str(folder / name)
        with Image.open(folder / name) as picture:
            assert picture.width > 500 and len(set(picture.convert("L").tobytes())) > 20
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["seed"] == 5
    assert json.loads((folder / "versions.json").read_text())["seed"] == 5

    refused("evolve", "zdt/nsga2", "--run", folder, says=f"lamarckian resume {folder}")
    again = lamarckian("evolve", "zdt/nsga2", "problem.variables=4", "stop.evaluations=100", "--overwrite", "--quiet", "--run", folder)
    assert again.stderr == ""
    assert table(again)["evaluations"] == "100"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1

    for command in ("evaluate", "video"):
        refused(
            command, folder, says=f"run {folder} is an evolution, which has no agent that plays; what it found is in {folder / 'front.csv'}"
        )


def test_one_objective_has_a_curve_but_no_front_to_draw(lamarckian, recipe, tmp_path):
    path = recipe(problem={"name": "sphere", "variables": 3}, algorithm={"name": "cmaes"}, stop={"target": 1e-3})
    done = lamarckian("evolve", path, "--run", tmp_path / "run")
    result = table(done)
    assert float(result["best"]) <= 1e-3
    assert result["front"].startswith("1 in ")
    assert "curve.png" in result and "front.png" not in result
    assert "note" not in done.stderr


def test_without_a_reference_there_is_a_front_but_no_curve(lamarckian, recipe, tmp_path):
    done = lamarckian("evolve", recipe(stop={"evaluations": 16}), "--run", tmp_path / "run")
    result = table(done)
    assert "front.png" in result and not {"curve.png", "hypervolume", "best"} & set(result)
    assert "note" not in done.stderr


def test_failures_are_counted_and_the_first_is_named(recipe, tmp_path):
    path = recipe(problem=TOY | {"faults": {"raise": [3, 5]}}, stop={"evaluations": 16})
    done = run("evolve", path, "--run", tmp_path / "run", cwd=ROOT)
    assert table(done)["failed"] == "2"
    assert done.stderr.count("candidate 3 has failed: ValueError: no luck with 3") == 1
    assert "candidate 5" not in done.stderr


def test_a_fault_ends_a_run_where_it_shall(recipe, tmp_path):
    path = recipe(problem=TOY | {"faults": {"leave": [3]}}, failures={"then": "stop"}, workers={"count": 1})
    done = run("evolve", path, "--run", tmp_path / "run", "--quiet", cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: candidate 3 cannot be judged: worker-0 ended with exit code 3; its last words: I am leaving" in done.stderr
    assert done.stdout == ""


def test_each_kind_of_recipe_has_its_command(refused, tmp_path):
    refused("train", "zdt/nsga2", "--run", tmp_path / "run", says="recipe zdt/nsga2 evolves a problem: use `lamarckian evolve`")
    refused("evolve", "pong/ppo", "--run", tmp_path / "run", says="recipe pong/ppo trains a game: use `lamarckian train`")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_evolved_is_refused(lamarckian, refused, recipe, tmp_path):
    folder = tmp_path / "run"
    refused("evolve", "zdt/nsga", "--run", folder, says="nearest: zdt/nsga2")
    refused("evolve", recipe(mode="steady", algorithm={"name": "cmaes"}), "--run", folder, says="mode: given 'steady'")
    assert not folder.exists()
    path = recipe(algorithm={"name": "nsga2", "operators": {"y": {"mutation": None}}})
    refused("evolve", path, "--run", folder, says="operators.y: given 'y'; known parts: x")
    refused("evolve", recipe(algorithm={"name": "cmaes"}), "--run", folder, says="1 objective, and this one has 2: use NSGA2")
    lamarckian("evolve", recipe(stop={"evaluations": 8}), "--run", folder, "--quiet")  # what was refused is not in the way


def test_recipes_are_listed(lamarckian):
    assert "NSGA-II" in table(lamarckian("recipes"))["zdt/nsga2"]


@pytest.mark.parametrize(
    "script",
    [
        "import lamarckian.ec",
        "import lamarckian.cli; sys.argv[1:] = ['evolve', 'zdt/nsga2', 'stop.evaluations=100', '--run', sys.argv[1]]; lamarckian.cli.app()",
    ],
    ids=["import", "evolve"],
)
def test_evolution_needs_neither_torch_nor_ray(script, tmp_path):
    heavy = ("torch", "ray", "gymnasium", "onnxruntime")
    report = f"import atexit, sys; atexit.register(lambda: print('LOADED', [name for name in {heavy} if name in sys.modules]))\n"
    command = [sys.executable, "-c", report + script, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"
