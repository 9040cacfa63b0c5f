"""What the actors of the dispatch's tests do."""

import os
import time

from lamarckian.data.pool import PoolClient
from tests.actor.memory_pools import LAYOUT


def hang(config: dict) -> None:
    """Claims a slot, and hangs."""
    client = PoolClient(config["fd"], LAYOUT, config["address"], config["name"])
    assert client.claim(20.0)
    os.write(config["ready"], b"!")
    time.sleep(60)
