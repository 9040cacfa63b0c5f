"""What processes of a broadcast run in tests: a root that publishes version after version, and relays that check what they show.

python hosts.py root HOST PORT LAYOUT PERIOD_S        prints the relays and their parents, as JSON, again and again
python hosts.py relay HOST ROOT NAME                  prints each version that it shows
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from lamarckian.transport.channel import Terms
from lamarckian.transport.relay import Relay
from lamarckian.transport.root import Root
from lamarckian.transport.versions import VersionBoard

N = 100_000
NETWORK = Terms(network=True)


def root(host: str, port: str, layout: str, period_s: str) -> None:
    board = VersionBoard.create(N)
    top = Root(board, host, int(port), layout, base=NETWORK)  # type: ignore[arg-type]
    version = 0
    while True:
        board.publish(version, np.full(N, version, np.float32))
        version += 1
        until = time.monotonic() + float(period_s)
        while (now := time.monotonic()) < until:
            top.advance(min(0.1, until - now))
            print(json.dumps({name: [state.parent, state.slow] for name, state in top.statistics().relays.items()}), flush=True)


def relay(host: str, address: str, name: str) -> None:
    board = VersionBoard.create(N)
    follower = Relay(board, address, name, host, NETWORK)
    flat, last = np.empty(N, np.float32), -1
    while True:
        follower.advance(1.0)
        version = board.take(flat, last)
        if version is not None:
            assert (version > last or version < 5) and (flat == version).all(), "torn, or backwards, but for another root"
            last = version
            print(version, flush=True)


if __name__ == "__main__":
    {"root": root, "relay": relay}[sys.argv[1]](*sys.argv[2:])
