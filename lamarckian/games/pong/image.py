"""What the players of Pong see when they play from images: grey, the field only, each on the left of their own picture.

A pixel's brightness is how much of it a bat or the ball covers, so that positions between pixels show.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from lamarckian.games.pong.rules import BALL, BAT_HEIGHT, BAT_WIDTH, BAT_X, FIELD, LEFT, SEATS, TOP, WIDTH


@njit(cache=True, nogil=True)
def _paint(frame, x, y, width, height):
    """Adds a rectangle of the field, in its pixels, to a frame, uint8 `[S, S]`."""
    size = frame.shape[0]
    left, right = x * size / WIDTH, (x + width) * size / WIDTH
    top, bottom = (y - TOP) * size / FIELD, (y + height - TOP) * size / FIELD
    for row in range(max(int(top), 0), min(math.ceil(bottom), size)):
        tall = min(bottom, row + 1.0) - max(top, float(row))
        for column in range(max(int(left), 0), min(math.ceil(right), size)):
            wide = min(right, column + 1.0) - max(left, float(column))
            frame[row, column] = min(frame[row, column] + 255.0 * tall * wide, 255.0)


@njit(cache=True, nogil=True)
def photograph(matches, images, lanes, fresh):
    """Takes a new frame of `matches[lanes]` for both seats.

    images: uint8 `[2, B, frames, S, S]`, by seat; the newest frame is the last, older ones move up. `fresh`: the new frame
    takes the place of all.
    """
    frames = images.shape[2]
    for b in lanes:
        match = matches[b]
        for seat in SEATS:
            image = images[seat, b]
            if not fresh:
                for i in range(frames - 1):
                    image[i] = image[i + 1]
            image[-1] = np.uint8(0)
            _paint(image[-1], BAT_X[0], match.bats[seat], BAT_WIDTH, BAT_HEIGHT)
            _paint(image[-1], BAT_X[1], match.bats[1 - seat], BAT_WIDTH, BAT_HEIGHT)
            _paint(image[-1], match.x if seat == LEFT else WIDTH - BALL - match.x, match.y, BALL, BALL)
            if fresh:
                for i in range(frames - 1):
                    image[i] = image[-1]
