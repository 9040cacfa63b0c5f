"""Programs as evaluators: real processes that work, fail in every way, and never outlast their time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from lamarckian.ec.evolution import Evolution
from lamarckian.ec.ga import GA
from lamarckian.ec.population import Evaluation
from lamarckian.errors import MisuseError, RecipeError
from lamarckian.evaluate.evaluator import Command, Folder
from lamarckian.plugins import construct
from tests.commands import wait_for

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "knapsack_command.py"
GENOME = {"x": {"low": 0, "high": 10, "length": 2}}
VALUES = {"x": np.array([[1.0, 2.0], [3.0, 4.0]])}
READ = "import json, os, sys, time; question = json.load(open(sys.argv[1])); id = question['id']; x = question['genome'].get('x');"
WRITE = "json.dump(answer, open(sys.argv[2], 'w'))"


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", READ + script, "{input}", *arguments]


def judge(script: str, *arguments: str, objectives=("a", "b"), genome=GENOME, values=VALUES, ids=(7, 8), **settings) -> Evaluation:
    evaluator = Command(python(script, *arguments), genome, list(objectives), **settings)
    rows = {name: array[: len(ids)] for name, array in values.items()}
    return evaluator.evaluate(np.array(ids), rows)


def fault(script: str, *arguments: str, **settings) -> tuple[str, str]:
    """Kind and message of what happens to candidate 7."""
    evaluation = judge(script, *arguments, ids=(7,), **settings)
    assert list(evaluation.faults) == [0]
    assert evaluation.raw.shape[0] == 1
    return evaluation.faults[0]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_writes_objectives_and_violation_to_its_output_file():
    evaluation = judge("answer = dict(objectives=[sum(x), -x[0]], violation=x[1] - 3);" + WRITE, "{output}")
    assert evaluation.raw.tolist() == [[3, -1], [7, -3]]
    assert evaluation.violation.tolist() == [0, 1]  # 2 − 3 is below 0: nothing is violated
    assert (evaluation.faults, evaluation.genes) == ({}, None)


def test_the_last_line_that_is_printed_counts_where_there_is_no_output_file():
    evaluation = judge("print('loading ...'); print([0, 0]); print([id, os.environ['LAMARCKIAN_CANDIDATE'] == str(id) and 5.5]); print()")
    assert evaluation.raw.tolist() == [[7, 5.5], [8, 5.5]]


def test_named_objectives_come_in_any_order_and_number():
    assert judge("print(json.dumps(dict(objectives=dict(b=2, ticks=90, a=1))))").raw.tolist() == [[1, 2], [1, 2]]
    kind, message = fault("print(json.dumps(dict(objectives=dict(b=2))))")
    assert kind == "raised"
    assert "candidate 7: expected 2 objectives (a, b); a is missing" in message


def test_the_id_stands_in_the_arguments_and_braces_of_other_kinds_stay():
    evaluation = judge("print([int(sys.argv[2].split('=')[1]), len(sys.argv[3])])", "--seed={id}", "{seed}{}")
    assert evaluation.raw.tolist() == [[7, 8], [8, 8]]


def test_a_command_may_be_one_text_and_gets_its_environment():
    command = f"{sys.executable} -S -c \"{READ} print([float(os.environ['SPEED']), 2])\" '{{input}}'"
    assert Command(command, GENOME, ["a", "b"], environment={"SPEED": "4"}).evaluate(np.array([7]), VALUES).raw.tolist() == [[4, 2]]


def test_every_kind_of_value_reaches_the_command():
    genome = {
        "rate": {"low": 1e-2, "high": 1, "scale": "log"},
        "act": {"kind": "categorical", "categories": ["tanh", 3, True]},
        "team": {"kind": "subset", "items": 4, "size": 2},
        "my brain/1": {"kind": "network", "layers": [["w", [3]]]},
    }
    script = (
        "import numpy; g = question['genome']; w = numpy.load(g['my brain/1']);"
        "print([g['rate'][0], g['act'] == ['tanh'] and g['team'] == [1, 3] and w.tolist() == [1, 2, 4.5] and w.dtype == 'f4' and 1.0])"
    )
    evaluator = Command([sys.executable, *python(script)[2:]], genome, ["a", "b"])
    genes = {"rate": np.log([[0.5]]), "act": np.array([[0]]), "team": np.array([[1, 3]])}
    values = evaluator.describe().express(genes | {"my brain/1": np.array([[1, 2, 4.5]], np.float32)})
    evaluation = evaluator.evaluate(np.array([7]), values)
    assert evaluation.faults == {}
    np.testing.assert_allclose(evaluation.raw, [[0.5, 1]], rtol=1e-15)


@pytest.mark.parametrize(
    ("script", "kind", "expected"),
    [
        ("print('no map', file=sys.stderr); sys.exit(3)", "raised", "candidate 7: exit code 3; its last words: no map"),
        ("raise ValueError('no such map')", "raised", "ValueError: no such map"),
        ("print('said before', flush=True); os.kill(os.getpid(), 9)", "raised", "ended by signal 9 (Killed); its last words: said before"),
        ("print([1, 2', 3)", "raised", "exit code 1; its last words:"),
        ("print('done')", "raised", "candidate 7: expected JSON in the last line that it printed, not 'done'"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe[')", "raised", "expected JSON in the last line that it printed"),
        ("print('[' * 100000)", "raised", "expected JSON in the last line that it printed"),
        ("pass", "raised", "expected JSON in the last line that it printed, not ''"),
        ("print([1])", "raised", "candidate 7: expected 2 objectives (a, b), not 1: [1.0]"),
        ("print(5)", "raised", "not 5"),
        ("print('[1, null]')", "raised", "Expected `float`, got `null` - at `$.objectives[1]`"),
        ('print(\'{"objectives": [1, 2], "violations": 0}\')', "raised", "unknown field `violations`"),
        ("print('{\"violation\": 0}')", "raised", "missing required field `objectives`"),
        ("print('[NaN, 1]')", "numbers", "not finite: objectives [nan, 1.0]"),
        ("print('[1, 1e999]')", "numbers", "not finite: objectives [1.0, inf]"),
        ('print(\'{"objectives": [1, 2], "violation": NaN}\')', "numbers", "violation nan"),
    ],
)
def test_a_command_that_fails_says_how(script, kind, expected):
    found, message = fault(script)
    assert found == kind
    assert expected in message


def test_an_output_file_that_is_missing_or_garbage_is_told():
    assert "wrote no output file; its last words: oh" in fault("print('oh')", "{output}")[1]
    assert "expected JSON in its output file, not 'abc'" in fault("open(sys.argv[2], 'w').write('abc')", "{output}")[1]


def test_one_candidate_that_fails_leaves_the_others_alone():
    evaluation = judge("sys.exit(id == 7) if id == 7 else print(x)")
    assert list(evaluation.faults) == [0]
    assert evaluation.raw[1].tolist() == [3, 4]


def test_a_command_that_cannot_be_started_fails_its_candidate(tmp_path):
    program = tmp_path / "program"
    program.write_text("no header")
    program.chmod(0o755)
    evaluation = Command([str(program), "{input}"], GENOME, ["a"]).evaluate(np.array([7]), VALUES)
    assert evaluation.faults[0].kind == "raised"
    assert "candidate 7:" in evaluation.faults[0].message


CHILD = "import subprocess; child = subprocess.Popen(['sleep', '60']); open(os.environ['PIDS'], 'w').write(f'{os.getpid()} {child.pid}');"


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    script = CHILD + "print('waiting', flush=True); time.sleep(60)"
    kind, message = fault(script, timeout_s=0.5, environment={"PIDS": str(pids)})
    assert (kind, message) == ("timeout", "candidate 7: took more than 0.5 s and was killed; its last words: waiting")
    for pid in map(int, pids.read_text().split()):
        wait_for(lambda pid=pid: not alive(pid), 5, "end of the processes")


def test_what_a_command_leaves_running_ends_with_it(tmp_path):
    pids = tmp_path / "pids"
    evaluation = judge(CHILD + "print([1, 2])", ids=(7,), environment={"PIDS": str(pids)})
    assert evaluation.raw.tolist() == [[1, 2]]
    wait_for(lambda: not alive(int(pids.read_text().split()[1])), 5, "end of the child")


def test_a_command_ends_with_the_process_that_started_it(tmp_path):
    pids, temporary = tmp_path / "pids", tmp_path / "temporary"
    temporary.mkdir()
    command = python(CHILD + "time.sleep(60)")
    script = (
        "import numpy as np; from lamarckian.evaluate.evaluator import Command;"
        f"Command({command!r}, {GENOME!r}, ['a']).evaluate(np.array([7]), {{'x': np.array([[1.0, 2.0]])}})"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PIDS": str(pids), "TMPDIR": str(temporary)}, cwd=ROOT)
    both = wait_for(lambda: pids.exists() and len(found := pids.read_text().split()) == 2 and found, 20, "command")
    wait_for(lambda: len(psutil.Process(parent.pid).children()) == 2, 5, "guard beside the command")
    assert all(alive(int(pid)) for pid in both)
    assert len(list(temporary.iterdir())) == 1
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for pid in map(int, both):
        wait_for(lambda pid=pid: not alive(pid), 5, "end of the processes")
    wait_for(lambda: not list(temporary.iterdir()), 5, "end of the temporary files")


def test_changed_genes_are_given_back_and_the_others_stay():
    script = "answer = dict(objectives=[1, 2], genome=dict(x=[9.5, 0]) if id == 8 else {}); print(json.dumps(answer))"
    evaluation = judge(script)
    assert evaluation.genes["x"].tolist() == [[1, 2], [9.5, 0]]
    assert VALUES["x"].tolist() == [[1, 2], [3, 4]]


def test_changed_genes_are_encoded_part_by_part():
    genome = {
        "rate": {"low": 1e-2, "high": 1, "scale": "log"},
        "act": {"kind": "categorical", "categories": ["tanh", 3]},
        "brain": {"kind": "network", "layers": [["w", [2]]]},
    }
    script = (
        "import numpy; net = os.path.join(os.path.dirname(sys.argv[1]), 'trained.npy'); numpy.save(net, numpy.array([5.0, 6.0]));"
        "print(json.dumps(dict(objectives=[1], genome=dict(rate=[0.1], act=[3], brain='trained.npy'))))"
    )
    evaluator = Command([sys.executable, *python(script)[2:]], genome, ["a"])
    values = {"rate": np.array([[0.5]]), "act": np.array([["tanh"]], object), "brain": np.zeros((1, 2), np.float32)}
    genes = evaluator.evaluate(np.array([7]), values).genes
    np.testing.assert_allclose(genes["rate"], [[np.log(0.1)]])
    assert genes["act"].tolist() == [[1]]
    assert genes["brain"].tolist() == [[5, 6]]
    assert evaluator.describe().check(genes, "genes")["brain"].dtype == np.float32


@pytest.mark.parametrize(
    ("part", "changed", "expected"),
    [
        ({"low": 0, "high": 1}, [2], "changed genes of part 'x' do not fit: changed genes: part 'x': gene 0 is 2, outside [0, 1]"),
        ({"low": 0, "high": 1}, [0.5, 0.5], "must be of shape [N, 1], not [1, 2]"),
        ({"low": 0, "high": 1}, ["a"], "numbers are expected"),
        ({"low": 0.1, "high": 1, "scale": "log"}, [-1], "gene 0 is nan"),
        ({"kind": "integer", "low": 0, "high": 3}, [1.5], "whole numbers are expected"),
        ({"kind": "categorical", "categories": ["a", "b"]}, ["c"], "changed genes of part 'x' do not fit"),
        ({"kind": "permutation", "items": 3}, [0, 1, 1], "no permutation"),
        ({"kind": "network", "layers": [["w", [1]]]}, "nowhere.npy", "changed genes of part 'x' do not fit"),
        ({"kind": "network", "layers": [["w", [1]]]}, [float("nan")], "parameter 0 is not finite"),
    ],
)
def test_changed_genes_that_do_not_fit_fail_their_candidate_alone(tmp_path, part, changed, expected):
    evaluator = Folder(str(tmp_path), {"x": part}, ["a"], poll_s=0.01)
    values = evaluator.describe().express(evaluator.describe().sample(1, np.random.default_rng(0)))
    with game(tmp_path, lambda question: {"objectives": [1], "genome": {"x": changed}}):
        evaluation = evaluator.evaluate(np.array([7]), values)
    assert evaluation.faults[0].kind == "raised"
    assert expected in evaluation.faults[0].message
    assert evaluation.genes is None


def test_changed_genes_of_an_unknown_part_fail_their_candidate():
    assert "of a part 'y'; the genome has x" in fault("print(json.dumps(dict(objectives=[1, 2], genome=dict(y=[1]))))")[1]


def test_files_are_kept_where_a_folder_is_given_and_old_output_does_not_count(tmp_path):
    script = "print('hello'); answer = x; id == 8 or " + WRITE
    (tmp_path / "kept" / "8").mkdir(parents=True)
    (tmp_path / "kept" / "8" / "output.json").write_text("[5, 5]")
    evaluation = judge(script, "{output}", folder=str(tmp_path / "kept"))
    assert json.loads((tmp_path / "kept" / "7" / "input.json").read_text()) == {"id": 7, "genome": {"x": [1.0, 2.0]}}
    assert (tmp_path / "kept" / "7" / "output.json").read_text() == "[1.0, 2.0]"
    assert (tmp_path / "kept" / "7" / "stdout.txt").read_text() == "hello\n"
    assert "wrote no output file" in evaluation.faults[1].message


def test_temporary_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    evaluation = judge("sys.exit(1) if id == 8 else print([1, len(sys.argv[1])])")
    assert evaluation.raw[0, 1] > len(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_constructor_refuses_what_cannot_work(tmp_path):
    plain = tmp_path / "game.sh"
    plain.write_text("#!/bin/sh\n")
    for settings, expected in [
        ({"command": "gmae {input}"}, "there is no program 'gmae' in "),
        ({"command": ["python3", "{input}"], "environment": {"PATH": "/nowhere"}}, "there is no program 'python3' in /nowhere"),
        ({"command": "./nowhere/game {input}"}, "nowhere/game"),
        ({"command": [str(plain), "{input}"]}, "game.sh is no program; make it one"),
        ({"command": "echo 'a"}, "cannot be split into words"),
        ({"command": ""}, "it is empty"),
        ({"command": []}, "it is empty"),
        ({"command": "echo [1]"}, "the command gets no genes: write {input}"),
        ({"objectives": []}, "at least one name"),
        ({"objectives": ["a", "a"]}, "each once"),
        ({"objectives": "score"}, "must be a list"),
        ({"timeout_s": 0.0}, "timeout_s must be above 0"),
        ({"timeout_s": float("nan")}, "timeout_s must be above 0"),
        ({"genome": {"x": {"low": 2, "high": 1}}}, "genome.x: a real part"),
        ({"folder": str(plain / "kept")}, "game.sh"),
    ]:
        with pytest.raises(MisuseError) as error:
            Command(**({"command": "echo {input}", "genome": GENOME, "objectives": ["a"]} | settings))
        assert expected in str(error.value)
    with pytest.raises(MisuseError, match=r"there is no folder .*nowhere to write to"):
        Folder(str(tmp_path / "nowhere"), GENOME, ["a"])
    with pytest.raises(MisuseError, match="poll_s must be above 0"):
        Folder(str(tmp_path), GENOME, ["a"], poll_s=0.0)


def test_recipes_build_both():
    settings = {"command": ["echo", "{input}"], "genome": GENOME, "objectives": ["a"], "minimise": False, "environment": {"A": "1"}}
    command = construct(Command, settings, "problem")
    assert (command.names, command.objectives, command.minimise) == (("a",), 1, False)
    assert command.describe().length == 2
    assert command.initialize(3, np.random.default_rng(0)) is None
    assert construct(Folder, {"folder": "/tmp", "genome": GENOME, "objectives": ["a", "b"], "timeout_s": 3}, "problem").objectives == 2
    with pytest.raises(RecipeError, match=r"problem\.genome\.x\.high: missing"):
        construct(Command, settings | {"genome": {"x": {"low": 0}}}, "problem")
    with pytest.raises(RecipeError, match=r"problem\.objectives\.0: given 3"):
        construct(Command, settings | {"objectives": [3]}, "problem")


class game:
    """A game in a thread that watches a folder until the block ends. answer: what it makes of a question; bytes: as they are."""

    def __init__(self, folder: Path, answer, rename: bool = True) -> None:
        self.folder, self.answer, self.rename = folder, answer, rename
        self.seen: list[dict] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._over.set()
        self._thread.join()

    def _play(self) -> None:
        while not self._over.wait(0.005):
            for path in self.folder.glob("*.json"):
                id = path.name.partition(".")[0]
                if path.name != f"{id}.json" or any(question["id"] == int(id) for question in self.seen):
                    continue
                question = json.loads(path.read_text())
                self.seen.append(question)
                answer = json.dumps(self.answer(question))
                result = self.folder / f"{id}.result.json"
                if not self.rename:
                    result.write_text(answer[: len(answer) // 2])
                    time.sleep(0.1)
                aside = self.folder / f"{id}.aside"
                aside.write_text(answer)
                aside.rename(result)


@pytest.mark.parametrize("rename", [True, False])
def test_a_game_that_runs_already_answers_in_its_folder(tmp_path, rename):
    """Without `rename`, half of the result is there first."""
    evaluator = Folder(str(tmp_path), GENOME, ["a", "b"], timeout_s=20, poll_s=0.01)
    with game(tmp_path, lambda question: {"objectives": question["genome"]["x"], "violation": question["id"]}, rename) as played:
        evaluation = evaluator.evaluate(np.array([7, 8]), VALUES)
    assert evaluation.faults == {}
    assert evaluation.raw.tolist() == [[1, 2], [3, 4]]
    assert evaluation.violation.tolist() == [7, 8]
    assert played.seen == [{"id": 7, "genome": {"x": [1.0, 2.0]}}, {"id": 8, "genome": {"x": [3.0, 4.0]}}]
    assert list(tmp_path.iterdir()) == []


def test_a_stale_result_is_not_taken_for_the_answer(tmp_path):
    (tmp_path / "7.result.json").write_text("[5, 5]")
    (tmp_path / "7.json").write_text('{"id": 7, "genome": {"x": [0, 0]}}')
    (tmp_path / "77.result.json").write_text("[6, 6]")
    evaluator = Folder(str(tmp_path), GENOME, ["a", "b"], timeout_s=0.1, poll_s=0.01)
    evaluation = evaluator.evaluate(np.array([7]), VALUES)
    assert evaluation.faults[0] == ("timeout", "candidate 7: no 7.result.json came within 0.1 s")
    assert [path.name for path in tmp_path.iterdir()] == ["77.result.json"]


def test_a_result_that_stays_cut_off_runs_into_the_timeout(tmp_path):
    evaluator = Folder(str(tmp_path), GENOME, ["a", "b"], timeout_s=0.3, poll_s=0.01)
    threading.Timer(0.05, lambda: (tmp_path / "7.result.json").write_text('{"objectives": [1,')).start()
    kind, message = evaluator.evaluate(np.array([7]), VALUES).faults[0]
    assert kind == "timeout"
    assert "candidate 7: 7.result.json did not become valid JSON" in message


def test_a_network_lies_in_a_file_beside_the_question_and_may_be_changed_in_place(tmp_path):
    def train(question):
        path = question["genome"]["brain"]
        weights = np.load(path)
        np.save(path, weights + 1)
        return {"objectives": [float(weights.sum())], "genome": {"brain": path}}

    evaluator = Folder(str(tmp_path), {"brain": {"kind": "network", "layers": [["w", [2]]]}}, ["a"], timeout_s=20, poll_s=0.01)
    with game(tmp_path, train):
        evaluation = evaluator.evaluate(np.array([7]), {"brain": np.array([[1, 2]], np.float32)})
    assert evaluation.raw.tolist() == [[3]]
    assert evaluation.genes["brain"].tolist() == [[2, 3]]
    assert list(tmp_path.iterdir()) == []


def test_evolution_inherits_what_a_command_changed():
    script = "print(json.dumps(dict(objectives=[sum(x)], genome=dict(x=[0.5, 0.25]))))"
    evolution = Evolution(Command(python(script), GENOME, ["a"]), GA(population=2))
    assert not evolution.advance() and evolution.advance()  # one candidate at a time
    assert evolution.population.genes["x"].tolist() == [[0.5, 0.25]] * 2
    assert evolution.failed == 0


def test_the_example_judges_by_hand(tmp_path):
    (tmp_path / "input").write_text(json.dumps({"id": 0, "genome": {"packed": [1, 0, 0, 0, 0, 0, 1, 1, 1, 0]}}))
    subprocess.run([sys.executable, EXAMPLE, tmp_path / "input", tmp_path / "output"], check=True)
    assert json.loads((tmp_path / "output").read_text()) == {"objectives": {"profit": 102}, "violation": 8}  # 12 + 14 + 10 + 17 − 45
