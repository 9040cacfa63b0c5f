import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.errors import MisuseError
from lamarckian.evaluate.rating import elo, log_odds, nash, tally

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def met(points, matches):
    """The payoff where the pairs i < j played so many matches, and i got `points[i, j]` of them."""
    points = np.triu(np.array(points, float), 1)
    counts = matches * (1 - np.eye(len(points)))
    return tally(points + np.tril(counts - points.T, -1), counts)


def test_scores_are_points_by_matches():
    payoff = tally(np.array([[0.0, 3.0], [1.0, 0.0]]), np.array([[0, 4], [4, 0]]))
    assert payoff.scores.tolist() == [[0.5, 0.75], [0.25, 0.5]]


def test_three_quarters_of_the_points_are_191_elo():
    # 5.5 of 7 points, and the drawn match: 6 of 8. 400 log₁₀(3) = 190.85; Fisher information of the difference 8 · 3/4 · 1/4 = 1.5,
    # of which half is each player's: 1.96 · 400 / ln 10 · √(1 / 6) = 139.00.
    ratings, intervals = elo(met([[0, 5.5], [0, 0]], 7))
    assert ratings == pytest.approx([1500 + 95.42425, 1500 - 95.42425], abs=1e-4)
    assert intervals == pytest.approx([139.0006, 139.0006], abs=1e-3)


def test_who_has_won_everything_has_a_finite_rating():
    # 19 of 19 and the drawn match: 19.5 of 20, odds of 39.
    ratings, intervals = elo(met([[0, 19], [0, 0]], 19))
    assert ratings[0] - ratings[1] == pytest.approx(400 * np.log10(39))
    assert np.isfinite(intervals).all()


def test_ratings_that_explain_every_score_are_found():
    # Odds of 3 and 9 are 190.85 and 381.70 Elo; with the drawn match 15, 15 and 18 of 20.
    step = 400 * np.log10(3)
    ratings, intervals = elo(met([[0, 14.5, 17.5], [0, 0, 14.5], [0, 0, 0]], 19))
    assert ratings == pytest.approx([1500 + step, 1500, 1500 - step])
    assert intervals[0] == pytest.approx(intervals[2]) and intervals[1] < intervals[0]


def test_a_cycle_has_equal_ratings():
    ratings, _ = elo(met([[0, 10, 0], [0, 0, 10], [0, 0, 0]], 10))
    assert ratings == pytest.approx([1500, 1500, 1500])


def test_four_times_the_matches_halve_the_interval():
    few, many = elo(met([[0, 5.5], [0, 0]], 7))[1], elo(met([[0, 23.5], [0, 0]], 31))[1]
    assert many == pytest.approx(few / 2)


@st.composite
def results(draw):
    size = draw(st.integers(2, 7))
    points = draw(st.lists(st.integers(0, 20), min_size=size * size, max_size=size * size))
    return met(np.reshape(points, (size, size)) / 2, 10)


@given(results(), st.randoms(use_true_random=False))
def test_the_likeliest_ratings_expect_the_points_that_came_in_whatever_order(payoff, random):
    ratings, intervals = elo(payoff)
    assert ratings.mean() == pytest.approx(1500)
    expected = 1 / (1 + 10 ** ((ratings - ratings[:, None]) / 400))
    off = ~np.eye(len(ratings), dtype=bool)
    came = (payoff.scores * 10 + 0.5) * off
    assert (11 * expected * off).sum(axis=1) == pytest.approx(came.sum(axis=1), abs=1e-6)
    order = random.sample(range(len(ratings)), len(ratings))
    again = elo(tally(10 * payoff.scores[np.ix_(order, order)], payoff.counts[np.ix_(order, order)]))
    assert again[0] == pytest.approx(ratings[order]) and again[1] == pytest.approx(intervals[order])


def test_log_odds_are_elo_points_of_each_pair_alone():
    advantages = log_odds(met([[0, 5.5, 7], [0, 0, 3.5], [0, 0, 0]], 7))
    assert advantages[0].tolist() == pytest.approx([0, 400 * np.log10(3), 400 * np.log10(15)])
    assert advantages[1, 2] == 0
    assert (advantages == -advantages.T).all()


def test_rock_paper_scissors_share_the_weight():
    weights, ratings = nash(ROCK_PAPER_SCISSORS)
    assert weights == pytest.approx([1 / 3] * 3) and ratings == pytest.approx([0] * 3, abs=1e-9)


