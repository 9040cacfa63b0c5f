"""Frame skip and scripts, around any game."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lamarckian.errors import GameError
from lamarckian.mdp import spar, train
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.wrappers import frame_skip, scripted
from tests.mdp.test_asynchronous import learn, play
from tests.mdp.toys import Always, Count, Steps


def test_frame_skip_repeats_the_action_and_adds_up_until_the_end():
    match, steps, fast = frame_skip(Count(10), 4).start(0), Steps(), Steps()
    play(match, left=learn(steps, 2), right=learn(fast, 0))
    assert [step.reward for step in steps] == [[4, 1 + 2 + 3 + 4], [4, 5 + 6 + 7 + 8], [2, 9 + 10]]
    assert [step.terminated for step in steps] == [False, False, True]
    assert [step.observation.inputs["view"][0] for step in steps] == [4, 8, 10]
    assert [moves["left"] for moves in match.rules.log] == [2] * 10


def test_frame_skip_adds_up_missed_ticks():
    match, steps = frame_skip(Count(12, latency={"left": 1}), 3).start(0), Steps()
    play(match, left=learn(steps), right=learn(Steps()))
    assert [step.missed for step in steps] == [1, 0, 0, 0]


def test_frame_skip_of_one_changes_nothing_and_of_none_is_refused():
    plain, skipped, steps, alike = Count(5).start(3), frame_skip(Count(5), 1).start(3), Steps(), Steps()
    play(plain, left=learn(steps))
    play(skipped, left=learn(alike))
    assert [(list(step.reward), step.terminated) for step in steps] == [(list(step.reward), step.terminated) for step in alike]
    assert skipped.controllers["left"].result() == plain.controllers["left"].result()
    with pytest.raises(GameError, match="at least once; given 0"):
        frame_skip(Count(), 0)


def every_third(role, observation):
    return {"move": 1} if role == "left" and observation.inputs["view"][0] % 3 == 0 else None


def test_a_script_decides_where_it_gives_an_action():
    match = scripted(Count(9), every_third).start(0)
    seen = []

    class Watching(Always):
        def act(self, observation):
            seen.append(observation.learn)
            return super().act(observation)

    steps = Steps()
    play(match, left=lambda controller: train(controller, Watching(2), steps), right=lambda controller: spar(controller, Always(0)))
    assert [moves["left"] for moves in match.rules.log] == [1, 2, 2] * 3
    assert [moves["right"] for moves in match.rules.log] == [0] * 9
    assert seen == [False, True, True] * 3
    assert [step.observation.learn for step in steps[:-1]] == seen[1:]


def test_wrappers_are_picklable_nest_and_keep_the_contract():
    game = frame_skip(scripted(Count(20, {"right": 2}), every_third), 2)
    check_mdp(game, steps=20)
    copy = pickle.loads(pickle.dumps(game))
    assert copy.roles == game.roles
    check_mdp(copy, steps=20)


def test_a_wrapped_role_that_leaves_is_offline_and_the_match_shows_what_is_its_own():
    match = frame_skip(Count(6), 2).start(0)
    match.controllers["right"].leave()
    play(match, left=learn(Steps()))
    assert [moves["right"] for moves in match.rules.log] == [None] * 6
    assert match.rules.tick == 6 and np.isfinite(match.rules.value)
    match.close()
    match.close()


def test_bots_of_the_game_are_bots_of_the_wrapped_game():
    class WithBots(Count):
        bots = {"always": Always}

    assert frame_skip(WithBots(), 2).bots == {"always": Always} and frame_skip(Count(), 2).bots == {}


def test_a_wrapped_match_can_be_looked_at_if_the_game_can():
    class Drawn(Count):
        def start_rendered(self, seed):
            match = self.start(seed)
            match.render = lambda: "picture"
            return match

    assert frame_skip(Drawn(), 2).start_rendered(0).render() == "picture"
    assert not hasattr(frame_skip(Count(), 2).start_rendered(0), "render")
