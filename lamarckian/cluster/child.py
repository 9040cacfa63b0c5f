"""What a child of `LocalCluster` runs: reads from stdin what it is to do, does it, and says why when it could not."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
import threading
import traceback
from typing import Any

import msgspec

from lamarckian.cluster.interface import Failure
from lamarckian.errors import LamarckianError
from lamarckian.transport.memory import keep_pages

_PR_SET_PDEATHSIG = 1


class Launch(msgspec.Struct, frozen=True):
    """What a child is to do.

    path: where it finds modules: where its parent does.
    report_fd: a file that a `Failure` goes to. lifeline_fd: ends when the parent does.
    bound: whether the thread that started the child lasts as long as its parent.
    """

    name: str
    target: str
    config: dict[str, Any]
    path: list[str]
    report_fd: int
    lifeline_fd: int
    bound: bool


def main() -> int:
    """Runs the target; returns the exit code."""
    with open(0, "rb", closefd=False) as stdin:
        launch = msgspec.msgpack.decode(stdin.read(), type=Launch)
    threading.Thread(target=_die_with_parent, args=(launch.lifeline_fd,), name="lifeline", daemon=True).start()
    if launch.bound and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # even when the lifeline's thread gets no turn
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable()
    keep_pages()
    sys.path[:] = launch.path
    try:
        module, _, function = launch.target.partition(":")
        getattr(importlib.import_module(module), function)(launch.config)
    except Exception as error:
        report = Failure.of(error, traceback.format_exc())
        os.pwrite(launch.report_fd, msgspec.msgpack.encode(report), 0)
        return error.exit_code if isinstance(error, LamarckianError) else 1
    return 0


def _die_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
