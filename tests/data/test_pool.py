import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.data import pool as pool_module
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import LocalPool, MatchResult, MemoryPool, Meta, PoolClient, Sink, Source
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import Outbox

LAYOUT = Layout(4, 2, {"value": Field(5, (3,), np.dtype(np.float32)), "version": Field(4, (), np.dtype(np.int64))})
PATIENCE_S = 10.0


@pytest.fixture
def pool():
    pool = MemoryPool.create(LAYOUT, 4)
    yield pool
    pool.close()


def attach(pool: MemoryPool, name: str) -> PoolClient:
    return PoolClient(pool.fd, LAYOUT, pool.address, name)


def claim(pool: MemoryPool, client: PoolClient):
    """Claims with both ends in one thread: what is said goes back and forth."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pool.listen()
        if (claimed := client.claim(0.01)) is not None:
            return claimed
    raise TimeoutError


def check(source: Source):
    counts = source.statistics()
    assert counts.produced == counts.used + counts.stale + counts.lost + counts.waiting + counts.held
    assert counts.slots == counts.free + counts.lent + counts.waiting + counts.held
    return counts


def test_a_fragment_walks_in_place(pool):
    client = attach(pool, "a")
    result = MatchResult("left", 0.5, "win", 12, [1.0, -1.0], {"speed": 2.0})
    meta = Meta(3, 4, 8, [result], {"inference_s": 0.25})
    slot, views = claim(pool, client)
    views["value"][:] = 7
    client.submit(slot, meta)
    filled = pool.get(PATIENCE_S)
    assert (filled.slot, filled.actor, filled.meta) == (slot, "a", meta)
    assert (filled.views["value"] == 7).all()
    assert check(pool).held == 1
    pool.release(slot)
    assert check(pool).used == 1 and pool.get(0.0) is None
    client.close()


def test_first_in_first_out_and_an_actor_has_two_at_most(pool):
    client = attach(pool, "a")
    order = []
    for number in range(6):
        slot, _ = claim(pool, client)
        assert check(pool).lent <= 2
        client.submit(slot, Meta(number, number, 1))
        if number >= 2:
            filled = pool.get(PATIENCE_S)
            order.append(filled.meta.oldest_version)
            pool.release(filled.slot)
    assert order == [0, 1, 2, 3]
    client.close()


def test_a_slow_learner_slows_its_actors(pool):
    clients = [attach(pool, name) for name in "ab"]
    for _ in range(2):
        for client in clients:
            client.submit(claim(pool, client).slot, Meta(0, 0, 1))
    filled = pool.get(PATIENCE_S)
    while check(pool).waiting < 3:
        pool.listen()
    assert all(client.claim(0.02) is None for client in clients)
    pool.release(filled.slot)
    assert any(client.claim(1.0) for client in clients)
    for client in clients:
        client.close()


def test_every_actor_gets_its_turn_when_there_are_more_than_slots():
    pool = MemoryPool.create(LAYOUT, 2)
    clients = {name: attach(pool, name) for name in "abcde"}
    seen = dict.fromkeys(clients, 0)
    for _ in range(200):
        for client in clients.values():
            if (claimed := client.claim(0.001)) is not None:
                client.submit(claimed.slot, Meta(0, 0, 1))
        if (filled := pool.get(0.001)) is not None:
            seen[filled.actor] += 1
            pool.release(filled.slot)
        if min(seen.values()) >= 3:
            break
    assert min(seen.values()) >= 3, seen
    for closing in (*clients.values(), pool):
        closing.close()


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_too_old_is_dropped_and_its_slot_is_free(shared):
    source = MemoryPool.create(LAYOUT, 4, max_staleness=2) if shared else LocalPool(LAYOUT, 4, max_staleness=2)
    sink = attach(source, "a") if shared else source
    for version in (0, 3, 1):
        slot = claim(source, sink).slot if shared else sink.claim(0.0).slot
        sink.submit(slot, Meta(version, 9, 1))
    while check(source).waiting < 3:
        source.listen()
    source.version = 4
    assert source.get(PATIENCE_S).meta.oldest_version == 3
    counts = check(source)
    assert (counts.stale, counts.held, counts.waiting) == (2, 1, 0)
    for closing in (sink, source) if shared else ():
        closing.close()


def test_poison_shows_what_was_not_written():
    pool = MemoryPool.create(LAYOUT, 1, poison=True)
    client = attach(pool, "a")
    for _ in range(2):
        slot, views = claim(pool, client)
        assert np.isnan(views["value"]).all()
        views["value"][:4] = 0
        client.submit(slot, Meta(0, 0, 1))
        filled = pool.get(PATIENCE_S)
        assert np.isnan(filled.views["value"]).sum() == 2 * 3
        pool.release(slot)
    client.close()
    pool.close()


def test_one_program_for_both_modes(pool):
    def act(sink: Sink, number: int) -> None:
        slot, views = sink.claim(PATIENCE_S)
        views["value"][:] = number
        sink.submit(slot, Meta(number, number, 8))

    def learn(source: Source) -> float:
        filled = source.get(PATIENCE_S)
        total = float(filled.views["value"].sum())
        source.release(filled.slot)
        return total

    local, client = LocalPool(LAYOUT, 2), attach(pool, "a")
    while pool.statistics().lent < 2:
        pool.listen()
    for source, sink in ((local, local), (pool, client)):
        totals = []
        for number in range(10):
            act(sink, number)
            totals.append(learn(source))
        assert totals == [30.0 * number for number in range(10)]
        assert check(source).used == 10
    assert local.claim(1.0) and local.claim(1.0) and local.claim(1.0) is None and local.get(1.0) is None
    client.close()


def test_slots_are_given_back_by_their_owners_only(pool):
    client = attach(pool, "a")
    slot, _ = claim(pool, client)
    with pytest.raises(ValueError, match="slots held are"):
        pool.release(slot)
    client.submit(slot, Meta(0, 0, 1))
    with pytest.raises(ValueError, match="slots claimed are"):
        client.submit(slot, Meta(0, 0, 1))
    thief = Outbox((pool_module.Lend,), pool.address, "thief")
    for ticket in range(4):
        thief.send(pool_module.Submit(3, ticket, Meta(0, 0, 1)))
    thief._socket.send(b"noise")
    deadline = time.monotonic() + PATIENCE_S
    while check(pool).refused < 5 and time.monotonic() < deadline:
        pool.listen()
    counts = check(pool)
    assert (counts.refused, counts.waiting) == (5, 1)
    for closing in (thief, client):
        closing.close()


def test_what_does_not_fit_is_refused(pool):
    with pytest.raises(MisuseError, match=r"a memory pool of .* slots of .* ask for fewer slots or shorter fragments"):
        MemoryPool.create(LAYOUT, 1 << 40)
    with pytest.raises(MisuseError, match="at least 1 slot"):
        LocalPool(LAYOUT, 0)
    with pytest.raises(MisuseError, match="another layout"):
        PoolClient(pool.fd, Layout(5, 2, LAYOUT.fields | {"learn": Field(9, (77,), np.dtype(np.int64))}), pool.address, "a")


PRODUCER = """
import sys, time
import numpy as np
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import Meta, PoolClient
layout = Layout(4, 2, {"value": Field(5, (3,), np.dtype(np.float32)), "version": Field(4, (), np.dtype(np.int64))})
client = PoolClient(int(sys.argv[1]), layout, sys.argv[2], "a")
for number in range(int(sys.argv[3])):
    slot, views = client.claim(10.0)
    views["value"][:] = number
    client.submit(slot, Meta(number, number, 8))
