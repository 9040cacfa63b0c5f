"""The trampoline and the handoff, which must mean the same under asyncio."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from lamarckian.mdp import Handoff, Loop, tick


def test_importing_the_room_imports_no_game_library():
    forbidden = {"torch", "gymnasium", "pettingzoo", "ale_py", "ray", "zmq", "numba"}
    code = f"import sys, lamarckian.mdp, lamarckian.mdp.check, lamarckian.mdp.wrappers; print(sorted({forbidden} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


async def take(handoff, log):
    for _ in range(3):
        log.append(await handoff)


async def give(handoff, values):
    for value in values:
        handoff.put(value)
        await tick()


def test_a_handoff_hands_over_one_value_at_a_time_in_the_loop():
    loop, handoff, log = Loop(), Handoff(), []
    loop.spawn(take(handoff, log))
    loop.spawn(give(handoff, "abc"))
    loop.run()
    assert log == ["a", "b", "c"] and not loop.alive


def test_a_handoff_hands_over_one_value_at_a_time_under_asyncio():
    async def main():
        handoff, log = Handoff(), []
        await asyncio.gather(take(handoff, log), give(handoff, "abc"))
        return log

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_a_value_put_early_is_there_at_once():
    loop, handoff, got = Loop(), Handoff(), []

    async def ask():
        return await handoff

    handoff.put(5)
    loop.spawn(ask(), got.append)
    loop.settle()
    assert got == [5] and not handoff.awaited


def test_cancelling_cleans_up_in_the_coroutine_and_the_value_stays_for_the_next():
    loop, handoff, log = Loop(), Handoff(), []

    async def wait():
        try:
            await handoff
        finally:
            log.append("cleaned up")

    task = loop.spawn(wait())
    loop.settle()
    assert handoff.awaited
    loop.cancel(task)
    assert log == ["cleaned up"] and task.done and not handoff.awaited and not loop.alive
    handoff.put(1)
    loop.run()
    assert log == ["cleaned up"]


def test_asyncio_cancels_a_coroutine_that_waits_for_a_handoff():
    async def main():
        handoff = Handoff()
        task = asyncio.ensure_future(take(handoff, []))
        await asyncio.sleep(0)
        assert handoff.awaited
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not handoff.awaited

    asyncio.run(main())


def test_a_tick_waits_for_the_answers_and_for_nothing_else():
    asked, log = [], []
    loop = Loop(lambda: [handoff.put("answer") for handoff in asked] != [] and not asked.clear())

    async def agent():
        handoff = Handoff()
        asked.append(handoff)
        log.append(await handoff)
        await Handoff()  # never answered

    async def clock():
        await tick()
        log.append("tick")

    loop.spawn(agent())
    loop.spawn(clock())
    loop.run()
    assert log == ["answer", "tick"] and len(loop.alive) == 1
    loop.close()
    assert not loop.alive


def test_what_is_no_part_of_virtual_time_is_refused():
    foreign = asyncio.new_event_loop()
    future = foreign.create_future()

    async def wait():
        await future

    loop = Loop()
    task = loop.spawn(wait())
    with pytest.raises(TypeError, match="real I/O run under asyncio"):
        loop.run()
    assert task.done and not loop.alive
    foreign.close()


def test_an_error_in_a_coroutine_goes_through_and_ends_only_its_task():
    loop, log = Loop(), []

    async def fail():
        raise ValueError("broken")

    async def go_on():
        await tick()
        log.append("on")

    loop.spawn(fail())
    loop.spawn(go_on())
    with pytest.raises(ValueError, match="broken"):
        loop.run()
    loop.run()
    assert log == ["on"]
