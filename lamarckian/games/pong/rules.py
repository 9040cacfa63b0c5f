"""The rules of Pong, compiled: many matches advance one tick in one call.

Two bats at the sides of a field return a ball. x grows to the right and y downwards, in pixels; positions are those of
upper left corners. The ball flies 4 px a tick sideways and bounces off top and bottom; a bat that overlaps a ball coming
its way sends it back and adds 0.7 × its own move of that tick to the ball's vertical speed. A ball that leaves the field
is a point for the other side. The ball is served from the centre, to either side in turn.

A tick: the bats move, the ball moves, it bounces off a wall, it meets a bat, the round may be over.

Numba's cache looks at a function's own file only: whoever changes a constant here removes `__pycache__`, as `image` and
`bots` compile it in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

WIDTH, HEIGHT, TOP = 160, 160, 34
FIELD = HEIGHT - TOP
BAT_WIDTH, BAT_HEIGHT, OFFSET = 5, 15, 16
BALL = 4
SPEED = 4.0
SWING = 0.7
SLOWEST = 0.3

STAY, UP, DOWN = 0, 1, 2
MOVES = (0.0, -SPEED, SPEED)
SEATS = LEFT, RIGHT = (0, 1)
BAT_X = (OFFSET, WIDTH - OFFSET - BAT_WIDTH)

SIZE = 10
"""Length of a vector observation: own bat's y, other bat's y, then x and y of the last four ball positions, oldest first."""

MATCH = np.dtype(
    [
        ("random", "u8"),
        ("x", "f8"),
        ("y", "f8"),
        ("vx", "f8"),
        ("vy", "f8"),
        ("serve", "f8"),  # vx of the current round's serve
        ("bats", "f8", (2,)),
        ("points", "i8", (2,)),
        ("moved", "i8", (2,)),  # ticks in which the bat moved
        ("ticks", "i8"),
        ("rally", "i8"),  # ticks of the current round
        ("round", "i8"),
    ],
    align=True,
)
"""A match, as one record."""


def streams(seeds: Sequence[int]) -> np.ndarray:
    """The state, uint64, of a random stream for each seed; `uniform` draws from it."""
    return np.array([seed & (1 << 64) - 1 for seed in seeds], np.uint64)


@njit(cache=True, nogil=True)
def uniform(random, index):
    """The next number in [0, 1) from the splitmix64 stream whose state is `random[index]`."""
    random[index] += np.uint64(0x9E3779B97F4A7C15)
    z = random[index]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def _move(match, seat, move):
    """Moves a bat within the field; gives the pixels it moved."""
    before = match.bats[seat]
    after = min(max(before + MOVES[move], float(TOP)), float(HEIGHT - BAT_HEIGHT))
    match.bats[seat] = after
    match.moved[seat] += after != before
    return after - before


@njit(cache=True, nogil=True)
def _meets(match, seat):
    """Whether the ball overlaps a bat."""
    x, y = match.x - BAT_X[seat], match.y - match.bats[seat]
    return -BALL < x < BAT_WIDTH and -BALL < y < BAT_HEIGHT


@njit(cache=True, nogil=True)
def _serve(matches, b):
    match = matches[b]
    match.x = (WIDTH - BALL) / 2
    match.y = TOP + (FIELD - BALL) / 2
    match.serve = -match.serve
    match.vx = match.serve
    draw = 2 * uniform(matches.random, b) - 1
    speed = SPEED * (SLOWEST + (1 - SLOWEST) * abs(draw))
    match.vy = speed if draw > 0 else -speed
    match.rally = 0


@njit(cache=True, nogil=True)
def _observe(match, seat, vector, fresh):
    """Writes what a seat sees, itself on the left: centres as fractions of the field. `fresh`: the ball was just served."""
    x = match.x + BALL / 2
    x = (x if seat == LEFT else WIDTH - x) / WIDTH
    y = (match.y + BALL / 2 - TOP) / FIELD
    vector[0] = (match.bats[seat] + BAT_HEIGHT / 2 - TOP) / FIELD
    vector[1] = (match.bats[1 - seat] + BAT_HEIGHT / 2 - TOP) / FIELD
    if fresh:
        for i in range(2, 8, 2):
            vector[i] = x
            vector[i + 1] = y
    else:
        for i in range(2, 8):
            vector[i] = vector[i + 2]
    vector[8] = x
    vector[9] = y


@njit(cache=True, nogil=True)
def begin(matches, vectors, lanes, seeds):
    """Starts new matches: `matches[lanes[i]]` from `seeds[i]`, uint64. `vectors`: float32 `[2, B, 10]`, by seat."""
    for i in range(lanes.size):
        b = lanes[i]
        match = matches[b]
        matches.random[b] = seeds[i]
        match.serve = SPEED if uniform(matches.random, b) < 0.5 else -SPEED
        match.ticks = 0
        match.round = 0
        for seat in SEATS:
            match.bats[seat] = TOP + (FIELD - BAT_HEIGHT) / 2
            match.points[seat] = 0
            match.moved[seat] = 0
        _serve(matches, b)
        for seat in SEATS:
            _observe(match, seat, vectors[seat, b], True)


@njit(cache=True, nogil=True)
def advance(matches, moves, rounds, rally_ticks, vectors, rewards, ended):
    """One tick of every match; gives how many ended, or -1, with nothing done, if a move is none of STAY, UP and DOWN.

    moves: int64 `[2, B]`, by seat. A round without a point after `rally_ticks` is drawn.
    Writes vectors, float32 `[2, B, 10]`; rewards, float32 `[2, B, 1]`; ended, bool `[B]`. An ended match must begin anew.
    """
    if moves.min() < 0 or moves.max() >= len(MOVES):
        return -1
    count = 0
    for b in range(matches.size):
        match = matches[b]
        left, right = _move(match, LEFT, moves[LEFT, b]), _move(match, RIGHT, moves[RIGHT, b])

        match.x += match.vx
        match.y += match.vy
        if match.y < TOP:
            match.y = min(2.0 * TOP - match.y, float(HEIGHT - BALL))
            match.vy = -match.vy
        elif match.y > HEIGHT - BALL:
            match.y = max(2.0 * (HEIGHT - BALL) - match.y, float(TOP))
            match.vy = -match.vy

        if match.vx < 0 and _meets(match, LEFT):
            match.vx = SPEED
            match.vy += SWING * left
        elif match.vx > 0 and _meets(match, RIGHT):
            match.vx = -SPEED
            match.vy += SWING * right

        match.ticks += 1
        match.rally += 1
        point = (match.x > WIDTH - BALL) - (match.x < 0)
        rewards[LEFT, b, 0] = point
        rewards[RIGHT, b, 0] = -point
        over = point != 0 or match.rally >= rally_ticks
        if over:
            match.points[LEFT] += point > 0
            match.points[RIGHT] += point < 0
            match.round += 1
            _serve(matches, b)
        ended[b] = match.round >= rounds
        count += ended[b]
        _observe(match, LEFT, vectors[LEFT, b], over)
        _observe(match, RIGHT, vectors[RIGHT, b], over)
    return count
