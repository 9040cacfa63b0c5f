"""Trainings of a cluster whose processes are killed, whose disk fills up, whose clock jumps, and that are told to end."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from lamarckian.record import checkpoint
from lamarckian.record.run import open_run
from lamarckian.record.status import read_status
from tests.commands import run, wait_for
from tests.evaluate.clusters import BATCH, ROOT, ClusterRun, add_up, begin

KINDS = ["learner-0", "root", "pool", "relay", "dispatch", "actor-", "station-"]
STALL_S = 60.0  # at most, until training goes on: long enough for processes to start on a machine that is busy


def resume(folder: Path, *more: object) -> ClusterRun:
    return ClusterRun(folder, "resume", folder, *more, "--no-video")


def kill(going: ClusterRun, kind: str, draw: random.Random) -> None:
    """One process of a kind, or with its station all of a machine."""
    victim = draw.choice(wait_for(lambda: going.named(kind), 60, kind))
    victims = [victim, *(victim.children(recursive=True) if kind == "station-" else [])]
    for process in victims:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize(
    "learners, kills",
    [(1, 8), pytest.param(1, 50, marks=pytest.mark.slow), pytest.param(2, 16, marks=pytest.mark.slow)],
)
def test_whatever_is_killed_training_goes_on(learners, kills, tmp_path):
    kinds = [*KINDS, *(["learner-1"] if learners == 2 else [])]
    draw = random.Random(kills)
    order = [kinds[place % len(kinds)] for place in range(kills)]
    draw.shuffle(order)
    with begin(tmp_path / "run", f"cluster.learners={learners}") as going:
        going.wait_for_updates(3, 120)
        stalls = []
        for kind in order:
            kill(going, kind, draw)
            killed_s = time.monotonic()
            going.wait_for_updates(3, STALL_S)
            stalls.append((round(time.monotonic() - killed_s, 1), kind))
            time.sleep(draw.uniform(0.0, 0.5))
        assert going.interrupt() == 1
        going.wait_until_nothing_is_left()
        lines, said = going.look(), going.said
    print(f"s until three more updates, after each kill: {stalls}")
    assert said.count("was ended by SIGKILL") >= kills - order.count("station-") and "interrupted; saved" in said
    assert all(add_up(line) and line["steps"] == line["updates"] * BATCH for line in lines)
    restored = [int(steps) // BATCH for steps in re.findall(r"going on from checkpoint (\d+)", said)]
    assert len(restored) + said.count("going on from the beginning") >= order.count("learner-0")
    for sooner, later in pairwise(line["updates"] for line in lines):
        assert later > sooner or any(version < later for version in restored if version <= sooner)
    assert checkpoint.load(open_run(tmp_path / "run")).version >= lines[-1]["updates"]


SLOW_LEARNER = ["algorithm.epochs=60", "actor.matches=16", "stop={updates: 8}"]


@pytest.mark.parametrize("when_full", ["wait", "overwrite"])
def test_a_pool_that_is_full_holds_actors_back_or_counts_what_gives_way(when_full, tmp_path):
    with begin(tmp_path / "run", *SLOW_LEARNER, f"cluster.pool.when_full={when_full}") as going:
        assert going.process.wait(120) == 0, going.said
        lines = going.look()
    assert lines[-1]["updates"] == 8 and all(add_up(line) for line in lines)
    last = lines[-1]
    if when_full == "wait":
        assert last["pool/overwritten"] == 0 and last["pool/produced"] < last["pool/used"] + 10
    else:
        assert last["pool/overwritten"] > 10 and last["pool/occupancy"] <= 1


@pytest.fixture
def small_disk(tmp_path):
    """A disk that a test can fill."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_ends_the_run_and_says_what_to_do(small_disk):
    folder = small_disk / "run"
    with begin(folder, "cluster.learners=2") as going:
        wait_for(lambda: list(folder.glob("checkpoints/[0-9]*")), 120, "checkpoint")
        fill(small_disk)
        assert going.process.wait(60) == 2
        going.wait_until_nothing_is_left()
        said = going.said
    assert "the disk is full; what was saved before is intact. Free some space, then `lamarckian resume`" in said
    assert said.count("error: ") == 1 and "going on from" not in said
    before = checkpoint.load(open_run(folder)).version
    (small_disk / "filler").unlink()
    with resume(folder, f"stop.updates={before + 20}") as again:
        assert again.process.wait(120) == 0, again.said
    assert checkpoint.load(open_run(folder)).version == before + 20


def test_nothing_is_left_however_a_run_ends_and_it_goes_on_by_other_settings(tmp_path):
    folder = tmp_path / "run"
    with begin(folder) as going:
        wait_for(lambda: list(folder.glob("checkpoints/[0-9]*")), 120, "checkpoint")
        going.process.kill()
        going.wait_until_nothing_is_left()
    first = checkpoint.load(open_run(folder)).version
    with resume(folder, "cluster.machines=3", "cluster.packing=lz4", "cluster.broadcast=tree") as going:
        wait_for(lambda: any(line["machines"] == 3 for line in going.look()), 120, "three machines")
        assert going.interrupt(group=True) == 1 and "interrupted; saved" in going.said
        going.wait_until_nothing_is_left()
    second = checkpoint.load(open_run(folder)).version
    assert second > first
    done = run("resume", folder, "cluster=null", f"stop.updates={second + 10}", "--no-video", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert checkpoint.load(open_run(folder)).version == second + 10


JUMPY = """
import itertools, time
now, calls = time.time, itertools.count()
time.time = lambda: now() + (-1) ** next(calls) * 1e6
"""


@pytest.mark.slow
def test_a_clock_that_jumps_at_every_look_changes_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(JUMPY)
    path = f"{tmp_path}:{ROOT}"
    with begin(tmp_path / "run", "stop={updates: 20}", environment={"PYTHONPATH": path}) as going:
        assert going.process.wait(120) == 0, going.said
        lines = going.look()
    assert abs(read_status(open_run(tmp_path / "run")).time_s - time.time()) > 1e5  # it did jump
    assert lines[-1]["updates"] == 20 and all(add_up(line) for line in lines)
    assert all(0 <= line["broadcast/slowest_s"] < 60 for line in lines if "broadcast/slowest_s" in line)


def test_that_channels_are_open_to_the_network_is_said_once(tmp_path):
    addresses = [entry.address for there in psutil.net_if_addrs().values() for entry in there if entry.family == socket.AF_INET]
    host = next((address for address in addresses if not address.startswith("127.")), None)
    if host is None:
        pytest.skip("this machine is in no network")
    with begin(tmp_path / "run", "stop={updates: 3}", f"cluster.host={host}") as going:
        assert going.process.wait(120) == 0, going.said
        said = going.said
    assert said.count("open to whoever can reach") == 1 and "`lamarckian keys` makes a key" in said
