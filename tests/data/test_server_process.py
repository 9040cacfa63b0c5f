"""A pool server in a process of its own, as a learner has it; killed amid traffic, again and again."""

import os
import signal
import time
from collections import deque

import numpy as np
import psutil
import pytest

from lamarckian.cluster.local import LocalCluster
from lamarckian.data.reader import SERVER, PoolReader
from lamarckian.data.server import PoolSettings
from lamarckian.learner.batches import Arrivals, Prefetcher
from lamarckian.transport.channel import Terms
from lamarckian.transport.keys import Keys
from tests.commands import wait_for
from tests.data.sender import LAYOUT, Sender, parcel
from tests.transport.test_faults import free_port

PATIENCE_S = 60.0


@pytest.fixture
def cluster():
    with LocalCluster(max_deaths=100) as cluster:
        yield cluster


def pool(cluster: LocalCluster, fragments: int = 16, **settings) -> tuple[PoolReader, int]:
    """A reader, and the process of its server."""
    reader = PoolReader(LAYOUT, PoolSettings("127.0.0.1", free_port(), fragments * LAYOUT.size_bytes, **settings))
    return reader, cluster.start("pool", SERVER, reader.config, reader.fds).pid


def check(reader: PoolReader):
    counts = reader.statistics()
    assert counts.produced == counts.used + counts.stale + counts.overwritten + counts.lost + counts.waiting + counts.held
    assert min(counts.waiting, counts.held, counts.lost) >= 0
    return counts


def mark(filled) -> float:
    values = filled.views["value"]
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


def test_a_server_is_killed_amid_traffic_and_the_learner_goes_on(cluster):
    reader, pid = pool(cluster)
    senders = [Sender(reader.address, f"machine-{index}") for index in range(2)]
    held: deque = deque()
    seen: list[float] = []
    made = kills = 0
    deadline = time.monotonic() + PATIENCE_S
    while kills < 6 or any(sender.kept for sender in senders) or check(reader).waiting:
        assert time.monotonic() < deadline, (kills, [sender.kept for sender in senders], check(reader))
        for sender in senders:
            while kills < 6 and sender.kept < 20:
                sender.give(parcel(made, steps=1 + made % 4))
                made += 1
            sender.advance()
        if (filled := reader.get(0.002)) is not None:
            held.append((filled, mark(filled)))
            seen.append(held[-1][1])
        if len(held) > 4:
            filled, was = held.popleft()
            assert mark(filled) == was  # whatever became of the server meanwhile
            reader.release(filled.slot)
        check(reader)
        if kills < 6 and len(seen) >= 50 * (kills + 1):
            os.kill(pid, signal.SIGKILL)
            (end,) = wait_for(cluster.poll, 10.0, "notice of the death")
            assert end.signal == signal.SIGKILL
            pid = cluster.restart("pool").pid
            kills += 1
    counts = check(reader)
    assert counts.used + counts.held == len(seen) and counts.lost > 0
    assert counts.produced >= made  # what was said to be in was counted; what came again, because word of it was lost, counts twice
    assert len(set(range(made)) - set(seen)) <= counts.lost
    for filled, was in held:
        assert mark(filled) == was
        reader.release(filled.slot)
    for closing in (*senders, reader):
        closing.close()


@pytest.mark.parametrize("taker", ["prefetcher", "arrivals"])
def test_a_learner_takes_its_batches_from_it(cluster, tmp_path, taker):
    keys = Keys.create(tmp_path / "key")
    reader, _ = pool(cluster, keys=str(tmp_path / "key"), network=True)
    batches = Prefetcher(reader, LAYOUT, 4) if taker == "prefetcher" else Arrivals(reader)
    sender, stranger = Sender(reader.address, "friend", Terms(keys=keys)), Sender(reader.address, "stranger")
    for number in range(40):
        sender.give(parcel(number))
        stranger.give(parcel(number, mark=-1))
    found: list[float] = []

    def take() -> bool:
        sender.advance()
        stranger.advance()
        if (batch := batches.get(timeout_s=0.01)) is not None:
            values = batch.arrays["value"]
            found.extend(values[0, ::2, 0].tolist())
            assert (values[:, :, :] == np.repeat(found[-values.shape[1] // 2 :], 2)[:, None]).all()
            batches.recycle(batch)
        return len(found) == 40

    wait_for(take, PATIENCE_S, "forty fragments")
    assert found == list(range(40)) and stranger.room is None
    batches.forget("actor-0")
    batches.close()
    assert reader.get(0.3) is None
    counts = check(reader)
    assert (counts.produced, counts.used) == (40, 40)
    wait_for(lambda: (channel := check(reader).channel).refused + channel.broken, PATIENCE_S, "count of who has no key")
    for closing in (sender, stranger, reader):
        closing.close()


def test_a_server_sleeps_while_there_is_nothing_to_do(cluster):
    reader, pid = pool(cluster)
    sender = Sender(reader.address, "machine-0")
    sender.give(parcel(0))
    filled = wait_for(lambda: sender.advance() or reader.get(0.1), PATIENCE_S, "fragment")
    reader.release(filled.slot)

    def spent() -> float:
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system

    before = spent()
    time.sleep(2.0)
    assert spent() - before < 0.5
    for closing in (sender, reader):
        closing.close()
