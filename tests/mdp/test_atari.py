"""Atari games: the preprocessing, and both ways of playing the same to the bit."""

from __future__ import annotations

import pickle
from math import ceil

import numpy as np
import pytest

pytest.importorskip("ale_py")

from lamarckian.errors import GameError
from lamarckian.mdp import Discrete, Image
from lamarckian.mdp.adapters.area import Shrink
from lamarckian.mdp.adapters.atari import Atari
from lamarckian.mdp.adapters.gymnasium import Gymnasium
from lamarckian.mdp.check import check_mdp
from lamarckian.seeding import match_seed
from tests.mdp.toys import now


def test_shrinking_takes_the_mean_of_what_a_pixel_covers():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 256, (2, 21, 16), dtype=np.uint8)
    out = np.empty((6, 6), np.uint8)
    bright = np.maximum(one, other).astype(float)
    fine = bright.repeat(6, 0).repeat(6, 1)  # each small pixel covers a whole number of these
    expected = fine.reshape(6, 21, 6, 16).mean(axis=(1, 3))
    Shrink(21, 16, 6)(one, other, out)
    assert np.abs(out - expected).max() <= 0.5 + 1e-3 and np.array_equal(one, bright)
    exact = np.zeros((4, 6), np.uint8)
    exact[:2, :3] = [[0, 1, 200], [1, 2, 201]]
    Shrink(4, 6, 2)(exact, exact, out := np.empty((2, 2), np.uint8))
    assert out[0, 0] == round(405 / 6)


def lanes(game, matches, steps, seed=7):
    """Plays batched and by coroutines, and says how many matches ended."""
    games, rng = game.start_many(matches, seed), np.random.default_rng(1)
    count, ended = game.roles["player"].heads["action"].n, 0
    seen = games.reset()["player"].inputs["screen"]
    numbers = [0] * matches
    playing = [game.start(match_seed(seed, b, 0)) for b in range(matches)]
    screens = [now(match.controllers["player"].reset()).inputs["screen"] for match in playing]
    for _ in range(steps):
        assert np.array_equal(seen, screens)
        actions = rng.integers(0, count, matches)
        batched = games.step({"player": {"action": actions}})["player"]
        seen, final = batched.observations.inputs["screen"], 0
        for b, match in enumerate(playing):
            step = now(match.controllers["player"].step({"action": int(actions[b])}))
            assert tuple(step.reward) == tuple(batched.reward[b])
            assert (step.terminated, step.truncated) == (batched.terminated[b], batched.truncated[b])
            screens[b] = step.observation.inputs["screen"]
            if step.truncated:
                assert np.array_equal(batched.final.inputs["screen"][final], screens[b])
                final += 1
            if step.terminated or step.truncated:
                assert dict(batched.results)[b] == match.controllers["player"].result()
                match.close()
                ended += 1
                numbers[b] += 1
                playing[b] = game.start(match_seed(seed, b, numbers[b]))
                screens[b] = now(playing[b].controllers["player"].reset()).inputs["screen"]
    games.close()
    return ended


@pytest.mark.parametrize(
    ("game", "settings", "steps", "ends"),
    [
        ("breakout", {}, 300, True),
        ("ms_pacman", {"repeat_action_probability": 0.25, "reward_clip": True}, 120, False),
        ("breakout", {"episodic_life": True, "fire_reset": True, "noop_max": 5}, 120, True),
        ("seaquest", {"size": 42, "stack": 2, "frame_skip": 3, "max_frames": 100, "full_action_space": True}, 80, True),
        ("pooyan", {"frame_skip": 1, "noop_max": 0, "size": 100}, 30, False),  # its screen is higher than others'
    ],
)
def test_both_ways_play_the_same_matches_to_the_bit(game, settings, steps, ends):
    assert (lanes(Atari(game, **settings), 2, steps) > 0) == ends


def test_a_game_keeps_the_contract():
    game = Atari("pong", noop_max=3)
    assert game.roles["player"].inputs == {"screen": Image(4, 84, 84)} and game.roles["player"].heads == {"action": Discrete(6)}
    check_mdp(game, steps=12)
    assert Atari("pong", full_action_space=True).roles["player"].heads == {"action": Discrete(18)}


def test_frames_are_stacked_and_the_match_is_truncated():
    player = Atari("pong", max_frames=30).start(0).controllers["player"]
    before = now(player.reset()).inputs["screen"]
    assert not before[:3].any() and before[3].any()
    for t in range(ceil(30 / 4)):
        step = now(player.step({"action": 2}))
        screen = step.observation.inputs["screen"]
        assert np.array_equal(screen[:3], before[1:]) and not np.shares_memory(screen, before)
        assert (step.terminated, step.truncated) == (False, t == 7)
        before = screen


def test_clipped_rewards_leave_the_score_alone():
    player = Atari("ms_pacman", reward_clip=True).start(3).controllers["player"]
    now(player.reset())
    rewards = [now(player.step({"action": 2})).reward[0] for _ in range(100)]
    assert set(rewards) == {0, 1} and player.result().score >= 10 * sum(rewards)  # what it eats is worth 10


def test_matches_can_be_looked_at_and_games_pickled():
    game = pickle.loads(pickle.dumps(Atari("breakout", reward_clip=True, stack=2)))
    match = game.start(0)
    now(match.controllers["player"].reset())
    assert match.render().shape == (210, 160, 3) and match.render().dtype == np.uint8
    assert game.roles["player"].inputs == {"screen": Image(2, 84, 84)}


def test_lanes_that_need_not_be_exact_go_on_by_themselves():
    game = Atari("pong", max_frames=40, exact=False, threads=2)
    assert game.batchable and not game.exact
    check_mdp(game, steps=15)
    first, second = (game.start_many(3, seed).reset()["player"].inputs["screen"] for seed in (1, 1))
    assert np.array_equal(first, second)


def test_gymnasiums_atari_is_not_batched_since_its_vector_version_sees_something_else():
    game = Gymnasium("ALE/Pong-v5")
    assert game.roles["player"].inputs == {"observation": Image(3, 210, 160)} and not game.batchable


def test_a_game_that_is_not_there():
    with pytest.raises(GameError, match="ALE has no game 'pongg'; nearest: pong"):
        Atari("pongg")
