"""Ratings of N players from who beat whom: Elo by maximum likelihood, and Nash averaging."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamarckian.errors import MisuseError

SCALE = 400 / np.log(10)
"""Elo points of one unit of natural log-odds."""
MEAN = 1500.0
PRIOR_MATCHES = 1.0
"""Drawn matches that each pair is taken to have played besides, so that who won everything has a finite rating."""
NORMAL_95 = 1.959964
SMALLEST_TEMPERATURE = 1e-6
TOLERANCE = 1e-9
MOST_STEPS = 200


class Payoff(NamedTuple):
    """How N players fared: `scores` `[N, N]`, mean of row against column (a win is 1, a draw 0.5), of `counts` `[N, N]` matches.

    The diagonal means nothing. `scores[j, i]` is 1 − `scores[i, j]`, and `counts` is symmetric.
    """

    scores: np.ndarray
    counts: np.ndarray


class Legacy(NamedTuple):
    """What is known of N players by matches of those who have left, as a log-likelihood slope · x − ½ xᵀ · curvature · x.

    slope `[N]`, curvature `[N, N]`; x is strength in natural log-odds, and a constant added to all of it changes nothing.
    """

    slope: np.ndarray
    curvature: np.ndarray


def tally(points: np.ndarray, counts: np.ndarray) -> Payoff:
    """The payoff of summed points `[N, N]` in so many matches `[N, N]`. A pair that has not met, as on the diagonal, is at 0.5."""
    return Payoff(np.where(counts > 0, points / np.maximum(counts, 1), 0.5), counts)


def elo(
    payoff: Payoff, prior: np.ndarray | None = None, anchor: int | None = None, legacy: Legacy | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Elo ratings `[N]`, with mean 1500, and the half-widths `[N]` of their 95% intervals.

    The most likely ratings of the Bradley-Terry model (Bradley and Terry 1952, https://doi.org/10.2307/2334029), in which i beats j with
    probability 1 / (1 + 10^((r_j − r_i) / 400)) and a draw is half a win; each pair is taken to have drawn one match more. The intervals
    are of the distance from the mean, by the likelihood's curvature there (the inverse of the Fisher information). Where many matches are
    drawn, results vary less than the model has it, so the intervals are too wide rather than too narrow.

    prior: `[N, N]`, symmetric, how many drawn matches each pair is taken to have played more; with it not every pair needs to have met, so
    long as matches and prior together link all players. anchor: the player whose rating is 1500 instead of the mean; the intervals are of
    the distance from it. legacy: what is known besides; it links players, too.
    Raises MisuseError where the payoff is not one, or a pair has not met, or players are not linked.
    """
    scores, counts = _with_prior(payoff, prior, legacy)
    size = len(scores)
    slope, curvature = legacy or (0.0, np.zeros((size, size)))
    centre = np.full((size, size), 1 / size)
    strength = np.zeros(size)
    for _ in range(MOST_STEPS):
        expected = 1 / (1 + np.exp(strength - strength[:, None]))
        gradient = (counts * (scores - expected)).sum(axis=1) + slope - curvature @ strength
        weight = counts * expected * (1 - expected)
        information = np.diag(weight.sum(axis=1)) - weight + curvature
        step = np.linalg.solve(information + centre, gradient)
        if np.abs(step).max() < TOLERANCE:
            break
        strength += step / max(1.0, np.abs(step).max())  # a longer step of Newton's may lead away
        strength -= strength.mean()
    covariance = np.linalg.inv(information + centre) - centre
    variance = np.diag(covariance)
    if anchor is not None:
        strength = strength - strength[anchor]
        variance = variance + variance[anchor] - 2 * covariance[anchor]
    return MEAN + SCALE * strength, SCALE * NORMAL_95 * np.sqrt(variance.clip(0.0))


def pass_on(payoff: Payoff, prior: np.ndarray, legacy: Legacy, ratings: np.ndarray, gone: np.ndarray) -> Legacy:
    """The legacy of those who stay when others leave, `gone` `[N]`: ratings and intervals of those who stay remain what they are.

    The likelihood of all matches in which one of the others played is taken for a normal one around the ratings (Laplace), and those others
    are integrated out: that leaves the Schur complement of their part of the information.
    """
    scores, counts = _with_prior(payoff, prior, legacy)
    theirs = np.where(gone[:, None] | gone, counts, 0.0)
    strength = (ratings - MEAN) / SCALE
    expected = 1 / (1 + np.exp(strength - strength[:, None]))
    weight = theirs * expected * (1 - expected)
    information = np.diag(weight.sum(axis=1)) - weight
    slope = legacy.slope + (theirs * (scores - expected)).sum(axis=1) + information @ strength
    curvature = legacy.curvature + information
    stay = ~gone
    moved = np.linalg.solve(
        curvature[np.ix_(gone, gone)], curvature[np.ix_(gone, stay)]
    )  # of those who leave, by how those who stay are moved
    left = curvature[np.ix_(stay, stay)] - curvature[np.ix_(stay, gone)] @ moved
    return Legacy(slope[stay] - slope[gone] @ moved, (left + left.T) / 2)


