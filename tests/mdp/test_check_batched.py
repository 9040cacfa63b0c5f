"""The checker against games that play many matches in step, and are broken in one place each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lamarckian.errors import ContractError
from lamarckian.mdp import Continuous, Discrete, Observation, Observations, Result, Role, Step, Steps, Vector
from lamarckian.mdp.check import check_mdp
from lamarckian.seeding import match_seed
from tests.mdp.test_check import refused


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
        (changed(lambda steps: replace(steps, waiting=np.zeros(2, np.bool_))), "'waiting' must have the shape (3,), not (2,)"),
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
