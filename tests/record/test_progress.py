import io

import pytest
from rich.console import Console

from lamarckian.recipe import EvolutionStop, Stop
from lamarckian.record import progress as module
from lamarckian.record.progress import Progress, fraction

LINE = {
    "steps": 12_345,
    "updates": 3,
    "minutes": 1.5,
    "rate_hz": 26_100.4,
    "score": 0.512,
    "staleness": 1.25,
    "actors": 2,
    "loss/policy": -0.01,
    "time/wait": 0.4,
}


EVOLUTION_LINE = {
    "steps": 5_000,
    "generation": 50,
    "minutes": 2.0,
    "rate_hz": 41.7,
    "hypervolume": 0.8712,
    "best": None,
    "feasible": 93,
    "failed": 0,
    "utilisation": 0.984,
}


def show(terminal, lines, quiet=False, stop=Stop(steps=20_000), unit="steps"):  # noqa: B008
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with Progress("pong", stop, quiet, console, unit) as progress:
        for line in lines:
            progress.update(line)
        progress.note("actor 1 died [again]")
    return out.getvalue()


def test_without_a_terminal_a_line_is_a_line():
    first, second = show(False, [LINE]).splitlines()
    assert first == "steps 12,345  updates 3  steps/s 26,100  score 0.512  staleness 1.25  actors 2  policy -0.01"
    assert second == "actor 1 died [again]"


def test_an_evolution_counts_evaluations():
    line, _ = show(False, [EVOLUTION_LINE], stop=EvolutionStop(), unit="evaluations").splitlines()
    assert line == "evaluations 5,000  generation 50  evaluations/s 41.7  hypervolume 0.8712  feasible 93  failed 0  utilisation 98%"
    panel = show(True, [EVOLUTION_LINE], stop=EvolutionStop(generations=100), unit="evaluations")
    for text in ("5,000", "41.7", "0.8712", "98%", "elapsed", "2:00"):
        assert text in panel
    assert "steps" not in panel and panel.count("5,000") == panel.count("98%")


def test_plain_lines_come_every_few_seconds(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with Progress("pong", Stop(steps=1000), console=Console(file=out, width=120)) as progress:
        for second in range(21):
            now[0] = 100.0 + second
            progress.update({"steps": 10 * second})
    assert out.getvalue().splitlines() == ["steps 0", "steps 100  eta 1:30", "steps 200  eta 1:20"]


def test_in_a_terminal_a_panel_shows_everything():
    shown = show(True, [LINE])
    for text in ("pong", "12,345", "26,100", "0.512", "1.25", "wait", "40%", "policy", "actor 1 died [again]"):
        assert text in shown


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_nothing(terminal):
    assert show(terminal, [LINE], quiet=True) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_measure_that_is_not_known_yet_is_left_out(terminal):
    shown = show(terminal, [{"steps": 0, "score": None, "loss/policy": None, "time/wait": None}], stop=Stop())
    assert "score" not in shown and "policy" not in shown


def test_the_nearest_limit_says_how_much_is_done():
    assert fraction(Stop(steps=100, minutes=10.0), {"steps": 20, "minutes": 5.0}) == 0.5
    assert fraction(Stop(updates=4), {"steps": 20, "updates": 8}) == 1.0
    assert fraction(Stop(score=0.9), {"steps": 20}) is None


def test_the_limits_of_an_evolution_are_of_what_its_lines_have():
    assert fraction(EvolutionStop(evaluations=20_000, generations=80, minutes=8.0), EVOLUTION_LINE) == 50 / 80
    assert fraction(EvolutionStop(evaluations=10_000), EVOLUTION_LINE) == 0.5
    assert fraction(EvolutionStop(hypervolume=0.9), EVOLUTION_LINE) is None
