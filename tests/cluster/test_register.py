"""What a cluster remembers of its processes."""

import signal
from itertools import repeat

import pytest

from lamarckian.cluster.interface import Exit, Failure
from lamarckian.cluster.register import KILLS, Record, Register, deaths
from lamarckian.errors import ProcessError


def ended(code: int | None = None, by: int | None = None) -> Exit:
    return Exit("actor", 0, code, by, None, "")


GONE = Exit("actor", 0, None, None, Failure("", "the machine m is gone, or the keeper of the processes there", ""), "")


@pytest.mark.parametrize(
    "exit, outside",
    [
        (ended(by=signal.SIGKILL), True),
        (ended(by=signal.SIGTERM), True),
        (GONE, True),
        (ended(by=signal.SIGSEGV), False),
        (ended(code=0), False),
        (ended(code=1), False),
    ],
)
def test_who_ended_a_process(exit, outside):
    assert exit.outside == outside
    assert deaths([exit]) == (0 if outside else 1)


def test_kills_count_little():
    kill, crash = ended(by=signal.SIGKILL), ended(by=signal.SIGSEGV)
    assert deaths(repeat(kill, KILLS - 1)) == 0 and deaths(repeat(kill, 2 * KILLS)) == 2
    assert deaths([crash, *repeat(kill, KILLS), crash]) == 3


@pytest.mark.parametrize("exit, times", [(ended(code=1), 3), (ended(by=signal.SIGKILL), 3 * KILLS)])
def test_a_process_is_started_anew_so_often_and_no_more(exit, times):
    register: Register[Record] = Register(max_deaths=2, window_s=60.0)
    record = register["actor"] = Record()
    for _ in range(times - 1):
        register.end(record, exit)
        assert register.revive("actor") is record
    register.end(record, exit)
    with pytest.raises(ProcessError, match=rf"ended {times} times within 60 s: actor "):
        register.revive("actor")
