"""What a supervisor decides when processes end or cannot be started; the processes themselves are not there."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from lamarckian.cluster.interface import Exit, Failure, Machine, Process
from lamarckian.errors import ProcessError, RecipeError
from lamarckian.evaluate import supervisor as module
from lamarckian.evaluate.posts import Teller
from lamarckian.evaluate.supervisor import FIRST, MAX_DEATHS, Supervisor
from lamarckian.recipe import load
from lamarckian.record.run import create
from tests.commands import SMALL

HOME, OTHER, THIRD = (Machine(name, "127.0.0.1", 2) for name in ("home", "other", "third"))


class Cluster:
    """Starts nothing, fails on the machines that are `broken`, and tells the `ends` that it is given."""

    def __init__(self, *machines: Machine) -> None:
        self.there = machines
        self.broken: set[str] = set()
        self.ends: list[Exit] = []
        self.started: list[tuple[str, str | None]] = []
        self.stopped: list[str] = []
        self.pid = 0

    def machines(self) -> list[Machine]:
        return list(self.there)

    def start(self, name: str, target: str, config: dict, machine: str | None = None) -> Process:
        if machine in self.broken:
            raise ProcessError(f"{machine} has no Lamarckian")
        self.started.append((name, machine))
        return Process(name, 0, self.pid)

    def restart(self, name: str) -> Process:
        self.started.append((name, None))
        return Process(name, 1, self.pid)

    def stop(self, name: str) -> None:
        self.stopped.append(name)

    def poll(self) -> list[Exit]:
        ends, self.ends = self.ends, []
        return ends


class Notes(list):
    def note(self, message: str) -> None:
        self.append(message)

    def update(self, values: dict) -> None:
        """Nobody looks."""


@pytest.fixture
def supervised(tmp_path):
    """A supervisor whose processes are a `Cluster`'s, and that; by some settings, on some machines."""
    with ExitStack() as stack:

        def make(*settings: str, machines: tuple[Machine, ...] = (HOME,)) -> tuple[Supervisor, Cluster]:
            recipe = load("cartpole/ppo", [*SMALL, "cluster.address=local", *settings])
            run = stack.enter_context(create(tmp_path / "run", recipe))
            made, cluster = Supervisor(recipe, run, Notes(), False, None, stack), Cluster(*machines)
            made._cluster = made._home = cluster
            made._machines = {machine.name: machine for machine in machines}
            return made, cluster

        yield make


def died(name: str = FIRST, failure: Failure | None = None) -> Exit:
    return Exit(name, 0, 1, None, failure, "its last words")


def learned(supervisor: Supervisor, updates: int) -> None:
    """Has a learner tell a line of metrics."""
    teller = Teller(supervisor._inbox.address)
    teller.update({"updates": updates})
    while supervisor._updates < updates:
        supervisor._hear()
    teller._outbox.close()


def test_learners_that_end_at_the_same_place_again_and_again_end_the_run(supervised):
    supervisor, cluster = supervised()
    supervisor._begin()
    learned(supervisor, 100)
    for _ in range(MAX_DEATHS):
        cluster.ends = [died()]
        supervisor._poll()
        teller = Teller(supervisor._inbox.address)
        teller.update({"updates": 100})  # as far as before, after some time
        supervisor._hear()
        teller._outbox.close()
    assert len(cluster.started) == 1 + MAX_DEATHS
    cluster.ends = [died()]
    with pytest.raises(ProcessError, match=r"learners ended 4 times without getting any further: .*its last words"):
        supervisor._poll()


def test_learners_that_get_further_each_time_are_started_anew(supervised):
    supervisor, cluster = supervised()
    supervisor._begin()
    for updates in range(1, 3 * MAX_DEATHS):
        learned(supervisor, updates)
        cluster.ends = [died()]
        supervisor._poll()
    assert len(cluster.started) == 3 * MAX_DEATHS


def test_a_learner_goes_to_another_machine_where_one_cannot_start_it(supervised):
    supervisor, cluster = supervised("cluster.learners=2", "learner.batch=512", machines=(HOME, OTHER, THIRD))
    cluster.broken = {"other"}
    supervisor._begin()
    assert cluster.started[-2:] == [(FIRST, None), ("learner-1", "third")]
    assert cluster.stopped == [FIRST]  # which had been started for the first try
    assert supervisor._progress == ["a learner cannot be started; trying again: other has no Lamarckian"]


def test_where_no_machine_can_start_a_learner_the_run_ends_and_says_why(supervised):
    supervisor, cluster = supervised("cluster.learners=2", "learner.batch=512", machines=(HOME, OTHER))
    supervisor._begin()
    cluster.broken, cluster.ends = {None, "home", "other"}, [died("learner-1")]
    supervisor._fell_s = -module.TOGETHER_S
    with pytest.raises(ProcessError, match="has no Lamarckian"):
        while True:
            supervisor._poll()


def test_a_machine_that_works_again_is_worth_a_word_when_it_fails_once_more(supervised, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    supervisor, cluster = supervised(machines=(HOME, OTHER))
    supervisor._begin()
    for _ in range(4):
        supervisor._look()
    assert ("station-other", "other") in cluster.started
    wrong = died("station-other", Failure("MisuseError", "a key is missing", ""))
    for _ in range(2):
        cluster.ends = [wrong]
        supervisor._poll()
        for _ in range(2):  # it gets a station anew, which works for a while
            supervisor._left_out["other"] -= module.AGAIN_S + 1
            for _ in range(4):
                supervisor._look()
    assert supervisor._progress.count("machine other is left out for now: a key is missing") == 2


def test_gpus_that_are_asked_for_and_not_there_are_missed_aloud(supervised):
    supervisor, _ = supervised("cluster.learners=2", "learner.batch=512", machines=(HOME, OTHER))
    supervisor._recipe = supervisor._recipe.model_copy(update={"learner": supervisor._recipe.learner.model_copy(update={"device": "cuda"})})
    with pytest.raises(RecipeError, match=r"given cuda; the machines home, other have not a GPU .* allowed: cpu, auto"):
        supervisor._begin()


def test_a_learner_that_has_ended_is_not_told_to_stop(supervised):
    """While the last words of the other are awaited, its number may be a stranger's."""
    supervisor, cluster = supervised("cluster.learners=2", "learner.batch=512", machines=(HOME, OTHER))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        cluster.pid = stranger.pid
        supervisor._begin()
        cluster.ends = [died(FIRST, Failure("RingError", "learner 1 is lost", ""))]
        supervisor._poll()
        supervisor._interrupt()
        supervisor._hear()
        assert stranger.poll() is None
        stranger.send_signal(signal.SIGKILL)
