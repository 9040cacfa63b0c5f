"""The checker against games that are broken in one place each; its message must name the mistake."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from examples.duel import Duel
from lamarckian.errors import ContractError
from lamarckian.games.pong.mdp import Pong
from lamarckian.mdp import Continuous, Discrete, Handoff, Image, Observation, Result, Role, Units, Vector
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.conform import draw
from tests.mdp.toys import NAMES, ROLE, Count, CountMatch, CountRules


def refused(mdp, message, **settings):
    with pytest.raises(ContractError, match=re.escape(message)):
        check_mdp(mdp, **({"steps": 30} | settings))


def test_good_games_pass():
    check_mdp(Count())
    check_mdp(Count(period={"left": 3}, latency={"right": 2}), steps=7)
    check_mdp(Duel(), seed=5)
    check_mdp(Pong(rounds=1, rally_ticks=40))
    check_mdp(Pong(rounds=1, period={"left": 2}), steps=50)


# What is observed.


def seen(**changes):
    """Rules whose observations have parts replaced."""

    class Rules(CountRules):
        def observe(self, role):
            inputs = {"view": np.zeros(2, np.float32)} | changes.get("inputs", {})
            legal = {"move": np.ones(3, np.bool_)} | changes.get("legal", {})
            return Observation({k: v for k, v in inputs.items() if v is not None}, {k: v for k, v in legal.items() if v is not None})

    return Count(rules=Rules)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {"view": None, "veiw": np.zeros(2)}}, "role 'left', input 'view' is missing; there are ['veiw']"),
        ({"inputs": {"view": [0.0, 1.0]}}, "role 'left', input 'view' must be a numpy array, not list"),
        (
            {"inputs": {"view": np.zeros(2)}},
            "input 'view' must be float32, not float64: numpy makes float64 unless you say dtype=np.float32",
        ),
        ({"inputs": {"view": np.zeros(3, np.float32)}}, "input 'view' must have the shape (2,), not (3,)"),
        ({"inputs": {"view": np.array([0, np.nan], np.float32)}}, "input 'view' is not finite"),
        ({"legal": {"move": None}}, "role 'left', mask 'move' is missing"),
        ({"legal": {"move": np.ones(3, np.int8)}}, "mask 'move' must be bool, not int8"),
        ({"legal": {"move": np.ones(2, np.bool_)}}, "mask 'move' must have the shape (3,), not (2,)"),
        ({"legal": {"move": np.zeros(3, np.bool_)}}, "mask 'move': nothing is legal; leave at least one action"),
        ({"legal": {"jump": np.ones(3, np.bool_)}}, "gets a mask for ['jump'], which no head with `masked=True` is called"),
    ],
)
def test_observations_that_are_not_as_the_role_says(changes, message):
    refused(seen(**changes), message)


def test_inputs_that_the_role_does_not_name_are_let_through():
    class Numbered(CountRules):
        def observe(self, role):
            observation = super().observe(role)
            return observation._replace(inputs={**observation.inputs, "for bots": np.zeros(9)})

    refused(Count(rules=Numbered), "the game cannot be pickled")  # since the class is local; all checks before have passed


def test_an_observation_of_another_type():
    class Rules(CountRules):
        def observe(self, role):
            return {"view": np.zeros(2, np.float32)}

    refused(Count(rules=Rules), "role 'left' must be given an Observation, not dict")


def test_images_in_floats():
    class Rules(CountRules):
        def observe(self, role):
            return Observation({"screen": np.zeros((1, 2, 2), np.float32)})

    game = Count(rules=Rules)
    game.roles = dict.fromkeys(NAMES, Role({"screen": Image(1, 2, 2)}, {"move": Discrete(3)}, ("pay", "tick")))
    refused(game, "input 'screen' must be uint8, not float32: give pixels 0 to 255, networks divide them")


def test_a_conditional_mask_with_an_empty_row():
    class Rules(CountRules):
        def observe(self, role):
            return super().observe(role)._replace(legal={"target": np.array([[True, False], [False, False]])})

    game = Count(rules=Rules)
    heads = {"button": Discrete(2), "move": Discrete(3), "target": Discrete(2, masked=True, given="button")}
    game.roles = dict.fromkeys(NAMES, Role({"view": Vector(2)}, heads, ("pay", "tick")))
    refused(game, "mask 'target': nothing is legal in row [1]")


def test_a_buffer_that_is_written_to_again():
    class Rules(CountRules):
        buffer = np.zeros(2, np.float32)

        def observe(self, role):
            self.buffer[0] = self.tick
            return super().observe(role)._replace(inputs={"view": self.buffer})

    refused(
        Count(rules=Rules),
        "input 'view' of role 'left' changed after it was handed out: did you return the same buffer each time? Return a copy.",
    )


def test_a_mask_that_is_written_to_again():
    class Rules(CountRules):
        def mask(self):
            if self.tick == 0:
                self.kept = np.array([True, True, True])
            self.kept[1] = self.tick % 2 == 0
            return self.kept

    refused(Count(rules=Rules), "mask 'move' of role 'left' changed after it was handed out")


# Rewards, ends and results.


class Meddled(CountMatch):
    """A match whose controllers' steps pass through `meddle`."""

    def __init__(self, meddle, *args):
        super().__init__(*args)
        for controller in self.controllers.values():
            controller.step = self.wrapped(controller.step, meddle)

    def wrapped(self, step, meddle):
        count = itertools.count(1)

        async def meddled(action):
            return meddle(await step(action), next(count))

        return meddled


