"""Pong as users and recipes meet it: settings, errors, bots' strength, pictures."""

import pickle
import typing

import numpy as np
import pytest

from lamarckian.errors import ContractError, GameError
from lamarckian.games.pong import Pong
from lamarckian.mdp import Discrete, Image, Loop, Observations, Vector, spar

ROLES = ("left", "right")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, r"Pong: setting 'rounds' is 0: .*greater than or equal to 1"),
        ({"rally_ticks": -3}, r"'rally_ticks' is -3"),
        ({"observation": "pixels"}, r"'observation' is 'pixels': .*'vector' or 'image'"),
        ({"image_size": 16}, r"'image_size' is 16"),
        ({"period": 0}, r"'period"),
        ({"period": {"left": 0}}, r"'period\..*left' is 0"),
        ({"latency": {"top": 1}}, r"'latency\..*top"),
        ({"round": 5}, r"'round' is 5: Unexpected keyword argument.*Settings: rounds, rally_ticks"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(GameError, match=message):
        Pong(**settings)


def test_wrong_settings_of_bots_are_refused():
    with pytest.raises(GameError, match=r"Tracker: setting 'reaction_ticks' is -1"):
        Pong.bots["tracker"](reaction_ticks=-1)
    with pytest.raises(GameError, match=r"Tracker: setting 'error_px' is nan"):
        Pong.bots["tracker"](error_px=float("nan"))
    with pytest.raises(GameError, match=r"Random: setting 'skill' .*Settings: none"):
        Pong.bots["random"](skill=1)


def test_batched_play_is_refused_where_it_cannot_be():
    with pytest.raises(GameError, match="need period 1 and latency 0"):
        Pong(latency=3).start_many(4, 0)
    with pytest.raises(GameError, match="at least one match, not 0"):
        Pong().start_many(0, 0)


def test_roles():
    for role in Pong().roles.values():
        assert role.inputs == {"vector": Vector(10)} and role.heads == {"move": Discrete(3)} and role.rewards == ("score",)
    assert Pong(observation="image", image_size=96, image_frames=2).roles["right"].inputs == {"image": Image(2, 96, 96)}


def test_settings_can_be_read_from_the_constructors():
    for made in (Pong, *Pong.bots.values()):
        hints = typing.get_type_hints(made.__init__, include_extras=True)
        assert not any(isinstance(hint, str) for hint in hints.values())
    assert set(typing.get_type_hints(Pong.__init__)) - {"return"} == {
        *("rounds", "rally_ticks", "observation", "image_size", "image_frames", "period", "latency")
    }


def test_pong_can_be_pickled():
    game = pickle.loads(pickle.dumps(Pong(rounds=3, period={"left": 2}, observation="image")))
    assert game.roles == Pong(observation="image").roles and not game.batchable
    game.start(1).close()


@pytest.mark.parametrize("action", [{"move": 3}, {"move": -1}, {"move": float("nan")}, {"move": 1.0}, {"move": 2**70}, {}, {"fire": 1}, 2])
def test_a_wrong_action_is_named(action):
    match, loop = Pong().start(0), Loop()

    async def act(controller):
        await controller.reset()
        await controller.step(action)

    loop.spawn(act(match.controllers["right"]))
    loop.spawn(match.run())
    with pytest.raises(ContractError, match=r"role 'right', head 'move': the action .* is not one of 0 \(stay\), 1 \(up\), 2 \(down\)"):
        loop.run()
    loop.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"move": np.array([0, 3])}, r"role 'right', head 'move': the action 3 in match 1 is not one of 0 \(stay\), 1 \(up\)"),
        ({"move": np.array([2**32, 0])}, r"the action 4294967296 in match 0"),
        ({"move": np.array([0.0, np.nan])}, r"actions must be integers \[2\], not float64 \[2\]"),
        ({"move": np.zeros(3, np.int32)}, r"actions must be integers \[2\], not int32 \[3\]"),
        ({}, "there are no actions"),
    ],
)
def test_wrong_batched_actions_are_named_and_nothing_moves(actions, message):
    lanes = Pong().start_many(2, 0)
    lanes.reset()
    before = lanes.save()
    with pytest.raises(ContractError, match=message):
        lanes.step({"left": {"move": np.ones(2, np.int64)}, "right": actions})
    for name, array in lanes.save().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_a_match_hands_out_is_never_written_to_again():
    match, loop, seen = Pong(rounds=1, rally_ticks=15, observation="image").start(0), Loop(), []

    class Keeps:
        async def act(self, observation):
            seen.append((observation.inputs, {name: array.copy() for name, array in observation.inputs.items()}))
            return {"move": 1}

    loop.spawn(spar(match.controllers["left"], Keeps()))
    loop.spawn(match.run())
    loop.run()
    assert len(seen) == 15
    for kept, copy in seen:
        assert set(kept) == {"image", "vector"}
        for name in kept:
            np.testing.assert_array_equal(kept[name], copy[name])


