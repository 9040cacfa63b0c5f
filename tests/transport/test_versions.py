import subprocess
import sys

import numpy as np
import pytest

from lamarckian.transport.versions import _SEQUENCE, VersionBoard

READER = """
import sys, time
import numpy as np
from lamarckian.transport.versions import VersionBoard
n = int(sys.argv[2])
board = VersionBoard.attach(int(sys.argv[1]), n)
flat, version, taken = np.empty(n, np.float32), -1, 0
deadline = time.monotonic() + 20
while taken < 300:
    assert time.monotonic() < deadline
    newer = board.take(flat, version)
    if newer is not None:
        assert newer > version
        assert (flat == newer).all(), (newer, np.unique(flat))
        version, taken = newer, taken + 1
"""


def test_publish_and_take():
    board = VersionBoard.create(5)
    into = np.zeros(5, np.float32)
    assert board.newest() == -1
    assert board.take(into, -1) is None
    board.publish(3, np.arange(5, dtype=np.float32))
    assert board.newest() == 3
    assert board.take(into, 3) is None and not into.any()
    assert board.take(into, -1) == 3 and (into == np.arange(5)).all()
    board.publish(4, np.ones(5, np.float32))
    assert board.take(into, 3) == 4 and (into == 1).all()


def test_what_does_not_fit_is_refused():
    board = VersionBoard.create(5)
    board.publish(1, np.zeros(5, np.float32))
    with pytest.raises(ValueError, match="version 1 is not newer than version 1"):
        board.publish(1, np.zeros(5, np.float32))
    with pytest.raises(ValueError, match="5 parameters are expected"):
        board.publish(2, np.zeros(1, np.float32))
    with pytest.raises(ValueError, match=r"shape \(5,\) is needed"):
        board.take(np.zeros(1, np.float32), -1)


def test_no_reader_ever_takes_a_torn_version():
    n, version = 50_000, 0
    board = VersionBoard.create(n)
    flat = np.empty(n, np.float32)
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(board.fd), str(n)], pass_fds=[board.fd]) for _ in range(2)]
    while any(reader.poll() is None for reader in readers):
        flat.fill(version)
        board.publish(version, flat)
        version += 1
    assert [reader.returncode for reader in readers] == [0, 0]


def test_an_overtaken_reader_copies_again():
    board = VersionBoard.create(3)
    board.publish(0, np.zeros(3, np.float32))

    class Overtaken(np.ndarray):
        """Two publications happen during the first copy into it."""

        copies = 0

        def __setitem__(self, key, value):
            Overtaken.copies += 1
            super().__setitem__(key, value)
            if Overtaken.copies == 1:
                board.publish(1, np.full(3, 1, np.float32))
                board.publish(2, np.full(3, 2, np.float32))

    into = np.empty(3, np.float32).view(Overtaken)
    assert board.take(into, -1) == 2
    assert (np.asarray(into) == 2).all() and Overtaken.copies == 2


def test_a_writer_that_died_half_way_harms_nobody():
    board = VersionBoard.create(3)
    board.publish(0, np.zeros(3, np.float32))
    board._header[_SEQUENCE + 0] |= 1  # the half that is not shown is being written, for ever
    board._halves[0] = np.nan
    into = np.empty(3, np.float32)
    assert board.take(into, -1) == 0 and not into.any()
    board.publish(1, np.ones(3, np.float32))
    assert board.take(into, 0) == 1 and (into == 1).all()
