"""What the processes of the tests do that are learners of a ring; each writes what came of it to `config["out"]`."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

import torch

from lamarckian.errors import LamarckianError
from lamarckian.learner.learner import Learner, follow
from lamarckian.learner.ring import Ring
from tests.learner.test_together import Fleet, batch_of, flat, ppo


def run(config: dict) -> None:
    """Does what `config["what"]` says."""
    torch.set_num_threads(1)
    try:
        globals()[config["what"]](config)
    except LamarckianError as error:
        tell(config, error=type(error).__name__, message=str(error))
        raise


def ring_of(config: dict) -> Ring:
    return Ring(config["rank"], config["size"], config.get("host", "127.0.0.1"), config["port"], config.get("timeout_s", 30.0))


def tell(config: dict, **found: object) -> None:
    path = Path(config["out"])
    path.with_suffix(".part").write_text(json.dumps(found))
    path.with_suffix(".part").rename(path)


def digest(x: torch.Tensor) -> str:
    return hashlib.sha256(x.detach().contiguous().numpy().tobytes()).hexdigest()


def call(config: dict) -> None:
    """Each call once."""
    with ring_of(config) as ring:
        call_in(ring, config)


def call_in(ring: Ring, config: dict) -> None:
    rank, sums = ring.rank, {}
    for dtype in (torch.float32, torch.float64, torch.int64):
        for size in (1, 7, 100_000):
            numbers = (torch.randn(size, generator=torch.Generator().manual_seed(rank)) * 1000).to(dtype)
            ring.add(numbers)
            sums[f"{dtype} {size}"] = digest(numbers)
    scalar = torch.tensor(rank + 0.5)
    ring.add(scalar)
    gathered = [[data.decode() for data in ring.gather(given.encode())] for given in ("", "x" * rank, "y" * 10_000 * (rank == 1))]
    spread = torch.full((2, 3), rank + 1, dtype=torch.uint8)
    ring.spread(spread)
    seconds = ring.take_seconds()
    tell(config, sums=sums, scalar=scalar.item(), gathered=gathered, spread=spread.tolist(), seconds=seconds, then=ring.take_seconds())


def add_forever(config: dict) -> None:
    """Adds until the ring breaks."""
    with ring_of(config) as ring:
        numbers = torch.ones(1000)
        ring.add(numbers)
        tell(config, at_work=True)
        while True:
            numbers.fill_(1.0)
            ring.add(numbers)
            time.sleep(0.01)


def learn(config: dict) -> None:
    """A learner and its followers, five updates by parts of the same batches; the last one lacks samples, and is late."""
    with ring_of(config) as ring:
        learn_in(ring, config)


def learn_in(ring: Ring, config: dict) -> None:
    rank = ring.rank
    algorithm = ppo(rank, learning_rate=0.01, minibatches=3)
    batches = [batch_of(10 * rank + n) for n in range(5)]
    if rank == ring.size - 1:
        for batch in batches:
            batch.tensors["learn"][1:] = False
    fleet = Fleet([None] * rank + batches)
    steps = 0
    if rank:
        follow(algorithm, fleet, ring)
    else:
        learner = Learner(algorithm, fleet, 0, ring=ring)
        while learner.version < 5:
            learned = learner.update(0.0)
            steps += learned[0] if learned else 0
        learner.end()
    tell(config, parameters=digest(flat(algorithm)), state=digest(algorithm.state_dict()["adam.exp_avg_sq"]), steps=steps)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
