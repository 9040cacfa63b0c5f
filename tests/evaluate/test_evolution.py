"""Whole evolutions: exactly repeatable, to be stopped and to go on at any time, and what they leave behind."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from lamarckian.cli import main
from lamarckian.ec.hypervolume import hypervolume
from lamarckian.errors import CheckpointError, EvaluationError, RecipeError
from lamarckian.record import checkpoint
from lamarckian.record.run import open_run
from tests.commands import start, wait_for
from tests.evaluate.runs import TOY, begin, front, go_on, metrics, tree

ROOT = Path(__file__).parents[2]
ZDT1 = {"name": "zdt1", "variables": 6}
SPHERE = {"name": "sphere", "variables": 4}
RARELY = {"every_s": 1e6, "every_evaluations": 20}


def repeatable(folder: Path) -> list[dict]:
    """The lines of metrics without what a clock says."""
    timed = ("minutes", "rate_hz", "utilisation")
    return [{name: value for name, value in line.items() if name not in timed} for line in metrics(folder)]


def same_tree(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_tree(one[key], other[key]) for key in one if key != "busy_s")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_tree, one, other))
    return np.array_equal(one, other, equal_nan=True) if isinstance(one, np.ndarray) else one == other or (one != one and other != other)


@pytest.mark.parametrize("name", ["nsga2", "ga", "cmaes", "sep-cmaes", "openai-es", "pso", "cso"])
def test_two_halves_are_a_whole(name, tmp_path):
    problem = ZDT1 if name == "nsga2" else SPHERE
    document = {"problem": problem, "algorithm": {"name": name, "population": 20}, "record": RARELY | {"reference": 11}, "seed": 7}
    whole, _ = begin(tmp_path / "whole", **document, stop={"evaluations": 160})
    half, _ = begin(tmp_path / "half", **document, stop={"evaluations": 80})
    assert half.evaluations == 80
    resumed, _ = go_on(tmp_path / "half", "stop.evaluations=160")
    assert (resumed.evaluations, resumed.generations, resumed.measure) == (whole.evaluations, whole.generations, whole.measure)
    assert whole.measure is not None and whole.evaluations == 160
    assert (tmp_path / "half" / "front.csv").read_bytes() == (tmp_path / "whole" / "front.csv").read_bytes()
    assert (tmp_path / "half" / "front.json").read_bytes() == (tmp_path / "whole" / "front.json").read_bytes()
    assert repeatable(tmp_path / "half") == repeatable(tmp_path / "whole")
    assert [line["steps"] for line in metrics(tmp_path / "half")] == list(range(20, 161, 20))
    assert same_tree(tree(tmp_path / "half"), tree(tmp_path / "whole"))
    assert yaml.safe_load((tmp_path / "half" / "recipe.yaml").read_text())["stop"]["evaluations"] == 160


def test_another_seed_is_another_run(tmp_path):
    begin(tmp_path / "one", problem=ZDT1, stop={"evaluations": 40}, seed=1)
    begin(tmp_path / "other", problem=ZDT1, stop={"evaluations": 40}, seed=2)
    assert front(tmp_path / "one") != front(tmp_path / "other")


def test_a_run_stops_at_whatever_comes_first(tmp_path):
    def ended(**stop: float) -> object:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        problem = ZDT1 if "hypervolume" in stop else SPHERE
        name = "nsga2" if "hypervolume" in stop else "cmaes"
        return begin(
            tmp_path / "run",
            problem=problem,
            algorithm={"name": name, "population": 10},
            stop=stop,
            record={"reference": 11} if "hypervolume" in stop else {},
        )[0]

    assert ended(generations=3).evaluations == 30
    assert ended(evaluations=25, generations=30).evaluations == 30
    found = ended(target=0.01, evaluations=5000)
    assert found.measure[1] <= 0.01 and found.evaluations < 1000
    found = ended(hypervolume=100, evaluations=5000)
    assert found.measure[0] == "hypervolume" and found.measure[1] >= 100 and found.evaluations < 5000
    assert ended(minutes=1e-9).generations == 1


def test_a_run_may_end_in_the_middle_of_a_generation_which_is_kept(tmp_path):
    log = tmp_path / "log"
    document = {"problem": {"name": TOY, "seconds": 0.03, "log": str(log)}, "algorithm": {"name": "nsga2", "population": 40}}

    def interrupt() -> None:
        wait_for(lambda: len(judged(tmp_path)) > 10, 20, "candidates")
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    outcome, said = begin(tmp_path / "run", **document, workers={"count": 2})
    interrupter.join()
    assert outcome.interrupted and "stopping" in said
    assert outcome.generations == 0 and 8 <= outcome.evaluations < 40
    assert front(tmp_path / "run") == []
    saved = tree(tmp_path / "run")
    ids = [int(id) for group in saved["pending"] for id in group["ids"]] + [int(entry["proposal"]["ids"][0]) for entry in saved["arrived"]]
    assert sorted(ids) == list(range(40))
    late, _ = go_on(tmp_path / "run", "stop.minutes=1e-9")  # the clock does not wait for the generation
    assert (late.evaluations, late.generations) == (outcome.evaluations, 0)
    done, _ = go_on(tmp_path / "run", "stop={evaluations: 8}", "workers.count=0")  # a number of evaluations does
    assert (done.evaluations, done.generations) == (40, 1)
    begin(tmp_path / "calm", problem={"name": TOY}, algorithm=document["algorithm"], stop={"evaluations": 40})
    assert front(tmp_path / "run") == front(tmp_path / "calm")


def test_front_and_metrics_are_what_was_found(tmp_path):
    folder = tmp_path / "run"
    outcome, _ = begin(
        folder, problem=ZDT1, stop={"evaluations": 80}, record={"reference": [11, 12], "every_evaluations": 40, "every_s": 1e6}
    )
    rows = front(folder)
    assert len(rows) == outcome.front
    header = next(csv.reader((folder / "front.csv").open()))
    assert header == ["id", "f1", "f2", *(f"x[{gene}]" for gene in range(6))]
    population = tree(folder)["algorithm"]["population"]
    for row in rows:
        [place] = np.flatnonzero(population["ids"] == row[0])
        assert population["raw"][place].tolist() == row[1:3]
        assert population["genes"]["x"][place].tolist() == row[3:]
        g = 1 + 9 * sum(row[4:]) / 5
        assert row[1:3] == pytest.approx([row[3], g * (1 - (row[3] / g) ** 0.5)])
        assert not any(other[1] <= row[1] and other[2] <= row[2] and other[1:3] != row[1:3] for other in rows)
    document = json.loads((folder / "front.json").read_text())
    assert document["minimise"] is True
    assert [[one["id"], *one["objectives"].values(), *one["genome"]["x"]] for one in document["individuals"]] == rows
    assert outcome.measure == ("hypervolume", hypervolume(np.array(rows)[:, 1:3], [11, 12]))
    lines = metrics(folder)
    assert [(line["steps"], line["generation"]) for line in lines] == [(40, 5), (80, 10)]
    assert lines[-1]["hypervolume"] == outcome.measure[1]
    assert (lines[-1]["front"], lines[-1]["feasible"], lines[-1]["failed"]) == (len(rows), 1.0, 0)


def test_what_is_maximised_is_measured_from_below(tmp_path):
    outcome, _ = begin(tmp_path / "run", problem={"name": "knapsack"}, stop={"evaluations": 40}, record={"reference": 0})
    assert json.loads((tmp_path / "run" / "front.json").read_text())["minimise"] is False
    assert outcome.front and outcome.measure[1] > 0


def test_a_problem_that_does_not_say_how_many_objectives_it_has(tmp_path):
    problem = {"name": "tests.evaluate.problems:Undeclared"}
    outcome, _ = begin(tmp_path / "run", problem=problem, algorithm={"name": "ga", "population": 8}, stop={"evaluations": 32})
    assert outcome.measure is not None and outcome.measure[0] == "best"
    again, _ = go_on(tmp_path / "run")
    assert (again.measure, again.evaluations, again.front) == (outcome.measure, 32, 1)
    with pytest.raises(RecipeError, match=r"record.reference: given 3 numbers; the problem has 2 objectives"):
        begin(tmp_path / "other", problem=problem | {"width": 2}, stop={"evaluations": 32}, record={"reference": [1, 2, 3]})


@pytest.mark.parametrize("algorithm", [{"name": "nsga2", "population": 8}, {"name": "openai-es", "population": 8}])
def test_a_run_of_which_nothing_can_be_judged_ends_with_an_empty_front(algorithm, tmp_path):
    problem = {"name": "tests.evaluate.problems:Undeclared", "broken": True}
    outcome, _ = begin(tmp_path / "run", problem=problem, algorithm=algorithm, stop={"evaluations": 16})
    assert (outcome.evaluations, outcome.failed, outcome.front, outcome.measure) == (16, 16, 0, None)
    assert front(tmp_path / "run") == []


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("problem.variables=7", "problem.variables is 6 there, 7 in the recipe"),
        ("problem.name=zdt2", "problem.name is 'zdt1' there, 'zdt2' in the recipe"),
        ("seed=4", "seed is 0 there, 4 in the recipe"),
        ("algorithm.name=ga", "algorithm"),
    ],
)
def test_another_run_is_not_gone_on_with(override, says, tmp_path):
    begin(tmp_path / "run", problem=ZDT1, stop={"evaluations": 16})
    with pytest.raises((CheckpointError, RecipeError), match=says):
        go_on(tmp_path / "run", override, "stop.evaluations=32")


def test_settings_that_do_not_fit_the_checkpoint_are_refused(tmp_path):
    begin(tmp_path / "run", problem=SPHERE, algorithm={"name": "pso", "population": 8}, stop={"evaluations": 16})
    with pytest.raises(CheckpointError, match=r"algorithm\.population is 8 there, 16 in the recipe"):
        go_on(tmp_path / "run", "algorithm.population=16", "stop.evaluations=32")


def test_a_refused_resume_leaves_the_run_as_it_was(tmp_path, monkeypatch, capsys):
    def refused(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lamarckian", "resume", str(tmp_path / "run"), *arguments, "--quiet"])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        return err

    begin(tmp_path / "run", problem=ZDT1, stop={"evaluations": 16})
    begin(tmp_path / "other", problem={"name": "zdt2", "variables": 6}, stop={"evaluations": 24})
    before = files(tmp_path / "run")
    says = refused("problem.variables=7")
    assert says == f"error: checkpoint 16 of {tmp_path / 'run'} is of another run: problem.variables is 6 there, 7 in the recipe\n"
    assert files(tmp_path / "run") == before
    shutil.copytree(tmp_path / "other" / "checkpoints" / "24", tmp_path / "run" / "checkpoints" / "24")
    before = files(tmp_path / "run")
    assert "problem.name is 'zdt2' there, 'zdt1' in the recipe" in refused("stop.evaluations=32")
    assert files(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json"])
def test_a_truncated_checkpoint_is_named(name, tmp_path):
    begin(tmp_path / "run", problem=ZDT1, stop={"evaluations": 32}, checkpoint={"every_generations": 2})
    assert checkpoint.saved(open_run(tmp_path / "run")) == [16, 32]
    path = tmp_path / "run" / "checkpoints" / "32" / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError) as error:
        go_on(tmp_path / "run", "stop.evaluations=48")
    assert str(path) in str(error.value) and "others are there: 16" in str(error.value)
    shutil.rmtree(path.parent)
    outcome, _ = go_on(tmp_path / "run", "stop.evaluations=48")
    assert outcome.evaluations == 48
    assert [line["steps"] for line in metrics(tmp_path / "run")] == [48]  # that at 32 was of a checkpoint that is gone


def slow(folder: Path, *more: str, seconds: float = 0.03):  # type: ignore[no-untyped-def]
    """A run in a process of its own, with a log of what it judges."""
    path = folder / "slow.yaml"
    problem = {"name": TOY, "seconds": seconds, "log": str(folder / "log")}
    path.write_text(yaml.safe_dump({"problem": problem, "algorithm": {"name": "nsga2", "population": 40}, "seed": 5}))
    return start("evolve", path, *more, "--run", folder / "run", cwd=ROOT)


def judged(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


def test_a_killed_run_leaves_nobody_behind_and_goes_on_within_its_generation(tmp_path):
    process = slow(tmp_path, "workers.count=2", "checkpoint.every_s=0.3", "stop.evaluations=80", "record.every_evaluations=10")
    try:
        wait_for(lambda: list((tmp_path / "run").glob("checkpoints/[0-9]*")) and len(judged(tmp_path)) > 50, 60, "checkpoint")
        orphans = psutil.Process(process.pid).children(recursive=True)
        assert len(orphans) == 2
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: not any(orphan.is_running() and orphan.status() != "zombie" for orphan in orphans), 5, "end of the workers")
    saved = tree(tmp_path / "run")
    kept = saved["evaluations"]
    assert 0 < kept < 80
    pending = [int(id) for group in saved["pending"] for id in group["ids"]]
    assert saved["evaluations"] + len(pending) in (40, 80)  # those that were on their way too
    outcome, _ = go_on(tmp_path / "run", "workers.count=0")
    assert (outcome.evaluations, outcome.failed, outcome.generations) == (80, 0, 2)
    steps = [line["steps"] for line in metrics(tmp_path / "run")]
    assert steps == sorted(set(steps)) and steps[-1] == 80
    begin(
        tmp_path / "calm",
        problem={"name": TOY},
        algorithm={"name": "nsga2", "population": 40},
        seed=5,
        stop={"evaluations": 80},
    )
    assert front(tmp_path / "run") == front(tmp_path / "calm")


def test_an_interrupted_run_saves_and_says_how_to_go_on(tmp_path):
    process = slow(tmp_path, "workers.count=1", "mode=asynchronous")
    try:
        wait_for(lambda: len(judged(tmp_path)) > 5, 60, "candidates")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "stopping as soon as this can be saved" in err
    assert f"interrupted; saved. To go on: lamarckian resume {tmp_path / 'run'}" in err
    assert "Traceback" not in err
    result = dict(line.split(maxsplit=1) for line in out.splitlines())
    kept = int(result["evaluations"])
    assert kept >= 5
    assert len(judged(tmp_path)) - kept in (0, 1)
    outcome, _ = go_on(tmp_path / "run", f"stop.evaluations={kept + 1}", "mode=steady", "workers.count=0")
    assert outcome.evaluations == kept + 1


def test_a_second_interrupt_stops_at_once(tmp_path):
    process = slow(tmp_path, seconds=3600)
    try:
        wait_for(lambda: judged(tmp_path), 60, "candidate")
        process.send_signal(signal.SIGINT)
        assert "run" in process.stderr.readline()
        assert "once more stops at once" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert (process.returncode, out) == (1, "")
    assert "stopped without saving; there is no checkpoint yet" in err
    assert "Traceback" not in err


def test_a_run_that_a_fault_stops_goes_on_when_the_fault_is_mended(tmp_path):
    problem = {"name": TOY, "faults": {"raise": [13]}, "once": str(tmp_path)}
    document = {"failures": {"then": "stop"}, "stop": {"evaluations": 32}, "algorithm": {"name": "nsga2", "population": 16}}
    with pytest.raises(EvaluationError, match="candidate 13 cannot be judged: ValueError: no luck with 13"):
        begin(tmp_path / "stopped", problem=problem, workers={"count": 2}, **document)
    outcome, _ = go_on(tmp_path / "stopped")  # it raises only once
    begin(tmp_path / "whole", problem={**problem, "faults": {}}, **document)
    assert (outcome.evaluations, outcome.failed) == (32, 0)
    assert front(tmp_path / "stopped") == front(tmp_path / "whole")
