"""Processes of a broadcast."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.transport.talker import Talker


@pytest.fixture
def talk() -> Iterator[Callable[..., Talker]]:
    """Starts a process of `hosts.py` on this machine."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> Talker:
            talker = Talker(subprocess.Popen, *arguments)
            stack.callback(talker.process.wait)
            stack.callback(talker.process.kill)
            return talker

        yield start
