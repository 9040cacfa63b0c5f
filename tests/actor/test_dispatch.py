"""A real dispatch process, fed by this one through shared memory, and doubles of memory pools."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import psutil
import pytest

from lamarckian.actor.dispatch import Dispatch, DispatchConfig, DispatchReport, Forget
from lamarckian.cluster.local import LocalCluster
from lamarckian.data.ledger import MatchResult, Meta
from lamarckian.data.pool import PoolClient, create_block
from lamarckian.errors import MisuseError
from lamarckian.transport.channel import Inbox, Outbox, Terms, batch, local_address
from lamarckian.transport.keys import Keys
from tests.actor.memory_pools import LAYOUT, MemoryPoolDouble, fill

PATIENCE_S = 30.0
SLOTS = 6
META = Meta(3, 4, 8, [MatchResult("left", 0.5, "win", 12, [1.0])], {"inference_s": 0.25})


class Station:
    """A machine: its dispatch, an actor, and the pools that it brings fragments to. It moves while `until` runs.

    make: how many fragments the actor makes in all.
    """

    def __init__(self, cluster: LocalCluster, pools: list[MemoryPoolDouble], **settings) -> None:
        self.cluster = cluster
        self.pools = pools
        self.inbox = Inbox((DispatchReport,), local_address())
        self.block = create_block(LAYOUT, SLOTS)
        self.report: DispatchReport | None = None
        self.made = self.make = 0
        given = {"hold_bytes": 1 << 20, "packing": "none", "report_s": 0.25, **settings}
        self.address = local_address()
        config = DispatchConfig(
            "machine-1",
            LAYOUT.plain(),
            self.block.fd,
            SLOTS,
            self.address,
            self.inbox.address,
            [pool.address for pool in pools],
            **given,
        )
        self.process = cluster.start("dispatch", "lamarckian.actor.dispatch:main", msgspec.to_builtins(config), [self.block.fd])
        self.client = PoolClient(self.block.fd, LAYOUT, self.address, "actor")
        self.until(lambda: self.report is not None and all(pool.quiet or self.heard(pool) for pool in pools))

    def heard(self, pool: MemoryPoolDouble) -> bool:
        return self.report.pools[pool.address].silent_s < 1.0

    def turn(self) -> None:
        if self.made < self.make and (claim := self.client.claim(0.0)) is not None:
            fill(claim.views, self.made)
            self.client.submit(claim.slot, META)
            self.made += 1
        for pool in self.pools:
            pool.serve()
        for name, report in batch(self.inbox):
            assert name == "machine-1" and report.fragments == report.arrived + report.kept
            self.report = report
        assert not (exits := self.cluster.poll()), exits

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (self.report, self.made, [pool.got for pool in self.pools])
            self.turn()
            time.sleep(0.001)

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end)

    def all_in(self) -> bool:
        """Whether the dispatch knows that all are in."""
        return self.report is not None and self.report.arrived == self.make and self.report.kept == 0

    def fresh_report(self) -> DispatchReport:
        self.report = None
        self.until(lambda: self.report is not None)
        return self.report

    def close(self) -> None:
        for closing in (self.client, self.inbox, self.block, *self.pools):
            closing.close()


@pytest.fixture
def station():
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster())

        def start(*pools: MemoryPoolDouble, **settings) -> Station:
            made = Station(cluster, list(pools), **settings)
            stack.callback(made.close)
            return made

        yield start


def once(*gots: list[int]) -> list[int]:
    """All fragments, where none came twice."""
    counts = Counter(number for got in gots for number in got)
    assert set(counts.values()) <= {1}, counts
    return sorted(counts)


@pytest.mark.parametrize("packing", ["auto", "none", "lz4"])
def test_each_fragment_arrives_once_and_as_it_was(station, packing):
    there = station(MemoryPoolDouble(), packing=packing)
    there.make = 40
    there.until(there.all_in)
    (pool,) = there.pools
    assert pool.got == list(range(40)) and pool.repeated == 0
    assert [parcel.number for parcel in pool.parcels] == list(range(40))
    for parcel in pool.parcels:
        assert (parcel.actor, parcel.meta, parcel.steps, parcel.columns) == ("actor", META, 4, 2)
        assert 0 <= parcel.made_s < PATIENCE_S and parcel.packing == ("none" if packing == "none" else "lz4")
    report = there.fresh_report()
    assert report.fragment_bytes == 40 * LAYOUT.size_bytes and report.slots.used == 40
    assert report.packed_bytes == report.sent_bytes == sum(parcel.body.nbytes for parcel in pool.parcels)
    assert (report.sent, report.resent, report.kept_bytes) == (40, 0, 0)
    assert report.ratio == 1.0 if packing == "none" else report.ratio > 5
    assert report.pools[pool.address].channel.sent >= 40


def test_only_who_holds_the_key_is_spoken_to(station, tmp_path):
    keys = Keys.create(tmp_path / "cluster.key"), Keys.create(tmp_path / "other.key")
    mine, other = (MemoryPoolDouble(base=Terms(keys=each)) for each in keys)
    other.quiet = True  # as the dispatch sees it
    there = station(mine, other, keys=str(tmp_path / "cluster.key"))
    other.quiet = False
    there.make = 10
    there.until(there.all_in)
    assert mine.got == list(range(10)) and other.got == [] and other.inbox.statistics().received == 0


def test_a_pool_that_starts_anew_gets_what_was_not_in(station):
    pool = MemoryPoolDouble(ahead=3 * LAYOUT.size_bytes)
    there = station(pool)
    there.make = 60
    lives = [pool]
    for half_way in (13, 31, 44):
        there.until(lambda wanted=half_way: sum(len(life.got) for life in lives) >= wanted)
        there.pools = []
        there.pause(0.3)  # what the pool said arrives; what it is sent meanwhile waits
        lives.append(lives[-1].reborn())
        there.pools = [lives[-1]]
    there.until(there.all_in)
    assert once(*(life.got for life in lives)) == list(range(60))
    assert there.fresh_report().resent > 0


def test_a_pool_that_dies_amid_traffic_takes_with_it_only_what_it_had(station):
    pool = MemoryPoolDouble()
    there = station(pool)
    there.make = 200
    lives = [pool]
    for half_way in (20, 70, 120):
        there.until(lambda wanted=half_way: sum(len(life.got) for life in lives) >= wanted)
        lives.append(lives[-1].reborn())
        there.pools = [lives[-1]]
    there.until(there.all_in)
    for life in lives:
        once(life.got)
    assert {number for life in lives for number in life.got} == set(range(200))


def test_a_pool_that_grants_little_by_little_gets_no_more(station):
    pool = MemoryPoolDouble(ahead=LAYOUT.size_bytes)  # which asserts that it gets no more than that
    there = station(pool)
    there.make = 30
    there.until(there.all_in)
    assert pool.got == list(range(30)) and there.fresh_report().resent == 0


def test_what_is_lost_on_the_way_is_sent_again(station):
    pool = MemoryPoolDouble(lost=[3, 4, 5, 17])
    there = station(pool)
    there.make = 20
    there.until(there.all_in)
    assert pool.got == list(range(20)) and there.fresh_report().resent >= 4


def test_what_a_silent_pool_does_not_take_goes_to_another(station):
    one, other = MemoryPoolDouble(), MemoryPoolDouble()
    there = station(one, other, silence_s=1.5)
    there.make = 20
    there.until(there.all_in)
    one.quiet = True
    there.make = 40
    there.until(there.all_in)
    assert once(one.got, other.got) == list(range(40)) and len(other.got) > 25
    assert there.fresh_report().resent > 0


def test_a_pool_that_was_silent_for_long_gets_all_that_waited_for_it(station):
    pool = MemoryPoolDouble()
    there = station(pool, silence_s=1.0)
    there.make = 10
    there.until(there.all_in)
    pool.quiet = True
    there.make = 40
    there.until(lambda: there.made == 40)
    there.pause(2.5)
    assert there.report.kept == 30 and there.report.pools[pool.address].silent_s > 1.0
    pool.quiet = False
    there.until(there.all_in)
    assert once(pool.got) == list(range(40))


def test_what_is_kept_is_bounded(station):
    pool = MemoryPoolDouble(ahead=0)
    there = station(pool, hold_bytes=5 * LAYOUT.size_bytes + 1)
    there.make = 100
    there.until(lambda: there.report.kept == 5 and there.made == 5 + SLOTS)
    there.pause(1.5)
    report = there.fresh_report()
    assert (report.kept, report.kept_bytes, report.sent) == (5, 5 * LAYOUT.size_bytes, 0)
    assert (report.slots.waiting, there.made) == (SLOTS, 5 + SLOTS)
    pool.ahead = 2 * LAYOUT.size_bytes
    there.until(there.all_in)
    assert pool.got == list(range(100)) and there.report.kept_bytes == 0
    assert max(parcel.made_s for parcel in pool.parcels) > 1.5  # slots' time counts, too


def test_pools_with_the_same_room_get_the_same(station):
    pools = [MemoryPoolDouble() for _ in range(2)]
    there = station(*pools)
    there.make = 60
    there.until(there.all_in)
    assert once(*(pool.got for pool in pools)) == list(range(60))
    assert abs(len(pools[0].got) - len(pools[1].got)) <= 2


def test_the_pool_with_most_room_gets_most(station):
    wide, narrow = MemoryPoolDouble(), MemoryPoolDouble(ahead=LAYOUT.size_bytes)
    there = station(wide, narrow)
    there.make = 40
    there.until(there.all_in)
    assert once(wide.got, narrow.got) == list(range(40)) and len(narrow.got) == 0


def test_nonsense_from_a_pool_harms_nobody(station):
    honest, hostile = MemoryPoolDouble(), MemoryPoolDouble(ahead=0)
    there = station(honest, hostile)
    random = np.random.default_rng(0)
    victim = hostile.inbox._identities["machine-1"]
    for _ in range(3000):
        hostile.inbox._socket.send_multipart([victim, *(random.bytes(random.integers(0, 40)) for _ in range(random.integers(1, 4)))])
    there.make = 30
    there.until(there.all_in)
    assert honest.got == list(range(30))
    there.until(lambda: there.report.pools[hostile.address].channel.refused >= 2900)


def test_it_sleeps_when_there_is_nothing_to_do(station):
    pool = MemoryPoolDouble(ahead=0)
    there = station(pool, hold_bytes=2 * LAYOUT.size_bytes)
    for make in (0, 2 + SLOTS):  # with nothing to send, and with more than it may keep
        there.make = make
        there.until(lambda wanted=make: there.made == wanted)
        there.pause(0.5)
        process = psutil.Process(there.process.pid)
        before = sum(process.cpu_times()[:2])
        there.pause(1.0)
        assert sum(process.cpu_times()[:2]) - before < 0.3  # a loop that does not sleep takes all of the second


def test_the_slots_of_an_actor_that_died_come_back(station):
    there = station(MemoryPoolDouble())
    reading, ready = os.pipe()
    config = {"fd": there.block.fd, "address": there.address, "name": "dead", "ready": ready}
    there.cluster.start("dead", "tests.actor.children:hang", config, [there.block.fd, ready])
    os.close(ready)
    assert os.read(reading, 1) == b"!"
    os.close(reading)
    there.until(lambda: "dead" in there.report.actors and there.report.slots.lent == 4)
    there.cluster.stop("dead")
    assert there.inbox.send("machine-1", Forget("dead"))
    there.until(lambda: "dead" not in there.report.actors)
    assert there.report.slots.lost == 1 and there.report.slots.lent == 2


def config(**changes) -> DispatchConfig:
    block = create_block(LAYOUT, 1)
    settings = {"name": "m", "layout": LAYOUT.plain(), "pool_fd": block.fd, "slots": 1, "address": local_address()}
    return DispatchConfig(**{**settings, "station": local_address(), "pools": ["tcp://127.0.0.1:9"], "hold_bytes": 1 << 20, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pools": []}, "at least 1 memory pool .* given are 0 pools"),
        ({"hold_bytes": LAYOUT.size_bytes - 1}, f"at least one of {LAYOUT.size_bytes} bytes"),
        ({"pools": ["tcp://192.0.2.1:9"]}, "stays on this machine"),
        ({"slots": 2}, "a block of .* is expected"),
        ({"keys": "/nowhere/cluster.key"}, "no key to be read"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(MisuseError, match=words):
        Dispatch(config(**changes))


def test_while_the_process_is_stopped_nobody_is_silent():
    one, other = MemoryPoolDouble(), MemoryPoolDouble()
    block, station = create_block(LAYOUT, SLOTS), Inbox((DispatchReport,), local_address())
    dispatch = Dispatch(config(pool_fd=block.fd, slots=SLOTS, station=station.address, pools=[one.address, other.address], silence_s=1.0))
    deadline = time.monotonic() + PATIENCE_S
    while max(link.silent_s for link in dispatch.statistics().pools.values()) > 0.3:
        assert time.monotonic() < deadline
        for pool in (one, other):
            pool.serve()
        dispatch.advance(0.01)
    dispatch._tick_s -= 3600.0  # as if it had not run for an hour
    dispatch.advance(0.0)
    assert all(link.silent_s < 1.0 for link in dispatch.statistics().pools.values())
    for closing in (dispatch, station, block, one, other):
        closing.close()


def test_who_is_no_actor_is_refused():
    block, station = create_block(LAYOUT, SLOTS), Inbox((DispatchReport,), local_address())
    dispatch = Dispatch(config(pool_fd=block.fd, slots=SLOTS, station=station.address))
    stranger = Outbox((Forget,), dispatch._slots.address, "stranger")
    stranger.send(Forget("machine-1"))
    deadline = time.monotonic() + PATIENCE_S
    while dispatch.statistics().slots.refused < 1:
        assert time.monotonic() < deadline
        dispatch.advance(0.01)
    for closing in (dispatch, station, block, stranger):
        closing.close()
