"""The checker against games that are broken in one place each; its message must name the mistake."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from examples.duel import Duel
from lamarckian.errors import ContractError
from lamarckian.games.pong.mdp import Pong
from lamarckian.mdp import Continuous, Discrete, Handoff, Image, Observation, Observations, Result, Role, Step, Steps, Units, Vector, tick
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.conform import draw
from lamarckian.seeding import match_seed
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


# Absent roles.


class Waiting(CountMatch):
    """Waits for every role, and says so or does not."""

    def __init__(self, rules, roles, honest, forgiving):
        super().__init__(rules, roles)
        self.honest, self.forgiving = honest, forgiving

    async def run(self):
        seats = list(self.controllers.values())
        while not self.rules.terminated:
            while not all(seat.waits or (self.forgiving and not seat.online) for seat in seats):
                await tick()
            for seat in seats:
                seat.offer(self.rules.tick)
            while not all(seat._queue or (self.forgiving and not seat.online) for seat in seats):
                await tick()
            rewards = self.rules.advance({seat.name: seat.take(self.rules.tick) for seat in seats})
            for seat in seats:
                seat.credit(rewards[seat.name])
        for seat in seats:
            seat.end(True, False)


class WaitingGame(Count):
    honest = forgiving = True

    def start(self, seed):
        match = Waiting(CountRules(self.ticks, seed), self.roles, self.honest, self.forgiving)
        match.waits = self.honest
        return match


def test_a_match_that_waits_and_says_so_is_in_order():
    check_mdp(WaitingGame(), steps=30)


class Dishonest(WaitingGame):
    honest = False


class Unforgiving(WaitingGame):
    forgiving = False


def test_a_match_that_waits_without_saying_so_or_even_for_roles_that_left():
    refused(Dishonest(), "role 'left' did not answer for 50 ticks, and role 'right' got no step meanwhile. Give the late role")
    refused(Unforgiving(), "role 'left' left, and role 'right' waits for ever: a match must go on without roles that leave", steps=5)


class Uncounted(Count):
    def start(self, seed):
        match = super().start(seed)
        for seat in match.controllers.values():
            seat.take = self.taker(seat, seat.take)
        return match

    def taker(self, seat, take):
        def uncounted(now):
            action = take(now)
            seat._missed = 0
            return action

        return uncounted


def test_missed_ticks_that_are_not_counted():
    refused(Uncounted(), "role 'left' did not answer for 50 ticks, but its step says `missed` 0", steps=200)


# The batched way.


class Guess:
    """One role guesses what `chance` is going to be; matches of `length` steps, by coroutines and batched."""

    def __init__(self, games=None, length=4, truncates=False):
        self.games = games or Guesses
        self.length, self.truncates = length, truncates
        self.roles = {"player": Role({"view": Vector(1)}, {"guess": Discrete(2), "power": Continuous(0.0, 1.0, (2,))})}

    def start(self, seed):
        return GuessMatch(self.roles["player"], seed, self.length, self.truncates)

    def start_many(self, size, seed):
        return self.games(size, seed, self.length, self.truncates)


class GuessMatch:
    waits = True

    def __init__(self, role, seed, length, truncates):
        self.role, self.left, self.truncates = role, length, truncates
        self.random = np.random.default_rng(seed)
        self.chance = self.random.random()
        self.score = 0.0
        self.controllers = {"player": self}

    def see(self):
        return Observation({"view": np.array([self.chance], np.float32)})

    async def reset(self):
        return self.see()

    async def step(self, action):
        if not self.left:
            raise ContractError("over")
        self.left -= 1
        self.chance = self.random.random()
        reward = float(action["guess"] == round(self.chance)) * float(action["power"].sum())
        self.score += reward
        over = self.left == 0
        return Step(self.see(), (reward,), over and not self.truncates, over and self.truncates)

    def leave(self):
        pass

    def result(self):
        return Result(self.score)

    async def run(self):
        pass

    def close(self):
        pass


class Guesses:
    """`GuessMatch`es in step."""

    number = staticmethod(match_seed)

    def __init__(self, size, seed, length, truncates):
        self.size, self.seed, self.length, self.truncates = size, seed, length, truncates

    def begin(self, b):
        self.matches[b] = GuessMatch(None, self.number(self.seed, b, self.games[b]), self.length, self.truncates)

    def now(self):
        return Observations({"view": np.array([match.chance for match in self.matches], np.float32)[:, None]})

    def reset(self):
        self.games, self.matches = [0] * self.size, [None] * self.size
        for b in range(self.size):
            self.begin(b)
        return {"player": self.now()}

    def step(self, actions):
        steps = []
        for b, match in enumerate(self.matches):
            coroutine = match.step({head: values[b] for head, values in actions["player"].items()})
            try:
                coroutine.send(None)
            except StopIteration as stop:
                steps.append(stop.value)
        ended = [b for b, step in enumerate(steps) if step.terminated or step.truncated]
        results = [(b, self.matches[b].result()) for b in ended]
        final = Observations({"view": np.array([steps[b].observation.inputs["view"] for b in ended])}) if ended and self.truncates else None
        for b in ended:
            self.games[b] += 1
            self.begin(b)
        return {
            "player": Steps(
                self.now(),
                np.array([step.reward for step in steps], np.float32),
                np.array([step.terminated for step in steps]),
                np.array([step.truncated for step in steps]),
                final,
                results=results,
            )
        }

    def close(self):
        pass


@pytest.mark.parametrize("truncates", [False, True])
def test_a_batched_game_that_is_in_order(truncates):
    check_mdp(Guess(truncates=truncates), steps=11)


class OtherSeeds(Guesses):
    number = staticmethod(lambda seed, b, k: match_seed(seed, k, b))


class Changed(Guesses):
    change = staticmethod(lambda steps: steps)

    def step(self, actions):
        return {"player": self.change(super().step(actions)["player"])}


def changed(change):
    return type("Changed", (Changed,), {"change": staticmethod(change)})


class Local(Guess):
    """Picklable with local games, too."""

    def __reduce__(self):
        return Guess, (Guesses, self.length, self.truncates)


@pytest.mark.parametrize(
    ("games", "message"),
    [
        (
            OtherSeeds,
            "the batched way differs from the coroutines in match 1: role 'player', step 0: input 'view'. Does match b's k-th game",
        ),
        (changed(lambda steps: "steps"), "batched role 'player': `step` must return Steps, not str"),
        (changed(lambda steps: replace(steps, reward=steps.reward[:, 0])), "'reward' must have the shape (3, 1), not (3,)"),
        (changed(lambda steps: replace(steps, reward=steps.reward.astype(float))), "'reward' must be float32, not float64"),
        (changed(lambda steps: replace(steps, reward=steps.reward + 1)), "in match 0: role 'player', step 0: rewards"),
        (changed(lambda steps: replace(steps, results=[])), "results must be given of the matches that ended, [0, 1, 2], not of []"),
        (changed(lambda steps: replace(steps, final=None)), "`final` must hold the last observations of the 3 matches that were truncated"),
        (
            changed(lambda steps: replace(steps, final=steps.observations if steps.final else None)),
            "in match 0: role 'player', step 3: input 'view'",
        ),
        (changed(lambda steps: replace(steps, results=[(b, Result(9.0)) for b, _ in steps.results])), "step 3: results Result("),
        (changed(lambda steps: replace(steps, missed=np.ones(3, np.int32))), "step 0: missed is 0 and 1"),
        (
            changed(lambda steps: replace(steps, observations=replace(steps.observations, learn=np.zeros(3, np.bool_)))),
            "step 1: learn is True and False",
        ),
        (
            changed(lambda steps: replace(steps, observations=Observations({"view": np.zeros(1, np.float32)}))),
            "batched role 'player', input 'view' must have the shape (3, 1), not (1,)",
        ),
    ],
)
def test_a_batched_game_that_is_broken(games, message):
    refused(Local(games, truncates=True), message)


def test_a_batched_game_that_says_that_it_is_not_exact_or_not_there():
    game = Local(OtherSeeds)
    game.exact = False
    check_mdp(game)
    game = Local(changed(lambda steps: "nothing"))
    game.batchable = False
    check_mdp(game)


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