slot, views = client.claim(10.0)
views["value"][:2] = np.nan
print("half-way", flush=True)
time.sleep(60)
"""


def produce(pool: MemoryPool, number: int) -> subprocess.Popen:
    command = [sys.executable, "-c", PRODUCER, str(pool.fd), pool.address, str(number)]
    return subprocess.Popen(command, pass_fds=[pool.fd], stdout=subprocess.PIPE)


def test_the_slot_of_an_actor_that_died_half_way_comes_back(pool):
    producer = produce(pool, 2)
    filled = [pool.get(PATIENCE_S) for _ in range(2)]
    assert producer.stdout.readline() == b"half-way\n"
    os.kill(producer.pid, signal.SIGKILL)
    producer.wait(10)
    producer.stdout.close()
    pool.forget("a")
    counts = check(pool)
    assert (counts.lost, counts.held, counts.lent, counts.free) == (1, 2, 0, 2)
    for number, fragment in enumerate(filled):
        assert (fragment.views["value"] == number).all()
        pool.release(fragment.slot)
    assert check(pool).free == 4

    reborn = attach(pool, "a")
    slot, _ = claim(pool, reborn)
    pool.forget("a")  # told late: the actor lives again
    reborn.submit(slot, Meta(0, 0, 1))
    assert pool.get(PATIENCE_S).slot == slot
    reborn.close()


def test_an_actor_that_comes_back_unforgotten_starts_with_nothing(pool):
    producer = produce(pool, 1)
    assert pool.get(PATIENCE_S)
    assert producer.stdout.readline() == b"half-way\n"
    producer.kill()
    producer.wait(10)
    producer.stdout.close()
    reborn = attach(pool, "a")
    reborn.submit(claim(pool, reborn).slot, Meta(5, 5, 1))
    assert pool.get(PATIENCE_S).meta.oldest_version == 5
    assert check(pool).lost == 1
    reborn.close()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["attach", "claim", "submit", "get", "release", "forget", "learn"]), st.integers(0, 2)),
    min_size=10,
    max_size=80,
)


@settings(max_examples=100, deadline=None)
@given(operations=OPERATIONS, staleness=st.sampled_from([None, 1]))
def test_counts_add_up_whatever_happens(operations, staleness):
    pool = MemoryPool.create(LAYOUT, 3, max_staleness=staleness)
    clients: dict[str, PoolClient] = {}
    claimed: dict[str, list[int]] = {name: [] for name in "012"}
    held: list[int] = []
    original, pool_module._alive = pool_module._alive, lambda pid: False  # all die and live in this process
    try:
        for operation, number in operations:
            name = str(number)
            if operation in ("attach", "forget"):
                if name in clients:
                    clients.pop(name).close()
                    claimed[name].clear()
                if operation == "attach":
                    clients[name] = attach(pool, name)
                else:
                    pool.forget(name)
            elif operation == "claim" and name in clients:
                pool.listen()
                if (claim := clients[name].claim(0.002)) is not None:
                    others = [slot for slots in claimed.values() for slot in slots]
                    assert claim.slot not in others + held  # nobody else has it
                    claimed[name].append(claim.slot)
            elif operation == "submit" and claimed[name]:
                clients[name].submit(claimed[name].pop(0), Meta(pool.version, pool.version, 1))
            elif operation == "get":
                if (filled := pool.get(0.002)) is not None:
                    assert staleness is None or pool.version - filled.meta.oldest_version <= staleness
                    held.append(filled.slot)
            elif operation == "release" and held:
                pool.release(held.pop(0))
            elif operation == "learn":
                pool.version += 1
            counts = check(pool)
            assert counts.held == len(held)
            assert counts.lent >= sum(map(len, claimed.values()))
    finally:
        pool_module._alive = original
        for closing in (*clients.values(), pool):
            closing.close()


@given(operations=OPERATIONS)
def test_counts_of_a_local_pool_add_up(operations):
    pool, claimed, held = LocalPool(LAYOUT, 3, max_staleness=1), [], []
    for operation, _ in operations:
        if operation == "claim" and (claim := pool.claim(0.0)) is not None:
            claimed.append(claim.slot)
        elif operation == "submit" and claimed:
            pool.submit(claimed.pop(0), Meta(pool.version, pool.version, 1))
        elif operation == "get" and (filled := pool.get(0.0)) is not None:
            held.append(filled.slot)
        elif operation == "release" and held:
            pool.release(held.pop(0))
        elif operation == "learn":
            pool.version += 1
        counts = check(pool)
        assert (counts.lent, counts.held, counts.lost) == (len(claimed), len(held), 0)
