"""Asynchrony in earnest: late, slow and missing roles, in virtual time and under asyncio."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest

from lamarckian.errors import ContractError
from lamarckian.mdp import AsynchronousMatch, Handoff, Loop, Observation, Result, Role, spar, tick, train
from tests.mdp.toys import ROLE, Always, Count, Steps


def play(match, **coroutines):
    """Runs a match in virtual time with a coroutine for each role; the loop, and whether all of them ended."""
    loop = Loop()
    loop.spawn(match.run())
    for name, coroutine in coroutines.items():
        loop.spawn(coroutine(match.controllers[name]))
    loop.run()
    return loop


def learn(steps, move=0):
    return lambda controller: train(controller, Always(move), steps)


async def late(controller, ticks, steps, wait=tick):
    """Takes `ticks` ticks over its first answer."""
    await controller.reset()
    for _ in range(ticks):
        await wait()
    for _ in range(3):
        steps.record(await controller.step({"move": 2}))
    controller.leave()


def test_a_late_role_misses_ticks_and_delays_nobody():
    match, prompt, slow = Count(20).start(0), Steps(), Steps()
    loop = play(match, left=learn(prompt), right=lambda controller: late(controller, 7, slow))
    assert len(prompt) == 20 and prompt[-1].terminated and {step.missed for step in prompt} == {0}
    assert [step.missed for step in slow] == [7, 0, 0] and not loop.alive
    assert slow[0].reward == (8, sum(range(1, 9)))  # seven missed ticks and the one it acted in
    moves = [moves["right"] for moves in match.rules.log]
    assert moves == [None] * 7 + [2] * 3 + [None] * 10
    assert [moves["left"] for moves in match.rules.log] == [0] * 20


def test_a_late_role_under_asyncio():
    async def main():
        match, prompt, slow = Count(20).start(0), Steps(), Steps()
        left, right = match.controllers["left"], match.controllers["right"]
        await asyncio.gather(
            match.run(), train(left, Always(), prompt), late(right, 7, slow, lambda: asyncio.sleep(0)), return_exceptions=False
        )
        return match, prompt, slow

    match, prompt, slow = asyncio.run(main())
    assert len(prompt) == 20 and {step.missed for step in prompt} == {0}
    assert slow[0].missed >= 6 and [step.missed for step in slow[1:]] == [0, 0]
    assert [moves["left"] for moves in match.rules.log] == [0] * 20


def test_a_role_that_never_comes_delays_nobody():
    prompt = Steps()
    play(Count(5).start(0), left=learn(prompt))
    assert len(prompt) == 5 and prompt[-1].terminated


def test_a_cancelled_role_goes_offline_and_the_match_ends_for_the_others():
    loop, match, steps = Loop(), Count(20).start(0), Steps()
    clock = loop.spawn(match.run())
    loop.spawn(learn(steps)(match.controllers["left"]))
    gone = loop.spawn(spar(match.controllers["right"], Always(1)))
    while len(match.rules.log) < 5:
        loop.turn()
    loop.cancel(gone)
    assert not match.controllers["right"].online
    loop.run()
    assert clock.done and steps[-1].terminated and len(steps) == 20
    assert [moves["right"] for moves in match.rules.log][:4] == [1] * 4
    assert [moves["right"] for moves in match.rules.log][6:] == [None] * 14


def test_a_cancelled_role_under_asyncio():
    async def main():
        match, steps = Count(50).start(0), Steps()
        gone = asyncio.ensure_future(spar(match.controllers["right"], Always(1)))

        async def cancel():
            while len(match.rules.log) < 5:
                await asyncio.sleep(0)
            gone.cancel()

        results = await asyncio.gather(
            match.run(), train(match.controllers["left"], Always(), steps), cancel(), gone, return_exceptions=True
        )
        return match, steps, results

    match, steps, results = asyncio.run(main())
    assert isinstance(results[3], asyncio.CancelledError) and not match.controllers["right"].online
    assert len(steps) == 50 and steps[-1].terminated and results[1] == Result(50.0, objectives={"log": 50.0})
    assert [moves["right"] for moves in match.rules.log][10:] == [None] * 40


def test_roles_that_act_at_different_rates_get_the_rewards_of_their_own_intervals():
    match, fast, slow = Count(10, period={"right": 3}).start(0), Steps(), Steps()
    play(match, left=learn(fast, 1), right=learn(slow, 2))
    assert [step.reward for step in fast] == [(1, t) for t in range(1, 11)]
    assert [step.reward for step in slow] == [(3, 1 + 2 + 3), (3, 4 + 5 + 6), (3, 7 + 8 + 9), (1, 10)]
    assert [step.observation.inputs["view"][0] for step in slow] == [3, 6, 9, 10]
    assert {step.missed for step in [*fast, *slow]} == {0}
    assert [moves["right"] for moves in match.rules.log] == [2] * 10  # an action stays in effect for the period


def test_latency_delays_the_effect_and_nothing_else():
    class Tick(Always):
        def act(self, observation):
            self.move = int(observation.inputs["view"][0]) % 3
            return super().act(observation)

    match, steps = Count(9, latency={"left": 2}).start(0), Steps()
    play(match, left=lambda controller: train(controller, Tick(), steps), right=learn(Steps()))
    assert [moves["left"] for moves in match.rules.log] == [None, None, *[t % 3 for t in range(7)]]
    assert [step.missed for step in steps] == [1, 1, *[0] * 7]


def test_the_last_step_is_paid_once():
    match, steps = Count(3).start(0), Steps()
    play(match, left=learn(steps))
    controller = match.controllers["left"]
    again = []
    loop = Loop()
    loop.spawn(controller.step({"move": 0}), again.append)
    loop.run()
    assert again[0].terminated and again[0].reward == (0, 0)


def test_the_wrong_number_of_rewards_is_an_error():
    class Rules:
        terminated = truncated = False

        def observe(self, role):
            return Observation({"view": np.zeros(2, np.float32)})

        def advance(self, actions):
            return {"left": [1.0]}

    match = AsynchronousMatch(Rules(), {"left": ROLE})
    with pytest.raises(ContractError, match=r"role 'left' 1 rewards; its reward names are \['pay', 'tick'\]"):
        play(match, left=learn(Steps()))


def test_a_thousand_matches_in_one_process():
    loop, ended, steps = Loop(), [], Steps()
    for seed in range(1000):
        match = Count(30, period={"right": 2}).start(seed)
        loop.spawn(match.run())
        loop.spawn(train(match.controllers["left"], Always(), steps), ended.append)
        loop.spawn(spar(match.controllers["right"], Always(1)), ended.append)
    loop.run()
    assert len(ended) == 2000 and len(steps) == 30_000 and not loop.alive


def gathered(seed):
    async def main():
        match, steps = Count(12, {"right": 3}, {"right": 1}).start(seed), Steps()
        results = await asyncio.gather(
            match.run(), train(match.controllers["left"], Always(), steps), spar(match.controllers["right"], Always(1))
        )
        return match.rules.log, steps, results

    return asyncio.run(main())


def test_the_same_coroutines_gather_under_asyncio():
    log, steps, results = gathered(4)
    match, alike = Count(12, {"right": 3}, {"right": 1}).start(4), Steps()
    play(match, left=learn(alike), right=lambda controller: spar(controller, Always(1)))
    assert log == match.rules.log and results[1:] == [match.controllers["left"].result()] * 2
    for step, other in zip(steps, alike, strict=True):
        assert step[1:] == other[1:] and np.array_equal(step.observation.inputs["view"], other.observation.inputs["view"])


def begin_and_abandon(loop):
    match = Count(1000).start(0)
    loop.spawn(match.run())
    loop.spawn(learn(Steps())(match.controllers["left"]))
    loop.spawn(spar(match.controllers["right"], Always()))
    return match


def test_nothing_is_left_of_a_match_that_is_closed_half_way():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop = Loop()
        match = begin_and_abandon(loop)
        for _ in range(10):
            loop.turn()
        begin_and_abandon(loop)  # not even begun
        alive = [weakref.ref(thing) for thing in (match, match.rules, *match.controllers.values())]
        loop.close()
        match.close()
        match.close()
        del match, loop
        gc.collect()
        assert [ref() for ref in alive] == [None] * 4
    assert not caught


def test_memory_does_not_grow_with_abandoned_matches():
    def abandon(count):
        for _ in range(count):
            loop = Loop()
            match = begin_and_abandon(loop)
            loop.turn()
            loop.turn()
            loop.close()
            match.close()
        gc.collect()

    tracemalloc.start()
    try:
        abandon(50)
        before, _ = tracemalloc.get_traced_memory()
        abandon(200)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000  # bytes; 200 matches hold far more


def test_asyncio_leaves_nothing_of_a_match_that_is_abandoned():
    async def main():
        match = Count(10**9).start(0)
        tasks = [
            asyncio.ensure_future(c)
            for c in (match.run(), learn(Steps())(match.controllers["left"]), spar(match.controllers["right"], Always()))
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        match.close()
        return weakref.ref(match)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        alive = asyncio.run(main(), debug=False)
        gc.collect()
    assert alive() is None and not caught


def test_an_agent_that_waits_for_ever_holds_up_only_itself():
    class Thinker(Always):
        def act(self, observation):
            return Handoff()

    match, steps = Count(6).start(0), Steps()
    loop = play(match, left=learn(steps), right=lambda controller: spar(controller, Thinker()))
    assert len(steps) == 6 and len(loop.alive) == 1
    loop.close()
    assert not match.controllers["right"].online


def test_the_rules_are_closed_once():
    closed = []
    match = AsynchronousMatch(Count(3).start(0).rules, {"left": ROLE}, close=lambda: closed.append(1))
    match.close()
    match.close()
    assert closed == [1] and isinstance(match.controllers["left"].role, Role)