def log_odds(payoff: Payoff, prior: np.ndarray | None = None) -> np.ndarray:
    """By how many Elo points each player is better than each other, by their own matches alone: antisymmetric, `[N, N]`.

    400 · log₁₀(s / (1 − s)) of the score s with one drawn match more, or `prior` of them; 0 where there is no match at all.
    Raises MisuseError as `elo`.
    """
    scores, _ = _with_prior(payoff, prior)
    odds = SCALE * np.log(scores / (1 - scores))
    return (odds - odds.T) / 2


def nash(advantages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nash averaging (Balduzzi et al. 2018, https://arxiv.org/abs/1806.02643): weights `[N]` and ratings `[N]`.

    advantages: antisymmetric `[N, N]`, such as `log_odds`. The weights p are the equilibrium, of greatest entropy, of the game in which
    two choose a player each. The ratings are A·p: what each gains against that mixture; 0 for those in it, and below for who is worse.
    Copies of a player share its weight, and change no rating where there is but one equilibrium. Raises MisuseError where the matrix is
    not antisymmetric.

    As the temperature τ falls to 0, the one p ∝ exp(A·p / τ) becomes that equilibrium; it is followed there by Newton's method. Weights are
    right to about five digits.
    """
    game = np.asarray(advantages, float)
    if game.ndim != 2 or game.shape[0] != game.shape[1] or not np.isfinite(game).all() or not np.allclose(game, -game.T):
        raise MisuseError(f"advantages must be finite, and an antisymmetric matrix [N, N], but are {game.tolist()}")
    size = len(game)
    if not game.any():
        return np.full(size, 1 / size), np.zeros(size)
    scaled = game / np.abs(game).max()
    logs, level, temperature = np.full(size, -np.log(size)), 0.0, 1.0
    while temperature > SMALLEST_TEMPERATURE:
        temperature /= 2
        logs, level = _quantal(scaled, logs, level, temperature)
    weights = np.exp(logs)
    weights = np.where(weights < SMALLEST_TEMPERATURE, 0.0, weights)
    weights /= weights.sum()
    return weights, game @ weights


def _quantal(game: np.ndarray, logs: np.ndarray, level: float, temperature: float) -> tuple[np.ndarray, float]:
    """Solves τ·x − A·p + c = 0, Σp = 1 for x = log p and the level c, by Newton's method from a guess."""
    size = len(game)
    for _ in range(MOST_STEPS):
        weights = np.exp(logs)
        fault = np.append(temperature * logs - game @ weights + level, weights.sum() - 1)
        slope = np.ones((size + 1, size + 1))
        slope[:size, :size] = temperature * np.eye(size) - game * weights
        slope[size] = np.append(weights, 0.0)
        step = np.linalg.solve(slope, -fault)
        length = min(1.0, 1 / max(step[:size].max(), TOLERANCE))  # p grows no more than e-fold at a time
        logs, level = logs + length * step[:size], level + length * step[size]
        if length == 1 and np.abs(weights * step[:size]).max() < TOLERANCE:
            break
    return logs, level


def _with_prior(payoff: Payoff, prior: np.ndarray | None, legacy: Legacy | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Scores and counts with the drawn matches more; nobody has met himself."""
    scores, counts = np.asarray(payoff.scores, float), np.asarray(payoff.counts, float)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or counts.shape != scores.shape or len(scores) < 2:
        raise MisuseError(f"scores and counts must be [N, N] for at least 2 players, but are {list(scores.shape)} and {list(counts.shape)}")
    pairs = ~np.eye(len(scores), dtype=bool)
    if (counts != counts.T)[pairs].any() or (prior is None and not (counts[pairs] > 0).all()):
        raise MisuseError("each two players must have met, and the counts of their matches be the same from both sides")
    if not ((scores[pairs] >= 0) & (scores[pairs] <= 1)).all() or not np.allclose(scores[pairs], 1 - scores.T[pairs]):
        raise MisuseError("scores must be within 0 and 1, and sum up to 1 from both sides")
    drawn = np.where(pairs, PRIOR_MATCHES if prior is None else prior, 0.0)
    total = np.where(pairs, counts + drawn, 0.0)
    if not _linked(total > 0 if legacy is None else (total > 0) | (legacy.curvature != 0)):
        raise MisuseError("all players must be linked by matches, their own or those of others between them; some are not")
    points = scores * counts + drawn / 2
    return np.divide(points, total, where=total > 0, out=np.full_like(points, 0.5)), total


def _linked(met: np.ndarray) -> bool:
    """Whether each player is reached from the first, from one to another that has been met."""
    reached = np.zeros(len(met), np.bool_)
    reached[0] = True
    for _ in met:
        reached |= met[reached].any(axis=0)
    return bool(reached.all())
