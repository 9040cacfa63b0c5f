"""Images whose channels are the newest frames, each frame stored once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit


class FrameStore:
    """One image input of many columns, rebuilt bit for bit when asked for.

    A row of a column is an image `[C, H, W]`. Where its first channels are the last ones of the row before it, only the channels behind
    those are stored: one of a stack that moved on by a frame, none of an image that stayed as it was, and all of one that began anew. So
    an image that is no stack of frames is stored whole, and nobody has to say which is which.

    The frames lie in a ring: a column's frames one behind the other, and those of a column behind those of the column before it.
    """

    def __init__(self, columns: int, rows: int, frames: int, shape: tuple[int, ...]) -> None:
        """`frames`: how many the ring holds; no less than one column may need, rows × C."""
        self._channels = shape[0]
        self._frames = np.empty((frames, *shape[1:]), np.uint8)
        self._ends = np.zeros((columns, rows), np.int64)  # behind each row's newest frame, counted from the first frame ever
        self._count = 0

    def plan(self, images: np.ndarray, lane: int) -> np.ndarray:
        """Where the rows of a column, `images[:, lane]` of `[rows, B, C, H, W]`, would end if it came next, int `[rows]`."""
        ends = np.empty(len(images), np.int64)
        _ends(images, lane, self._count, ends)
        return ends

    def fits(self, oldest: int, ends: np.ndarray) -> bool:
        """Whether a column with these `ends` leaves the frames of the column at `oldest` as they are."""
        return bool(ends[-1] - self._start(oldest) <= len(self._frames))

    def write(self, place: int, images: np.ndarray, lane: int, ends: np.ndarray) -> None:
        """Stores a column at `place`, as planned."""
        _write(self._frames, images, lane, self._count, ends)
        self._ends[place] = ends
        self._count = int(ends[-1])

    def read(self, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The images `[K, C, H, W]` of the rows `rows` of the columns `columns`, each int `[K]`."""
        images = np.empty((len(columns), self._channels, *self._frames.shape[1:]), np.uint8)
        _read(self._frames, self._ends, columns, rows, images)
        return images

    def save(self, columns: int) -> dict[str, np.ndarray]:
        """What is stored in the first `columns` places; views."""
        return {
            "frames": self._frames[: min(self._count, len(self._frames))],
            "ends": self._ends[:columns],
            "count": np.array(self._count),
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        self._frames[: len(state["frames"])] = state["frames"]
        self._ends[: len(state["ends"])] = state["ends"]
        self._count = int(state["count"])

    def _start(self, place: int) -> int:
        return int(self._ends[place, 0]) - self._channels


@njit(cache=True, nogil=True)
def _ends(images, lane, count, ends):  # type: ignore[no-untyped-def]
    channels = images.shape[2]
    ends[0] = count + channels
    for row in range(1, images.shape[0]):
        new = 0
        while not _moved_on(images[row - 1, lane], images[row, lane], new):
            new += 1
        ends[row] = ends[row - 1] + new


@njit(cache=True, nogil=True)
def _moved_on(before, now, new):  # type: ignore[no-untyped-def]
    """Whether `now` is `before` moved on by `new` channels."""
    channels, height, width = now.shape
    for channel in range(channels - new):
        for y in range(height):
            differs = np.uint8(0)
            for x in range(width):  # without a way out, so that it is compiled to vector instructions
                differs |= before[channel + new, y, x] ^ now[channel, y, x]
            if differs:
                return False
    return True


@njit(cache=True, nogil=True)
def _write(frames, images, lane, count, ends):  # type: ignore[no-untyped-def]
    channels = images.shape[2]
    for row in range(images.shape[0]):
        for channel in range(channels - (ends[row] - count), channels):
            frames[count % frames.shape[0]] = images[row, lane, channel]
            count += 1


@njit(cache=True, nogil=True)
def _read(frames, ends, columns, rows, images):  # type: ignore[no-untyped-def]
    channels = images.shape[1]
    for k in range(columns.size):
        start = ends[columns[k], rows[k]] - channels
        for channel in range(channels):
            images[k, channel] = frames[(start + channel) % frames.shape[0]]
