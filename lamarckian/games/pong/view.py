"""Pictures of Pong for people."""

from __future__ import annotations

import numpy as np

from lamarckian.games.pong.rules import BALL, BAT_HEIGHT, BAT_WIDTH, BAT_X, HEIGHT, SEATS, TOP, WIDTH

SCALE = 3
BOARD = (15, 18, 27)
FIELD = (24, 29, 43)
LINE = (58, 68, 94)
BALL_COLOUR = (248, 249, 252)
SEAT_COLOURS = ((86, 196, 245), (255, 166, 84))

DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")
"""Five rows a digit, each an octal number whose bits are the row's three pixels."""
DOT = 4
DIGIT_WIDTH = 4 * DOT


def frame(match: np.void) -> np.ndarray:
    """A match, one record of `rules.MATCH`, as RGB uint8 `[480, 480, 3]`: the score above, the field below."""
    picture = np.empty((HEIGHT * SCALE, WIDTH * SCALE, 3), np.uint8)
    picture[:] = BOARD
    _fill(picture, 0, TOP, WIDTH, HEIGHT - TOP, FIELD)
    _fill(picture, 0, TOP - 1, WIDTH, 1, LINE)
    for y in range(TOP + 3, HEIGHT, 8):
        _fill(picture, WIDTH / 2 - 0.5, y, 1, 4, LINE)
    for seat in SEATS:
        _fill(picture, BAT_X[seat], match["bats"][seat], BAT_WIDTH, BAT_HEIGHT, SEAT_COLOURS[seat])
        points = str(match["points"][seat])
        centre = WIDTH * (0.25 + 0.5 * seat)
        _write(picture, points, centre - (len(points) * DIGIT_WIDTH - DOT) / 2, (TOP - 5 * DOT) / 2, SEAT_COLOURS[seat])
    _fill(picture, match["x"], match["y"], BALL, BALL, BALL_COLOUR)
    return picture


def _fill(picture: np.ndarray, x: float, y: float, width: float, height: float, colour: tuple[int, int, int]) -> None:
    """A rectangle in the game's pixels."""
    left, top = round(x * SCALE), round(y * SCALE)
    picture[top : top + round(height * SCALE), max(left, 0) : left + round(width * SCALE)] = colour


def _write(picture: np.ndarray, digits: str, x: float, y: float, colour: tuple[int, int, int]) -> None:
    for place, digit in enumerate(digits):
        for row, bits in enumerate(DIGITS[int(digit)]):
            for column in range(3):
                if int(bits) & 4 >> column:
                    _fill(picture, x + place * DIGIT_WIDTH + column * DOT, y + row * DOT, DOT, DOT, colour)