def test_an_uneven_cycle_has_weights_by_the_strength_of_the_others():
    # A·p = 0 of a cycle of three: each has the advantage of the one of the other two over the other.
    weights, ratings = nash(np.array([[0, 2.0, -1.0], [-2.0, 0, 3.0], [1.0, -3.0, 0]]))
    assert weights == pytest.approx([3 / 6, 1 / 6, 2 / 6], abs=1e-5)
    assert ratings == pytest.approx([0, 0, 0], abs=1e-5)


def test_who_is_dominated_has_no_weight():
    game = np.full((4, 4), 0.5)
    game[:3, :3], game[3] = ROCK_PAPER_SCISSORS, -0.5
    game[3, 3] = 0
    weights, ratings = nash(game)
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weights[3] == 0
    assert ratings == pytest.approx([0, 0, 0, -0.5])


def test_who_beats_everybody_has_all_the_weight():
    weights, ratings = nash(np.array([[0, 300.0, 100.0], [-300.0, 0, 50.0], [-100.0, -50.0, 0]]))
    assert weights.tolist() == [1, 0, 0] and ratings.tolist() == [0, -300, -100]


def test_clones_share_the_weight_of_one():
    with_clone = [0, 1, 2, 2]
    weights, ratings = nash(ROCK_PAPER_SCISSORS[np.ix_(with_clone, with_clone)])
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=1e-5)
    assert ratings == pytest.approx([0] * 4, abs=1e-5)


def test_equals_share_the_weight():
    weights, ratings = nash(np.zeros((4, 4)))
    assert weights.tolist() == [0.25] * 4 and ratings.tolist() == [0] * 4


def test_of_many_equilibria_it_is_the_most_even():
    # 0 and 1 draw; 2 loses to 0 by 1 and beats 1 by 2: every mixture with at least 2/3 of 0, none of 2, and the rest of 1.
    weights, ratings = nash(np.array([[0, 0, 1.0], [0, 0, -2.0], [-1.0, 2.0, 0]]))
    assert weights == pytest.approx([2 / 3, 1 / 3, 0], abs=1e-4)
    assert ratings == pytest.approx([0, 0, 0], abs=1e-4)


@given(results(), st.randoms(use_true_random=False))
def test_nobody_gains_against_the_equilibrium_in_whatever_order(payoff, random):
    advantages = log_odds(payoff)
    weights, ratings = nash(advantages)
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert ratings == pytest.approx(advantages @ weights)
    limit = 1e-5 * np.abs(advantages).max()
    assert ratings.max() <= limit
    assert (np.abs(ratings[weights > 1e-3]) <= 10 * limit).all()
    order = random.sample(range(len(weights)), len(weights))
    again = nash(advantages[np.ix_(order, order)])
    assert again[0] == pytest.approx(weights[order], abs=1e-5)
    assert again[1] == pytest.approx(ratings[order], abs=10 * limit)


@pytest.mark.parametrize(
    ("scores", "counts", "says"),
    [
        ([[0.5]], [[0]], "at least 2 players"),
        ([[0.5, 1.0], [0.0, 0.5]], [[0, 1, 1], [1, 0, 1]], r"\[N, N\]"),
        ([[0.5, 0.5], [0.5, 0.5]], [[0, 0], [0, 0]], "have met"),
        ([[0.5, 0.5], [0.5, 0.5]], [[0, 2], [1, 0]], "same from both sides"),
        ([[0.5, 0.5], [0.6, 0.5]], [[0, 2], [2, 0]], "sum up to 1"),
        ([[0.5, 1.5], [-0.5, 0.5]], [[0, 2], [2, 0]], "within 0 and 1"),
        ([[0.5, np.nan], [0.5, 0.5]], [[0, 2], [2, 0]], "within 0 and 1"),
    ],
)
def test_what_is_no_payoff_is_refused(scores, counts, says):
    payoff = tally(np.zeros((2, 2)), np.zeros((2, 2)))._replace(scores=np.array(scores), counts=np.array(counts))
    for rate in (elo, log_odds):
        with pytest.raises(MisuseError, match=says):
            rate(payoff)


def test_what_is_not_antisymmetric_has_no_equilibrium_of_this_kind():
    for game in (np.ones((2, 2)), np.zeros((2, 3)), np.full((1, 1), np.inf)):
        with pytest.raises(MisuseError, match="antisymmetric"):
            nash(game)