def meddled(meddle):
    class Game(Count):
        def start(self, seed):
            return Meddled(meddle, CountRules(self.ticks, seed), self.roles)

    return Game()


@pytest.mark.parametrize(
    ("meddle", "message"),
    [
        (lambda step, n: tuple(step), "role 'left': `step` must return a Step, not tuple"),
        (lambda step, n: step._replace(reward=(1.0,)), "role 'left' got 1 rewards; its reward names are ['pay', 'tick']"),
        (lambda step, n: step._replace(reward=(1.0, float("inf"))), "got a reward that is no finite number: (1.0, inf)"),
        (lambda step, n: step._replace(reward=(1.0, None)), "got a reward that is no finite number: (1.0, None)"),
        (lambda step, n: step._replace(terminated=0), "terminated and truncated must be bool, not 0 and False"),
        (lambda step, n: step._replace(missed=-1), "`missed` must count ticks, an int from 0, not -1"),
        (lambda step, n: step._replace(terminated=n == 20), "was told that its match is over, and yet its next step went on"),
        (lambda step, n: step._replace(reward=(1.0, 1.0)), "role 'left' got a reward of (1.0, 1.0) after its match was over"),
    ],
)
def test_steps_that_are_not_in_order(meddle, message):
    refused(meddled(meddle), message)


def test_rules_that_give_too_few_rewards():
    class Rules(CountRules):
        def advance(self, actions):
            super().advance(actions)
            return {role: [1.0] for role in actions}

    refused(Count(rules=Rules), "the rules gave role 'left' 1 rewards; its reward names are ['pay', 'tick']")


NUMBERS = itertools.count()


def resulting(result):
    class Rules(CountRules):
        def result(self, role):
            return result()

    return Count(rules=Rules)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda: 1.0, "`result` must return a Result, not 1.0"),
        (lambda: Result(float("nan")), "'score' of its result must be a finite number, not nan"),
        (lambda: Result(1.0, objectives={"style": None}), "'style' of its result must be a finite number, not None"),
        (lambda: Result(1.0, "victory"), "the outcome must be win, draw, loss or None, not 'victory'"),
        (lambda: Result(float(next(NUMBERS))), "the result of role 'left' changed after its match was over"),
    ],
)
def test_results_that_are_not_in_order(result, message):
    refused(resulting(result), message)


def test_a_role_that_is_never_asked():
    class Match(CountMatch):
        async def run(self):
            pass

    class Game(Count):
        def start(self, seed):
            return Match(CountRules(self.ticks, seed), self.roles)

    refused(Game(), "`run` has returned, but role 'left' still waits: every role must be told that its match is over")


def test_a_clock_that_stands_still_and_one_that_does_not_stop():
    class Still(CountMatch):
        async def run(self):
            await Handoff()

    class Endless(CountMatch):
        async def run(self):
            await super().run()
            await Handoff()

    class Game(Count):
        def start(self, seed):
            return self.match(CountRules(self.ticks, seed), self.roles)

    game = Game()
    game.match = Still
    refused(game, "role 'left' waits for ever")
    game.match = Endless
    refused(game, "every role was told that the match is over, but its `run` does not return")


