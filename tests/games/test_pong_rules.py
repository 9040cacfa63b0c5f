"""The rules of Pong against trajectories computed by hand, and properties that hold in every match."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lamarckian.games.pong.bots import Interceptor, Random, Tracker
from lamarckian.games.pong.rules import DOWN, LEFT, RIGHT, STAY, UP
from lamarckian.games.pong.table import Table
from lamarckian.mdp import Observations

FAR = 145.0  # a bat at the bottom, out of the way of a ball in the upper half


def table(rounds=20, rally_ticks=1000, **state):
    """One match in a given state."""
    made = Table(1, rounds, rally_ticks, None)
    made.begin(np.zeros(1, np.int64), [0])
    for name, value in state.items():
        made.matches[name] = value
    return made


def advance(made, left=STAY, right=STAY):
    made.advance(np.array([[left], [right]]))
    return made.matches[0]


def test_the_ball_bounces_off_the_top():
    match = advance(table(x=50, y=36, vx=4, vy=-3.5))
    assert (match["x"], match["y"], match["vy"]) == (54, 35.5, 3.5)  # 36 - 3.5 = 32.5 is 1.5 above 34


def test_the_ball_bounces_off_the_bottom():
    match = advance(table(x=50, y=155, vx=-4, vy=3))
    assert (match["x"], match["y"], match["vy"]) == (46, 154, -3)


@pytest.mark.parametrize(("y", "vy"), [(40, -500.0), (150, 500.0)])
def test_the_fastest_ball_stays_within_the_field(y, vy):
    match = advance(table(x=50, y=y, vx=4, vy=vy))
    assert 34 <= match["y"] <= 156 and match["vy"] == -vy


@pytest.mark.parametrize(("move", "added"), [(STAY, 0.0), (UP, -2.8), (DOWN, 2.8)])
def test_a_hit_adds_seven_tenths_of_the_bats_move(move, added):
    match = advance(table(x=22, y=95, vx=-4, vy=1, bats=(90, FAR)), left=move)
    assert (match["x"], match["y"], match["vx"]) == (18, 96, 4)
    assert_allclose(match["vy"], 1 + added)

    match = advance(table(x=134, y=95, vx=4, vy=1, bats=(FAR, 90)), right=move)
    assert (match["x"], match["y"], match["vx"]) == (138, 96, -4)
    assert_allclose(match["vy"], 1 + added)


@pytest.mark.parametrize(("bat", "moved"), [(34, 0.0), (36.5, -2.5)])
def test_a_bat_at_the_wall_adds_only_what_it_moved(bat, moved):
    match = advance(table(x=22, y=40, vx=-4, vy=1, bats=(bat, FAR)), left=UP)
    assert match["bats"][LEFT] == 34 and match["moved"][LEFT] == (moved != 0)
    assert_allclose(match["vy"], 1 + 0.7 * moved)


@pytest.mark.parametrize(("y", "hit"), [(85.9, False), (86.1, True), (104.9, True), (105.1, False)])
def test_a_hit_needs_overlap(y, hit):
    """Bat from 90 to 105, ball 4 px tall."""
    match = advance(table(x=22, y=y, vx=-4, vy=0, bats=(90, FAR)))
    assert (match["vx"] > 0) == hit


@pytest.mark.parametrize(("x", "bat", "hit"), [(18, 60, True), (14, 60, False), (18, 75, False), (18, 67, True)])
def test_a_bat_saves_a_ball_that_is_passing_it_but_not_one_that_has_passed(x, bat, hit):
    """The bat moves up by 4 and the ball, at y 60, 4 to the left; the bat is 5 wide, from x 16."""
    match = advance(table(x=x, y=60, vx=-4, vy=0, bats=(bat, FAR)), left=UP)
    assert (match["vx"] > 0) == hit


def test_a_hit_ball_is_not_hit_again_on_its_way_out():
    made = table(x=18, y=95, vx=-4, vy=0, bats=(90, FAR))
    assert [float(advance(made)["vx"]) for _ in range(3)] == [4, 4, 4]


def test_a_point_scores_and_serves_from_the_centre_to_the_other_side():
    made = table(x=6, y=60, vx=-4, vy=0, serve=-4, bats=(FAR, FAR))
    advance(made)
    assert_array_equal(made.rewards[:, 0, 0], [0, 0])
    match = advance(made)  # 6, 2, -2
    assert_array_equal(made.rewards[:, 0, 0], [-1, 1])
    assert_array_equal(match["points"], [0, 1])
    assert (match["x"], match["y"], match["vx"], match["round"], match["rally"]) == (78, 95, 4, 1, 0)
    assert_array_equal(match["bats"], [FAR, FAR])
    assert_allclose(made.inputs[LEFT]["vector"][0, 2:], [0.5] * 8)

    made = table(x=154, y=60, vx=4, vy=0, bats=(FAR, FAR))
    advance(made)
    assert_array_equal(made.rewards[:, 0, 0], [1, -1])


def test_a_rally_that_is_too_long_is_a_draw():
    for rally_ticks, points in ((20, [1, 0]), (19, [0, 0])):  # 78 + 20·4 = 158 is the first x beyond 156
        made = table(rounds=1, rally_ticks=rally_ticks, vx=4, vy=0, bats=(FAR, FAR))
        ended = []
        for _ in range(rally_ticks):
            match = advance(made)
            ended.append(bool(made.ended[0]))
        assert ended == [False] * (rally_ticks - 1) + [True]
        assert_array_equal(match["points"], points)
    assert made.result(0, LEFT).outcome == made.result(0, RIGHT).outcome == "draw"
    assert made.result(0, LEFT).score == 0.5


def test_result():
    made = table(points=(12, 7))
    assert (made.result(0, LEFT).score, made.result(0, LEFT).outcome) == (25 / 40, "win")
    assert (made.result(0, RIGHT).score, made.result(0, RIGHT).outcome) == (15 / 40, "loss")
    for left, right in ((UP, STAY), (DOWN, STAY), (STAY, STAY), (DOWN, UP)):
        advance(made, left, right)
    assert made.result(0, LEFT).objectives == {"busy": 0.75, "lazy": 0.25}
    assert made.result(0, RIGHT).objectives == {"busy": 0.25, "lazy": 0.75}


def test_observations_are_mirrored_for_the_right():
    made = table(x=50, y=80, vx=4, vy=2, bats=(40, 100))
    for _ in range(4):
        advance(made)
    bats = [(40 + 7.5 - 34) / 126, (100 + 7.5 - 34) / 126]
    xs, ys = np.array([56, 60, 64, 68]) / 160, (np.array([82, 84, 86, 88]) + 2 - 34) / 126
    assert_allclose(made.inputs[LEFT]["vector"][0], [*bats, *np.stack([xs, ys], 1).ravel()], rtol=1e-6)
    assert_allclose(made.inputs[RIGHT]["vector"][0], [*bats[::-1], *np.stack([1 - xs, ys], 1).ravel()], rtol=1e-6)


def test_images_show_positions_and_are_mirrored_for_the_right():
    made = Table(1, 20, 1000, (320, 2))  # 2 pixels to the pixel across, 320/126 down
    made.begin(np.zeros(1, np.int64), [0])
    made.matches["x"], made.matches["vx"], made.matches["bats"] = 50, 4, (34, 145)
    made.matches["x"] -= 4
    advance(made)
    before = made.inputs[LEFT]["image"][0, 1].copy()
    advance(made)
    left, right = (made.inputs[seat]["image"][0] for seat in (LEFT, RIGHT))
    assert_array_equal(left[0], before)
    assert_array_equal(np.flatnonzero(left[1, 0]), np.arange(32, 42))  # the left bat, at the top
    assert_array_equal(np.flatnonzero(left[1, -1]), np.arange(278, 288))  # the right bat, at the bottom
    assert_array_equal(left[1][:, ::-1], right[1])
    ball = left[1, :, 43:277]
    assert_array_equal(np.flatnonzero(ball.any(0)) + 43, np.arange(108, 116))
    assert_allclose(ball.sum() / 255, 4 * 4 * 2 * 320 / 126, rtol=0.01)  # the area covered


def test_serves():
    made = Table(2000, 20, 1000, None)
    made.begin(np.arange(2000), list(range(2000)))
    vx, vy = made.matches["vx"], made.matches["vy"]
    assert set(vx) == {-4, 4} and abs(vx.mean()) < 0.5
    assert np.abs(vy).min() >= 1.2 and np.abs(vy).max() <= 4
    assert abs(vy.mean()) < 0.3 and abs(np.abs(vy).mean() - 2.6) < 0.1
    assert abs(np.corrcoef(vx, vy)[0, 1]) < 0.1


@pytest.mark.parametrize("bots", [(Random(), Random()), (Tracker(), Interceptor()), (Interceptor(), Interceptor())])
def test_the_ball_and_all_observations_stay_within_bounds(bots):
    size, made = 64, Table(64, 20, 1000, None)
    made.begin(np.arange(size), list(range(size)))
    for seat, bot in enumerate(bots):
        bot.start(np.arange(size), list(range(seat, size + seat)))
    for _ in range(2000):
        made.advance(np.stack([bot.act(Observations(made.inputs[seat]))["move"] for seat, bot in enumerate(bots)]).astype(np.int64))
        match = made.matches
        assert match["x"].min() >= 0 and match["x"].max() <= 156 and match["y"].min() >= 34 and match["y"].max() <= 156
        assert match["bats"].min() >= 34 and match["bats"].max() <= 145
        for seat in (LEFT, RIGHT):
            vectors = made.inputs[seat]["vector"]
            assert vectors.min() >= 0 and vectors.max() <= 1
        made.begin(made.ended.nonzero()[0], list(range(int(made.ended.sum()))))


def test_the_two_sides_are_alike():
    """A match with the sides swapped is the same match."""
    one, other = Table(64, 20, 1000, None), Table(64, 20, 1000, None)
    for made in (one, other):
        made.begin(np.arange(64), list(range(64)))
    for name in ("serve", "vx"):
        other.matches[name] *= -1
    moves = np.random.default_rng(0).integers(0, 3, (500, 2, 64))
    for move in moves:
        one.advance(move)
        other.advance(move[::-1].copy())
        assert_array_equal(one.inputs[LEFT]["vector"], other.inputs[RIGHT]["vector"])
        assert_array_equal(one.rewards, other.rewards[::-1])
