"""What the children of the tests do."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from lamarckian.errors import GameError


class OddGameError(GameError):
    """One that `lamarckian.errors` does not know."""


def sleep(config: dict) -> None:
    time.sleep(60)


def deafly_sleep(config: dict) -> None:
    """Does not listen to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(config["ready"]).touch()
    time.sleep(60)


def hog(config: dict) -> None:
    """Gives no other thread a turn."""
    os.write(config["ready"], b"!")
    ctypes.PyDLL(None).sleep(60)


def tell(config: dict) -> None:
    """Writes down what it sees."""
    seen = (
        f"{config['attempt']} {os.environ.get('OMP_NUM_THREADS')} {'torch' in sys.modules} {'typer' in sys.modules} {len(config['text'])}"
    )
    Path(config["path"]).write_text(seen)


def write(config: dict) -> None:
    os.write(config["fd"], b"written")


def see_gpus(config: dict) -> None:
    Path(config["path"]).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))


def fail(config: dict) -> None:
    raise {"game": OddGameError("no such game as 'Pogn'"), "value": ValueError("a bad number")}[config["error"]]


def die(config: dict) -> None:
    print("some last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(config: dict) -> None:
    print("on stdout")
    sys.exit(3)


def obey_interrupt(config: dict) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    Path(config["ready"]).touch()
    time.sleep(60)


def attend(config: dict) -> None:
    """An actor that claims a slot, and hangs."""
    import numpy as np

    from lamarckian.data.fragment import Field, Layout
    from lamarckian.data.pool import PoolClient

    layout = Layout(1, 1, {"value": Field(1, (), np.dtype(np.float32))})
    client = PoolClient(config["fd"], layout, config["address"], config["name"])
    assert client.claim(10.0)
    os.write(config["ready"], b"!")
    time.sleep(60)
