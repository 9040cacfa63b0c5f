"""Frame skip, scripts, shaping and zero-sum rewards, around any game."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lamarckian.errors import ContractError, GameError
from lamarckian.games.pong import Pong
from lamarckian.mdp import Loop, Role, Saves, SynchronousMatch, spar, train
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.wrappers import WrappedMatch, frame_skip, scripted, shaped, zero_sum
from tests.mdp.test_asynchronous import learn, play
from tests.mdp.test_synchronous import ROLES, Rounds, seated
from tests.mdp.toys import ROLE, Always, Count, CountRules, Steps


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


class Uneven(CountRules):
    """Pays `left` the tick and 1, `right` the tick's square and nothing."""

    def advance(self, actions):
        super().advance(actions)
        return {"left": [self.tick, 1.0], "right": [self.tick**2, 0.0]}


def test_in_a_zero_sum_game_each_is_paid_what_it_has_more_than_the_others_since_its_last_step():
    match, fast, slow = zero_sum(Count(5, period={"right": 3}, rules=Uneven)).start(0), Steps(), Steps()
    play(match, left=learn(fast), right=learn(slow))
    assert [list(step.reward) for step in fast] == [[t - t**2, 1] for t in range(1, 6)]
    assert [list(step.reward) for step in slow] == [[1 + 4 + 9 - 1 - 2 - 3, -3], [16 + 25 - 4 - 5, -2]]
    assert [step.terminated for step in slow] == [False, True]


def test_a_zero_sum_game_pays_for_what_the_others_get_when_it_is_not_ones_turn_to_act():
    class Paying(Rounds):
        def advance(self, actions):
            super().advance(actions)
            return {"a": [6.0], "b": [2.0]} if self.round == 1 else {"c": [float(self.round)]}

    class Game:
        roles = ROLES

        def start(self, seed):
            return SynchronousMatch(Paying({"a": 3, "b": 1, "c": 3}), self.roles)

    loop = Loop()
    _, steps, _ = seated(loop, zero_sum(Game()).start(0), {"a": 0, "b": 0, "c": 0})
    loop.run()
    assert {name: [step.reward for step in those] for name, those in steps.items()} == {
        "a": [(6 - 2 / 2,), (-2 / 2,), (-3 / 2,)],
        "b": [(2 - 6 / 2,)],  # it is out before the rest
        "c": [(-8 / 2,), (2.0,), (3.0,)],
    }


def test_a_zero_sum_game_of_two_adds_up_to_nothing_at_any_pace_and_keeps_the_contract():
    game = frame_skip(zero_sum(Count(30, {"right": 4}, {"left": 2}, rules=Uneven)), 2)
    match, left, right = game.start(0), Steps(), Steps()
    play(match, left=learn(left), right=learn(right))
    assert np.sum([step.reward for step in [*left, *right]], axis=0).tolist() == [0, 0]
    assert sum(step.reward[0] for step in left) == sum(t - t**2 for t in range(1, 31))
    check_mdp(game, steps=20)


def test_both_ways_of_stepping_a_zero_sum_game_pay_the_same():
    game = zero_sum(Pong(rounds=2, rally_ticks=40))
    check_mdp(game, steps=120)
    games = game.start_many(3, 0)
    games.reset()
    stay = {name: {"move": np.zeros(3, np.int64)} for name in game.roles}
    paid = [{name: step.reward for name, step in games.step(stay).items()} for _ in range(100)]
    left, right = (np.array([rewards[name] for rewards in paid]) for name in game.roles)
    assert left.dtype == np.float32 and np.array_equal(left, -right) and set(np.unique(left)) == {-2, 0, 2}
    assert isinstance(games, Saves)
    assert game.bots == Pong.bots and game.batchable and game.exact
    assert not zero_sum(Pong(period=2)).batchable and not zero_sum(Count()).batchable


def test_what_cannot_be_settled_is_refused():
    class Alone(Count):
        roles = {"left": ROLE}

        def __init__(self):
            pass

    class Unlike(Alone):
        roles = {"left": ROLE, "right": Role(ROLE.inputs, ROLE.heads, ("pay",))}

    class Own(Alone):
        roles = dict.fromkeys(("left", "right"), ROLE)

        def start(self, seed):
            return WrappedMatch(Count().start(seed), lambda name, controller: controller)

    with pytest.raises(GameError, match="two roles or more; the game has left"):
        zero_sum(Alone())
    with pytest.raises(GameError, match="the same rewards"):
        zero_sum(Unlike())
    with pytest.raises(GameError, match="put other wrappers around it"):
        zero_sum(frame_skip(Count(), 2))
    with pytest.raises(GameError, match=r"made of rules, .* not a WrappedMatch"):
        zero_sum(Own()).start(0)


def test_wrong_rewards_in_a_zero_sum_game_are_the_contracts_matter():
    class Short(CountRules):
        def advance(self, actions):
            return {name: reward[:1] for name, reward in super().advance(actions).items()}

    with pytest.raises(ContractError, match="role 'left' 1 rewards"):
        play(zero_sum(Count(rules=Short)).start(0), left=learn(Steps()))


def far(role, observation):
    return 3.0 + observation.inputs["view"][0] ** 2 if role == "left" else -1.0


def shaping(game, index, gamma):
    match, left, right = game.start(0), Steps(), Steps()
    play(match, left=learn(left), right=learn(right))
    return [sum(gamma**t * step.reward[index] for t, step in enumerate(steps)) for steps in (left, right)], left


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_shaping_telescopes_to_the_first_potential_however_the_match_goes(gamma):
    game = shaped(Count(7, period={"right": 2}), far, gamma)
    assert game.roles["left"].rewards == ("pay", "tick", "shaping")
    sums, left = shaping(game, 2, gamma)
    assert sums == pytest.approx([-3.0, 1.0])
    assert [step.reward[:2] for step in left] == [[1, t] for t in range(1, 8)]
    assert left[1].reward[2] == pytest.approx(gamma * (3 + 4) - (3 + 1))
    check_mdp(game, steps=20)


def test_shaping_may_be_added_to_a_reward_that_is_there():
    game = shaped(Count(7), far, 0.9, "tick")
    assert game.roles == Count().roles
    plain = sum(0.9**t * (t + 1) for t in range(7))
    sums, _ = shaping(game, 1, 0.9)
    assert sums == pytest.approx([plain - 3.0, plain + 1.0])


def test_a_truncated_match_keeps_the_potential_of_its_last_observation():
    class Cut(CountRules):
        def advance(self, actions):
            rewards = super().advance(actions)
            self.truncated, self.terminated = self.terminated, False
            return rewards

    sums, _ = shaping(shaped(Count(7, rules=Cut), far, 0.9), 2, 0.9)
    assert sums == pytest.approx([0.9**7 * (3 + 49) - 3.0, -(0.9**7) + 1.0])


def nowhere(role, observation):
    return float("nan")


def test_a_potential_that_is_no_number_and_a_discount_above_1_are_refused():
    with pytest.raises(ContractError, match="the potential of role 'left' is nan"):
        play(shaped(Count(), nowhere, 0.9).start(0), left=learn(Steps()))
    with pytest.raises(GameError, match=r"gamma in \[0, 1\]; given 1.5"):
        shaped(Count(), far, 1.5)