# The game as a whole.


def test_roles():
    game = Count()
    for roles in ({}, [ROLE], {"left": "a role"}):
        game.roles = roles
        refused(game, "`roles` must map the name of each role to a Role, and have at least one")
    game = Count()
    game.start = lambda seed: CountMatch(CountRules(3, seed), {"left": ROLE})
    refused(game, "a match must have a controller with the `role` of 'right'; it has controllers ['left']")


def test_chance_that_does_not_come_from_the_seed():
    class Rules(CountRules):
        def advance(self, actions):
            rewards = super().advance(actions)
            self.value = random.random()
            return rewards

    refused(Count(rules=Rules), "two matches with seed 7 and the same actions differ: role 'left', step 1: input 'view'. Draw from", seed=7)


def test_rewards_and_lengths_that_do_not_come_from_the_seed():
    class Paid(CountRules):
        def advance(self, actions):
            return {role: [random.random(), 0.0] for role in super().advance(actions)}

    class Long(CountRules):
        lengths = itertools.count(10)

        def __init__(self, ticks, seed):
            super().__init__(next(self.lengths), seed)

    refused(Count(rules=Paid), "step 0: rewards")
    refused(Count(rules=Long), "step 9: terminated is True and False")


def test_matches_that_share_what_changes():
    class Rules(CountRules):
        ticking = 0

        def __init__(self, ticks, seed):
            super().__init__(ticks, seed)
            Rules.ticking = 0

        def observe(self, role):
            return super().observe(role)._replace(inputs={"view": np.array([Rules.ticking, 0], np.float32)})

        def advance(self, actions):
            Rules.ticking += 1
            return super().advance(actions)

    refused(Count(rules=Rules), "a match goes otherwise when another runs beside it: role 'left', step 2: input 'view'. Keep what changes")


def test_something_left_over_from_a_match_that_was_closed_half_way():
    class Rules(CountRules):
        """Clears a counter only at the end of a match."""

        left = 0

        def observe(self, role):
            first = Rules.left if self.tick == 0 else 0
            return super().observe(role)._replace(inputs={"view": np.array([self.tick, first], np.float32)})

        def advance(self, actions):
            Rules.left = 0 if self.tick == self.ticks - 1 else 1
            return super().advance(actions)

    refused(Count(5, rules=Rules), "a match goes otherwise after another was closed half-way: role 'left', step 0: input 'view'", steps=8)


def test_a_game_that_cannot_be_pickled():
    game = Count()
    game.screen = lambda: None
    refused(game, "the game cannot be pickled, which actors in other processes need")


class Forgetful(Count):
    def __getstate__(self):
        return self.__dict__ | {"ticks": 3}


def test_a_game_that_is_not_all_pickled():
    refused(
        Forgetful(), "the pickled game plays otherwise: role 'left', step 2: terminated is False and True. Is all that it needs pickled"
    )


class Touchy(CountMatch):
    def __init__(self, *args, times):
        super().__init__(*args)
        self.times = times

    def close(self):
        self.times -= 1
        if self.times < 0:
            raise KeyError("window")


@pytest.mark.parametrize(
    ("times", "message"), [(0, "`close` failed when called: KeyError"), (1, "`close` failed when called a second time")]
)
def test_a_match_that_cannot_be_closed_at_will(times, message):
    game = Count()
    game.start = lambda seed: Touchy(CountRules(3, seed), game.roles, times=times)
    refused(game, message)


def test_draws_are_legal():
    heads = {
        "button": Discrete(3, masked=True),
        "target": Discrete(4, masked=True, given="button"),
        "aim": Continuous(-2.0, (0.0, 5.0), (2,)),
    }
    role = Role({"troops": Units(2, 2)}, heads)
    stream = np.random.default_rng(0)
    for _ in range(50):
        legal = {"button": stream.random(3) < 0.4, "target": stream.random((3, 4)) < 0.4}
        legal["button"][0] = legal["target"][:, 1] = True
        action = draw(role, legal, stream)
        assert legal["button"][action["button"]] and legal["target"][action["button"], action["target"]]
        assert (action["aim"] >= -2).all() and (action["aim"] <= [0, 5]).all() and action["aim"].dtype == np.float32
