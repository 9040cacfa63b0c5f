"""The simulation of `benchmarks/simulated`: against the lab, against arithmetic, and against what must hold whatever it says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated.broadcast import Queue, broadcast_s, build
from simulated.setup import FOOTBALL, LAB, LAB_SECONDS, LAB_TRAININGS, PONG, Setup, lab_training
from simulated.training import BATCHES, Training, simulate

from lamarckian.transport.broadcast import WINDOW_BYTES
from lamarckian.transport.layouts import pipeline_degree

CHUNKS = 64
IDEAL = replace(
    FOOTBALL,
    parameters=CHUNKS * FOOTBALL.chunk_bytes // 4,
    link_mbit=100.0,
    goodput=1.0,
    latency_s=0.0,
    look_s=0.0,
    receive_s_per_byte=0.0,
    hand_on_s_per_byte=0.0,
)
"""Only links take time; versions have 64 chunks."""
WINDOW = WINDOW_BYTES / IDEAL.size_bytes


def units(setup: Setup) -> float:
    """The time of a broadcast, in times that a link takes for a version."""
    return broadcast_s(setup) / (setup.size_bytes / setup.link_bytes_per_s)


def test_a_queue_by_hand():
    queue = Queue()
    assert queue.serve(1.0, 1.0, 2.0, 2.0) == (3.0, 3.0), "one chunk, nobody waits"
    assert queue.serve(2.0, 2.0, 1.0, 4.0) == (4.0, 7.0), "four chunks, all there, after the first"
    assert queue.serve(8.0, 20.0, 1.0, 4.0) == (9.0, 21.0), "four chunks that come slowly: the last goes out when it has come"
    assert queue.serve(8.0, 8.0, 1.0, 1.0) == (22.0, 22.0)
    two = Queue(2)
    assert [two.serve(0.0, 0.0, 1.0, 1.0)[0] for _ in range(4)] == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(("layout", "n", "rate_mbit"), list(LAB_SECONDS))
def test_the_lab_is_met(layout, n, rate_mbit):
    simulated = broadcast_s(replace(LAB, layout=layout, machines=n, link_mbit=rate_mbit))
    assert simulated == pytest.approx(LAB_SECONDS[layout, n, rate_mbit], rel=0.2)


def test_trainings_of_the_lab_are_met_but_for_the_staleness_of_flat():
    found = {layout: simulate(lab_training(layout)) for layout in LAB_TRAININGS}
    for layout, (_, broadcast, staleness) in LAB_TRAININGS.items():
        assert found[layout].broadcast_s == pytest.approx(broadcast, rel=0.2)
        assert found[layout].staleness == pytest.approx(staleness, rel=0.3 if layout == "flat" else 0.2)


def test_on_the_roots_own_machine_a_version_takes_no_link():
    alone = replace(IDEAL, layout="flat", machines=1, root_inside=True)
    assert units(alone) == pytest.approx(0.0)
    assert units(replace(alone, machines=4)) == pytest.approx(3.0, rel=1e-3)


@given(st.integers(1, 40))
@settings(max_examples=10)
def test_only_links_flat_takes_a_version_for_each(n):
    assert units(replace(IDEAL, layout="flat", machines=n)) == pytest.approx(n, rel=1e-6)


@given(st.integers(1, 60))
@settings(max_examples=10)
def test_only_links_a_tree_takes_its_degrees(n):
    heads = math.isqrt(n)
    bound = heads + math.ceil((n - heads) / heads)
    found = units(replace(IDEAL, layout="tree", machines=n))
    assert bound - heads * WINDOW <= found <= bound + 1e-6, "heads with a child more have it a window sooner than each that follows"


@given(st.integers(1, 60))
@settings(max_examples=10)
def test_only_links_a_chain_takes_a_chunk_more_for_each(n):
    assert pipeline_degree(n, CHUNKS) == 1
    assert units(replace(IDEAL, machines=n)) == pytest.approx(1 + (n - 1) / CHUNKS, rel=1e-6)


def test_only_links_a_fork_takes_two_chunks_more_for_each_layer():
    n = 254
    assert pipeline_degree(n, CHUNKS) == 2
    bound = 2 * (CHUNKS + 7 - 1) / CHUNKS
    assert bound <= units(replace(IDEAL, machines=n)) <= bound + WINDOW, "the root fills the window of one child, then the other's"


def test_only_processors():
    slow = replace(IDEAL, link_mbit=1e9, relay_idle=0.0, root_idle=0.0, receive_s_per_byte=1e-6, hand_on_s_per_byte=1e-7)
    alone = broadcast_s(replace(slow, layout="flat", machines=8))
    assert 1e-6 * slow.size_bytes <= alone <= 1.2e-6 * slow.size_bytes, "all receive at once, while the root hands on"
    shared = broadcast_s(replace(slow, layout="flat", machines=8, relay_cores=2))
    assert shared == pytest.approx(8 * 1.1e-6 * slow.size_bytes / 2, rel=0.05), "all of the work, on two cores"
    assert broadcast_s(replace(slow, layout="flat", machines=8, relay_cores=2, contention=3.0)) == pytest.approx(3 * shared)
    with pytest.raises(ValueError, match="2 cores are too few for 5000 relays"):
        _ = replace(LAB, machines=5_000).slowness


@pytest.mark.parametrize("layout", ["flat", "tree", "pipeline"])
@pytest.mark.parametrize("rate_mbit", [100.0, 1_000.0])
def test_chunks_may_be_simulated_together(layout, rate_mbit):
    setup = replace(FOOTBALL, layout=layout, machines=100, link_mbit=rate_mbit)
    assert broadcast_s(replace(setup, piece_chunks=4)) == pytest.approx(broadcast_s(setup), rel=0.1)


@pytest.mark.parametrize("layout", ["flat", "tree", "pipeline"])
def test_relays_show_ever_newer_versions_and_skip_what_is_too_many(layout):
    shown: dict[object, list[int]] = {}
    env = simpy.Environment()
    setup = replace(IDEAL, layout=layout, machines=20)
    root, relays = build(env, setup, lambda node, version: shown.setdefault(node, []).append(version))
    size_s = setup.size_bytes / setup.link_bytes_per_s
    for version in range(1, 101):
        env.timeout(version * size_s / 2).callbacks.append(lambda _, version=version: root.publish(version))
    env.run()
    assert set(shown) == set(relays)
    for versions in shown.values():
        assert versions == sorted(set(versions)), "ever newer"
        assert versions[-1] == 100 and len(versions) < 60, "the newest comes, others were skipped"


@given(st.sampled_from([FOOTBALL, PONG]), st.sampled_from(["flat", "tree", "pipeline"]), st.integers(0, 5), st.floats(0.1, 20.0))
@settings(max_examples=12)
def test_samples_are_conserved(game, layout, seed, until_s):
    training = Training(replace(game, layout=layout, machines=20, link_mbit=100.0), seed)
    for moment_s in (until_s / 3, until_s):
        training.env.run(moment_s)
        pool = training.pool
        assert training.produced == training.used + training.held + pool.waiting + pool.overwritten + training.carried
        assert min(training.used, training.held, pool.waiting, pool.overwritten, training.carried) >= 0
        assert pool.waiting <= training.setup.pool_batches * training.setup.batch
    if game is FOOTBALL:
        assert not pool.overwritten, "the learner keeps up"


def test_what_the_learner_cannot_take_is_overwritten():
    setup = replace(PONG, machines=50, link_mbit=10_000.0)
    training = Training(setup, 0)
    report = training.run()
    assert report.consumed_per_s == pytest.approx(setup.batch / setup.batch_s, rel=0.05)
    assert report.produced_per_s > 10 * report.consumed_per_s and training.pool.overwritten > 5 * training.used


def test_a_training_is_repeated_by_its_seed():
    setup = replace(FOOTBALL, layout="tree", machines=20)
    assert simulate(setup, 3) == simulate(setup, 3) != simulate(setup, 4)


def test_a_shorter_broadcast_makes_samples_fresher_and_costs_none():
    setup = replace(FOOTBALL, machines=50, link_mbit=100.0)
    flat, tree, pipeline = (simulate(replace(setup, layout=layout)) for layout in ("flat", "tree", "pipeline"))
    played = setup.machines * setup.cores * setup.fragment / setup.fragment_s
    for report in (flat, tree, pipeline):
        assert report.produced_per_s == pytest.approx(played, rel=0.05)
        assert report.seconds >= (BATCHES - 1) * setup.batch / played * 0.9
        assert report.broadcast_s <= report.slowest_broadcast_s and report.staleness <= report.staleness_p95
    assert flat.broadcast_s > 2 * tree.broadcast_s > 4 * pipeline.broadcast_s
    assert flat.staleness > 2 * tree.staleness > 4 * pipeline.staleness
    waited = (1.5 * flat.broadcast_s + 1.5 * setup.fragment_s) * played / setup.batch
    assert flat.staleness == pytest.approx(waited, rel=0.3), "a version is one to two broadcasts old while a machine has it"
