"""Versions of a policy's parameters, shown by one process to all others of its machine."""

from __future__ import annotations

import threading

import numpy as np

from lamarckian.transport.memory import Block

_HEADER_BYTES = 64
_NEWEST, _SHOWN, _VERSION, _SEQUENCE = 0, 1, 2, 4  # places in the header; the last two have one for either buffer
_BARRIER = threading.Lock()


class VersionBoard:
    """A double buffer of n float32 parameters with a sequence lock on either half.

    One process publishes, any number take. Nobody waits: the writer fills the half that is not shown, then turns the
    board; a reader who is overtaken by two publications during its copy sees by the sequence number that its copy is
    torn, and copies again. A writer that dies half-way leaves the shown half as it was.
    """

    def __init__(self, block: Block, n: int) -> None:
        self.fd = block.fd
        self.n = n
        self._block = block
        self._header = np.ndarray(_HEADER_BYTES // 8, np.int64, block.buffer)
        self._halves = np.ndarray((2, n), np.float32, block.buffer, _HEADER_BYTES)

    @classmethod
    def create(cls, n: int) -> VersionBoard:
        """A board for `n` parameters, with no version yet. Raises MisuseError when they do not fit in memory."""
        board = cls(Block.create(_size_bytes(n)), n)
        board._header[_NEWEST] = -1
        return board

    @classmethod
    def attach(cls, fd: int, n: int) -> VersionBoard:
        """The board that another process made for `n` parameters; `fd` stays the caller's to close."""
        return cls(Block.attach(fd, _size_bytes(n)), n)

    def publish(self, version: int, flat: np.ndarray, anew: bool = False) -> None:
        """Shows `flat`, float32 `[n]`, as `version`, which must be newer than the one shown, unless versions count `anew`."""
        if version <= self.newest() and not anew:
            raise ValueError(f"version {version} is not newer than version {self.newest()}, which is shown")
        if flat.shape != (self.n,):
            raise ValueError(f"{self.n} parameters are expected, an array of shape {flat.shape} came")
        header, half = self._header, 1 - int(self._header[_SHOWN])
        writing = int(header[_SEQUENCE + half]) | 1  # odd already when a writer died here
        header[_SEQUENCE + half] = writing
        _order()
        header[_VERSION + half] = version
        self._halves[half] = flat
        _order()
        header[_SEQUENCE + half] = writing + 1
        header[_SHOWN] = half
        header[_NEWEST] = version

    def newest(self) -> int:
        """The version shown; -1 when there is none."""
        return int(self._header[_NEWEST])

    def take(self, into: np.ndarray, held: int) -> int | None:
        """Copies the newest version to `into`, float32 `[n]`, and returns its number; None, and no copy, when it is the one `held`."""
        if into.shape != (self.n,):
            raise ValueError(f"an array of shape ({self.n},) is needed for the parameters, not {into.shape}")
        header = self._header
        while self.newest() != held:
            half = int(header[_SHOWN])
            before = int(header[_SEQUENCE + half])
            _order()
            version = int(header[_VERSION + half])
            if version == held:  # the board has been turned, and does not say so yet
                return None
            into[:] = self._halves[half]
            _order()
            if before % 2 == 0 and before == int(header[_SEQUENCE + half]):
                return version
        return None

    def close(self) -> None:
        """Lets go of the memory; harmless when repeated."""
        self._block.close()


def _size_bytes(n: int) -> int:
    return _HEADER_BYTES + 2 * 4 * n


def _order() -> None:
    """Keeps the memory accesses before it and after it apart, on processors that reorder them (ARM).

    What comes before a lock may sink into it, what comes after may rise into it; past two of them neither gets.
    """
    with _BARRIER:
        pass
    with _BARRIER:
        pass
