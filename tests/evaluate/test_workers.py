"""Evolution by worker processes: the same as without them, whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading

import numpy as np
import psutil
import pytest

from lamarckian.cluster.interface import Process
from lamarckian.ec.algorithm import Proposals
from lamarckian.ec.population import EVALUATED, NOBODY, Evaluation
from lamarckian.ec.workers import Result
from lamarckian.errors import EvaluationError, MisuseError, ProcessError, RecipeError
from lamarckian.evaluate.candidates import Judging, Ready, Task, done
from lamarckian.evaluate.workers import Processes
from lamarckian.transport.channel import Outbox
from tests.commands import wait_for
from tests.evaluate.runs import TOY, begin, front, metrics, tree


@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        ({"name": "zdt1", "variables": 6}, {"name": "nsga2", "population": 20}),
        ({"name": "dtlz2", "variables": 6}, {"name": "nsga2", "population": 20}),
        ({"name": "sphere"}, {"name": "cmaes"}),
        ({"name": "sphere"}, {"name": "openai-es", "population": 20}),
    ],
    ids=["zdt1-nsga2", "dtlz2-nsga2", "sphere-cmaes", "sphere-openai-es"],
)
def test_workers_find_what_one_process_finds(problem, algorithm, tmp_path):
    document = {"problem": problem, "algorithm": algorithm, "stop": {"evaluations": 100}, "seed": 3}
    alone, _ = begin(tmp_path / "alone", **document)
    together, _ = begin(tmp_path / "together", **document, workers={"count": 2})
    assert (tmp_path / "alone" / "front.csv").read_text() == (tmp_path / "together" / "front.csv").read_text()
    assert front(tmp_path / "alone")
    assert (alone.evaluations, alone.generations, alone.measure) == (together.evaluations, together.generations, together.measure)


@pytest.mark.parametrize("mode", ["asynchronous", "steady"])
def test_no_worker_has_to_wait_for_others(mode, tmp_path):
    log = tmp_path / "log"
    outcome, _ = begin(
        tmp_path / "run",
        problem={"name": TOY, "seconds": 0.01, "log": str(log), "faults": {"raise": [2, 5]}},
        workers={"count": 3},
        mode=mode,
        stop={"evaluations": 60},
        record={"every_evaluations": 10},
    )
    assert 60 <= outcome.evaluations < 68  # a generation at most beyond
    assert outcome.failed == 2
    assert outcome.generations >= (7 if mode == "asynchronous" else 20)  # those that come together are selected together
    lines = metrics(tmp_path / "run")
    assert [line["failed"] for line in lines][-1] == 2
    assert all(0 < line["utilisation"] <= 1 for line in lines)
    assert [line["steps"] for line in lines] == sorted({line["steps"] for line in lines})
    judged = log.read_text().split()[1::2]
    assert len(set(judged)) == 3
    assert outcome.evaluations <= len(judged) <= outcome.evaluations + 3
    ids = tree(tmp_path / "run")["algorithm"]["population"]["ids"].tolist()
    assert len(set(ids)) == len(ids) == 8


def test_whatever_befalls_chosen_candidates_all_others_are_judged_once(tmp_path, caplog):
    log = tmp_path / "log"
    faults = {"raise": [1], "exit": [2], "kill": [4], "hang": [5], "nan": [6], "print": [7]}
    outcome, _ = begin(
        tmp_path / "run",
        problem={"name": TOY, "faults": faults, "log": str(log)},
        algorithm={"name": "nsga2", "population": 12},
        workers={"count": 2},
        failures={"timeout_s": 0.5},
        stop={"evaluations": 36},
        record={"every_evaluations": 12, "every_s": 1e6},
    )
    assert (outcome.evaluations, outcome.failed, outcome.generations) == (36, 5, 3)
    saved = tree(tmp_path / "run")
    told = {id: (kind, message) for id, kind, message in saved["faults"]}
    assert {id: kind for id, (kind, _) in told.items()} == {1: "raised", 2: "raised", 4: "died", 5: "timeout", 6: "numbers"}
    for id, words in {
        1: "ValueError: no luck with 1",
        2: "SystemExit: 3",
        4: "was ended by SIGKILL",
        5: "took longer than 0.5 s",
        6: "not finite: objectives [nan, nan]",
    }.items():
        assert words in told[id][1]
    assert "problems.py, line" in told[1][1]
    lines = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
    assert {line["id"]: (line["kind"], line["message"]) for line in lines} == told and len(lines) == 5
    tried = [line.split()[0] for line in log.read_text().splitlines()]
    assert {id: tried.count(id) for id in "12456"} == {"1": 1, "2": 1, "4": 2, "5": 1, "6": 1}
    assert len(tried) == 36 + 1
    population = saved["algorithm"]["population"]
    assert not set(population["ids"].tolist()) & {1, 2, 4, 5, 6}
    assert (population["state"] == EVALUATED).all()
    assert [line["failed"] for line in metrics(tmp_path / "run")] == [5, 5, 5]
    assert caplog.text.count("has failed") == 1  # said once, then counted
    assert "candidate 7 says hello" in caplog.text
    assert not saved["pending"] and not saved["tries"]


def test_what_goes_wrong_once_is_tried_again(tmp_path):
    outcome, _ = begin(
        tmp_path / "run",
        problem={"name": TOY, "faults": {"raise": [1], "leave": [3], "hang": [5]}, "once": str(tmp_path)},
        workers={"count": 2},
        failures={"timeout_s": 0.5, "retries": 1},
        stop={"evaluations": 16},
    )
    assert (outcome.evaluations, outcome.failed) == (16, 0)
    begin(tmp_path / "calm", problem={"name": TOY}, stop={"evaluations": 16})
    assert front(tmp_path / "run") == front(tmp_path / "calm")


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path):
    log = tmp_path / "log"
    toy = {"name": TOY, "seconds": 0.02, "log": str(log)}

    def kill() -> None:
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 12, 20, "candidates")
        os.kill(int(log.read_text().splitlines()[-1].split()[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    outcome, _ = begin(tmp_path / "run", problem=toy, workers={"count": 1}, stop={"evaluations": 40})
    killer.join()
    assert (outcome.evaluations, outcome.failed, outcome.generations) == (40, 0, 5)
    lines = log.read_text().splitlines()
    assert len(lines) in (40, 41)  # the killed one's candidate again, unless it died just between two
    assert len({line.split()[1] for line in lines}) == 2
    begin(tmp_path / "calm", problem=toy | {"seconds": 0.0, "log": None}, stop={"evaluations": 40})
    assert front(tmp_path / "run") == front(tmp_path / "calm")
    assert workers() == []


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "lamarckian.cluster.child" in " ".join(child.cmdline())]


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ("raise", ProcessError, "died 3 times before it could begin to work: worker-0 failed: RuntimeError: no simulator here"),
        ("import", RecipeError, "problem: Toy cannot be imported: No module named 'a_simulator_that_is_not_installed'"),
    ],
)
def test_a_worker_that_cannot_start_ends_the_run(how, error, says, tmp_path):
    with pytest.raises(error) as raised:
        begin(tmp_path / "run", problem={"name": TOY, "start": how}, workers={"count": 1}, stop={"evaluations": 8})
    assert says in str(raised.value)
    assert workers() == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_stops_at_a_fault_where_it_shall(count, tmp_path):
    with pytest.raises(EvaluationError, match="candidate 3 cannot be judged: ValueError: no luck with 3"):
        begin(
            tmp_path / "run",
            problem={"name": TOY, "faults": {"raise": [3], "nan": [1]}},
            workers={"count": count},
            failures={"then": "stop"},
            stop={"evaluations": 40},
        )
    assert workers() == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_penalised_candidate_counts_as_worse_than_all_others(count, tmp_path):
    outcome, _ = begin(
        tmp_path / "run",
        problem={"name": TOY, "faults": {"raise": [0, 3]}},
        workers={"count": count},
        failures={"then": "penalise"},
        stop={"evaluations": 8},
    )
    assert (outcome.evaluations, outcome.failed) == (8, 2)
    population = tree(tmp_path / "run")["algorithm"]["population"]
    by_id = dict(zip(population["ids"].tolist(), population["violation"].tolist(), strict=True))
    assert by_id == {id: 1e100 if id in (0, 3) else 0.0 for id in range(8)}
    assert not {0, 3} & {row[0] for row in front(tmp_path / "run")}
    assert metrics(tmp_path / "run")[-1]["feasible"] == 6 / 8


class Sleepers:
    """A cluster whose processes do nothing: a test speaks for them."""

    def start(self, name, target, config, fds=(), environment=None):
        self.address = config["address"]
        self.popen = subprocess.Popen(["sleep", "60"])
        return Process(name, 0, self.popen.pid)

    def poll(self):
        return []

    def close(self):
        self.popen.kill()
        self.popen.wait()


def test_time_is_counted_from_when_a_candidate_is_made_and_who_is_ended_gets_no_other():
    cluster = Sleepers()
    processes = Processes(cluster, 1, {}, timeout_s=0.1)
    try:
        worker = Outbox([Task], cluster.address, "worker-0")
        worker.send(Ready(0))
        wait_for(lambda: not processes.collect(0.1) and processes.free, 5, "worker")
        processes.submit(Proposals(np.array([7]), np.full((1, 2), NOBODY), {}))
        assert worker.receive(5.0).id == 7
        assert processes.collect(0.5) == []  # made for so long
        assert cluster.popen.poll() is None
        worker.send(Judging(0, 7))
        wait_for(lambda: processes.collect(0.2) == [] and cluster.popen.poll() is not None, 5, "end of the worker")
        assert cluster.popen.returncode == -signal.SIGKILL
        worker.send(done(0, Result(7, {}, Evaluation(np.array([[1.5]]), np.zeros(1)), 0.2), genes=False))
        [result] = wait_for(lambda: processes.collect(0.2), 5, "result")
        assert (result.id, result.evaluation.raw.tolist(), result.evaluation.faults) == (7, [[1.5]], {})
        assert processes.free == 0
        worker.close()
    finally:
        processes.close()


def test_a_genome_too_large_for_messages_says_so(tmp_path):
    with pytest.raises(MisuseError, match="candidate 0 is too large for worker processes"):
        begin(
            tmp_path / "run",
            problem={"name": "sphere", "variables": 3_000_000},
            algorithm={"name": "ga", "population": 2},
            workers={"count": 1},
            stop={"evaluations": 2},
        )
