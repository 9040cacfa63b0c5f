"""A process of `hosts.py`, on this machine or on a host of a lab, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

HOSTS = Path(__file__).with_name("hosts.py")


class Talker:
    """A process that prints lines, of which the last and their number are at hand."""

    def __init__(self, start: Callable[..., subprocess.Popen[str]], *arguments: str) -> None:
        self.process = start([sys.executable, str(HOSTS), *arguments], stdout=subprocess.PIPE, text=True)
        self.line = ""
        self.lines = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.line, self.lines = line, self.lines + 1

    @property
    def version(self) -> int:
        """Of a relay: what it shows."""
        return int(self.line or -1)

    @property
    def relays(self) -> dict[str, tuple[str | None, bool]]:
        """Of a root: the parent of each relay, and whether it is slow."""
        return {name: (parent, slow) for name, (parent, slow) in json.loads(self.line or "{}").items()}