def mean_difference(left, right, matches=100):
    """Points of left minus points of right, the mean of first matches."""
    lanes, bots, first = Pong().start_many(matches, 5), {"left": left, "right": right}, {}
    for seat, bot in enumerate(bots.values()):
        bot.start(np.arange(matches), list(range(seat, 2 * matches, 2)))
    seen = lanes.reset()
    while len(first) < matches:
        steps = lanes.step({role: bots[role].act(seen[role]) for role in ROLES})
        seen = {role: steps[role].observations for role in ROLES}
        for b, result in steps["left"].results:
            first.setdefault(b, result)
    return np.mean([40 * result.score - 20 for result in first.values()])


def test_strength_of_bots():
    tracker, interceptor, random, stay = (Pong.bots[name] for name in ("tracker", "interceptor", "random", "stay"))
    assert mean_difference(interceptor(), tracker()) > 17
    assert mean_difference(tracker(), interceptor()) < -17
    assert abs(mean_difference(tracker(), tracker())) < 2
    assert mean_difference(tracker(), random()) > 10
    assert mean_difference(tracker(), stay()) > 10
    assert mean_difference(tracker(reaction_ticks=4), tracker()) < -5
    assert mean_difference(tracker(error_px=14), tracker()) < -2


def tracked(tracker, headings, ys):
    """What a tracker does in one match whose ball flies by these headings to these ys, its bat in the middle."""
    tracker.start(np.zeros(1, np.int64), [3])
    vectors = np.full((len(ys), 1, 10), 0.5, np.float32)
    vectors[:, 0, 8] += 0.1 * np.asarray(headings)
    vectors[:, 0, 9] = ys
    return [int(tracker.act(Observations({"vector": vector}))["move"][0]) for vector in vectors]


def test_the_tracker_sees_late():
    ys = np.random.default_rng(0).uniform(0.3, 0.7, 40)
    prompt = tracked(Pong.bots["tracker"](), [1] * 40, ys)
    assert prompt == [2 if 126 * y > 63 + 2 else 1 if 126 * y < 63 - 2 else 0 for y in ys]
    assert tracked(Pong.bots["tracker"](reaction_ticks=5), [1] * 40, ys) == [0] * 5 + prompt[:-5]


def test_the_tracker_errs_anew_when_the_ball_turns_round():
    headings = np.repeat(np.tile([1, -1], 100), 5)
    moves = np.reshape(tracked(Pong.bots["tracker"](error_px=6.0), headings, [0.5] * 1000), (200, 5))
    assert (moves == moves[:, :1]).all()
    np.testing.assert_allclose([(moves[:, 0] == move).mean() for move in (0, 1, 2)], [1 / 3] * 3, atol=0.12)


def test_a_bot_names_what_it_misses():
    bot = Pong.bots["random"]()
    bot.start(np.arange(2), [1, 2])
    assert bot.act(Observations({"vector": np.zeros((2, 10), np.float32)}))["move"].shape == (2,)
    with pytest.raises(ContractError, match=r"started for 2 matches needs 'vector' \[2, 10\], not \[3, 10\]"):
        bot.act(Observations({"vector": np.zeros((3, 10), np.float32)}))
    with pytest.raises(ContractError, match="needs 'vector'"):
        bot.act(Observations({"image": np.zeros((2, 4, 84, 84), np.uint8)}))


def test_pictures():
    match = Pong().start(0)
    picture = match.render()
    assert picture.shape == (480, 480, 3) and picture.dtype == np.uint8
    assert (picture[3 * 95 + 3, 3 * 78 + 3] == (248, 249, 252)).all()  # the ball, in the centre
    assert (picture == np.array((86, 196, 245))).all(2).sum() == 15 * 45 + 12 * 12 * 12  # the left bat and a zero of 12 dots
