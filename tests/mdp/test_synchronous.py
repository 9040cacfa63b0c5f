"""Matches that wait: for all roles at once, or for the one whose turn it is, but for nobody who left."""

from __future__ import annotations

import asyncio

import numpy as np

from lamarckian.mdp import Discrete, Loop, Observation, Result, Role, Vector, spar, tick, train
from lamarckian.mdp.synchronous import SynchronousMatch
from tests.mdp.toys import Always, Steps

ROLES = dict.fromkeys(("a", "b", "c"), Role({"view": Vector(1)}, {"move": Discrete(9)}))


class Rounds:
    """Every role acts in every round, up to a last round of its own; a round pays its number."""

    def __init__(self, last):
        self.last = last
        self.round = 0
        self.log = []

    def to_act(self):
        return [role for role, last in self.last.items() if self.round < last]

    def observe(self, role):
        return Observation({"view": np.array([self.round], np.float32)})

    def advance(self, actions):
        self.log.append({role: None if action is None else action["move"] for role, action in actions.items()})
        self.round += 1
        return {role: [float(self.round)] for role in actions}

    def ended(self, role):
        return self.round >= self.last[role], False

    def result(self, role):
        return Result(float(min(self.round, self.last[role])))


class Ring(Rounds):
    """One role acts at a time; each round pays everyone."""

    def __init__(self, rounds):
        super().__init__(dict.fromkeys(ROLES, rounds))

    def to_act(self):
        return [list(ROLES)[self.round % 3]] if self.round < self.last["a"] else []

    def advance(self, actions):
        super().advance(actions)
        return {role: [1.0] for role in ROLES}


def seated(loop, match, moves, wrap=train):
    clock = loop.spawn(match.run())
    steps = {name: Steps() for name in moves}
    tasks = {name: loop.spawn(wrap(match.controllers[name], Always(move), steps[name])) for name, move in moves.items()}
    return clock, steps, tasks


def test_all_roles_act_in_each_round_and_one_that_is_done_early_is_told_then():
    loop, rules = Loop(), Rounds({"a": 4, "b": 2, "c": 4})
    clock, steps, _ = seated(loop, SynchronousMatch(rules, ROLES), {"a": 1, "b": 2, "c": 3})
    loop.run()
    assert rules.log == [{"a": 1, "b": 2, "c": 3}] * 2 + [{"a": 1, "c": 3}] * 2 and clock.done
    assert [step.reward for step in steps["b"]] == [(1,), (2,)] and steps["b"][-1].terminated
    assert [step.reward for step in steps["a"]] == [(1,), (2,), (3,), (4,)] and steps["a"][-1].terminated


def test_it_waits_for_a_role_that_takes_its_time():
    loop, rules = Loop(), Rounds(dict.fromkeys(ROLES, 3))
    match = SynchronousMatch(rules, ROLES)
    clock, _, _ = seated(loop, match, {"a": 1, "b": 2})

    async def slowly(controller):
        await controller.reset()
        for _ in range(3):
            for _ in range(20):
                await tick()
            step = await controller.step({"move": 3})
        return step

    last = []
    loop.spawn(slowly(match.controllers["c"]), last.append)
    loop.run()
    assert rules.log == [{"a": 1, "b": 2, "c": 3}] * 3 and clock.done and last[0].terminated and last[0].missed == 0


def test_a_role_that_is_cancelled_is_no_longer_waited_for():
    loop, rules = Loop(), Rounds(dict.fromkeys(ROLES, 6))
    match = SynchronousMatch(rules, ROLES)
    clock, steps, _ = seated(loop, match, {"a": 1, "b": 2})

    async def stubborn(controller):
        try:
            await controller.reset()
            await controller.step({"move": 3})
            while True:
                await tick()
        finally:
            controller.leave()

    task = loop.spawn(stubborn(match.controllers["c"]))
    for _ in range(5):
        loop.turn()
    assert len(rules.log) == 1
    loop.cancel(task)
    loop.run()
    assert clock.done and len(steps["a"]) == len(steps["b"]) == 6
    assert rules.log == [{"a": 1, "b": 2, "c": 3}] + [{"a": 1, "b": 2, "c": None}] * 5


def test_a_seat_that_is_left_before_the_match_and_a_match_that_everyone_has_left():
    loop, rules = Loop(), Rounds(dict.fromkeys(ROLES, 10**9))
    match = SynchronousMatch(rules, ROLES)
    match.controllers["c"].leave()
    clock = loop.spawn(match.run())

    async def step(controller):
        await controller.reset()
        for _ in range(5):
            await controller.step({"move": 1})
        controller.leave()

    for name in ("a", "b"):
        loop.spawn(step(match.controllers[name]))
    loop.run()
    assert clock.done and rules.log == [{"a": 1, "b": 1, "c": None}] * 5 + [dict.fromkeys(ROLES)]


def test_turns_each_role_acts_when_it_is_its_turn_and_earns_what_came_between():
    loop, rules = Loop(), Ring(7)
    clock, steps, _ = seated(loop, SynchronousMatch(rules, ROLES), {"a": 1, "b": 2, "c": 3})
    loop.run()
    assert rules.log == [{"a": 1}, {"b": 2}, {"c": 3}, {"a": 1}, {"b": 2}, {"c": 3}, {"a": 1}] and clock.done
    assert [step.reward for step in steps["a"]] == [(3,), (3,), (1,)]
    assert [step.reward for step in steps["b"]] == [(3,), (3,)]  # what came before its first step is paid with it
    assert [step.observation.inputs["view"][0] for step in steps["b"]] == [4, 7]
    assert all(each[-1].terminated for each in steps.values())


def test_the_same_under_asyncio_with_a_role_that_is_cancelled():
    async def main():
        rules = Rounds(dict.fromkeys(ROLES, 9))
        match, steps = SynchronousMatch(rules, ROLES), Steps()
        gone = asyncio.ensure_future(spar(match.controllers["c"], Always(3)))

        async def cancel():
            while len(rules.log) < 3:
                await asyncio.sleep(0)
            gone.cancel()

        await asyncio.gather(
            match.run(),
            train(match.controllers["a"], Always(1), steps),
            spar(match.controllers["b"], Always(2)),
            cancel(),
            gone,
            return_exceptions=True,
        )
        return rules, steps

    rules, steps = asyncio.run(main())
    assert len(steps) == 9 and steps[-1].terminated and len(rules.log) == 9
    assert rules.log[0]["c"] == 3 and rules.log[-1] == {"a": 1, "b": 2, "c": None}


def test_closing_twice_closes_once():
    closed = []
    match = SynchronousMatch(Ring(2), ROLES, close=lambda: closed.append(1))
    match.close()
    match.close()
    assert closed == [1]
