import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lamarckian.errors import CheckpointError, RunFolderError
from lamarckian.mdp import Continuous, Discrete, Image, Role, Vector
from lamarckian.record import checkpoint as checkpoints
from lamarckian.record.checkpoint import Checkpoint, as_tensors, load, load_replay, pack, save, saved, unpack
from lamarckian.record.run import Run
from lamarckian.record.signature import check_signature, signature

ROLE = Role(
    {"ball": Vector(4), "screen": Image(4, 84, 84)},
    {"move": Discrete(3, masked=True), "force": Continuous(-1.0, 1.0, (2,))},
    ("score", "style"),
)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def make(steps, score=None, **parts):
    weights = {"weight": np.full((3, 2), steps, np.float32)}
    return Checkpoint(steps, steps // 10, score, signature(ROLE), weights, **parts)


def test_everything_comes_back_as_it_was(run):
    policy = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, betas=(0.9, 0.99))
    policy(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    random = np.random.default_rng(3)
    state = {"random": random.bit_generator.state, "counters": {"matches": 12}, "nothing": None}
    arrays = {
        "torch_random": torch.get_rng_state(),
        "board": np.array([[True, False]]),
        "empty": np.zeros((0, 3), np.int64),
        "scalar": np.float64(2.5),
    }
    save(run, Checkpoint(100, 7, 0.5, signature(ROLE), policy.state_dict(), optimizer.state_dict(), arrays, state), keep=1)

    back = load(run)
    assert (back.steps, back.version, back.score, back.signature) == (100, 7, 0.5, signature(ROLE))
    assert back.state == state
    for name, tensor in policy.state_dict().items():
        assert np.array_equal(back.policy[name], tensor.numpy())
    for name, array in arrays.items():
        assert np.array_equal(back.arrays[name], np.asarray(array)) and back.arrays[name].dtype == np.asarray(array).dtype

    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    twin.load_state_dict(as_tensors(back.policy))
    again = torch.optim.Adam(twin.parameters())
    again.load_state_dict(as_tensors(back.optimizer))
    assert again.param_groups[0]["betas"] == (0.9, 0.99)
    for net, step in ((policy, optimizer), (twin, again)):
        step.zero_grad()
        net(torch.full((5, 3), 0.3)).square().sum().backward()
        step.step()
    for one, other in zip(policy.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


def test_bfloat16_loses_nothing(run):
    values = torch.randn(7).bfloat16()
    save(run, make(1, optimizer={"momentum": values}), keep=1)
    assert np.array_equal(load(run).optimizer["momentum"], values.float().numpy())


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.lists(st.integers(0, 9), max_size=3).map(np.array)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(0, 2) | st.sampled_from(["a", "a.0", "0"]), inner)
    ),
    max_leaves=12,
)


def same(one, other):
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(TREES)
def test_a_packed_tree_is_the_same_when_unpacked(tree):
    arrays, form = pack(tree)
    assert same(unpack(arrays, json.loads(json.dumps(form))), tree)


def test_what_is_neither_array_nor_plain_is_refused(run):
    with pytest.raises(TypeError, match="object"):
        save(run, make(1, optimizer={"hook": object()}), keep=1)
    with pytest.raises(TypeError, match="arrays and plain values"):
        pack(np.array(["text"]))
    assert list(run.checkpoints_path.iterdir()) == []


def test_the_newest_and_the_best_stay(run):
    for steps, score in ((10, None), (20, 0.9), (30, 0.2), (40, 0.4), (50, 0.1)):
        save(run, make(steps, score), keep=2)
    assert saved(run) == [20, 40, 50]
    assert load(run).steps == load(run, "last").steps == 50
    assert load(run, "best").steps == 20
    assert load(run, 40).steps == load(run, "40").steps == 40
    save(run, make(60, 0.95), keep=2)
    assert saved(run) == [50, 60]


def test_scores_by_another_measure_are_not_compared(run):
    save(run, make(10, 2600.0), 1, "rating from v0")
    save(run, make(20), 1)
    assert saved(run) == [10, 20] and load(run, "best").steps == 10  # nothing else is known yet
    save(run, make(30, 0.4), 1)
    assert saved(run) == [30]
    save(run, make(40, 0.3), 1)
    assert load(run, "best").steps == 30
    save(run, make(50, -2.0), 1, "-validation/loss/policy")
    assert saved(run) == [50]
    assert json.loads((run.checkpoints_path / "best.json").read_text()) == {
        "steps": 50, "score": -2.0, "measure": "-validation/loss/policy"
    }  # fmt: skip
    (run.checkpoints_path / "best.json").write_text('{"steps": 50, "score": 7.0}')  # by whatever it may have been
    assert load(run, "best").steps == 50
    save(run, make(60, 0.1), 1)
    assert load(run, "best").steps == 60


def test_without_scores_the_best_is_the_last(run):
    save(run, make(10), keep=2)
    save(run, make(20), keep=2)
    assert load(run, "best").steps == 20


def test_the_newest_alone_has_the_replay(run):
    for steps, score in ((10, 0.9), (20, 0.5), (30, 0.5)):
        save(run, make(steps, score, replay={"frames": np.full(5, steps)}), keep=2)
        assert (load_replay(run, steps)["frames"] == steps).all()
    assert saved(run) == [10, 20, 30]
    assert load_replay(run, 10) is load_replay(run, 20) is None
    save(run, make(40, 0.1), keep=4)
    assert load_replay(run, 30) is None and load_replay(run, 40) == {}
    assert all(load(run, steps).steps == steps for steps in saved(run))


def test_a_damaged_replay_is_refused(run):
    save(run, make(10, replay={"frames": np.zeros(5)}), keep=2)
    flip(run.checkpoints_path / "10" / "replay.safetensors")
    with pytest.raises(CheckpointError, match=r"replay\.safetensors is damaged"):
        load_replay(run, 10)
    assert load(run).steps == 10


def test_a_full_disk_leaves_the_replay_that_was_saved(run, monkeypatch):
    save(run, make(10, replay={"frames": np.full(5, 10)}), keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunFolderError, match="disk is full"):
            save(run, make(20, replay={"frames": np.full(5, 20)}), keep=1)
    assert saved(run) == [10] and (load_replay(run, 10)["frames"] == 10).all()


def test_a_checkpoint_that_is_not_there_is_refused(run):
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        load(run)
    save(run, make(10), keep=2)
    with pytest.raises(CheckpointError, match="there are: 10"):
        load(run, 20)
    with pytest.raises(CheckpointError, match="allowed: last, best"):
        load(run, "bset")


def test_the_same_steps_may_be_saved_again(run):
    save(run, make(10), keep=2)
    save(run, make(10), keep=2)
    (run.checkpoints_path / "10" / "state.json").unlink()
    save(run, make(10), keep=2)
    assert load(run).steps == 10
    assert [entry.name for entry in run.checkpoints_path.iterdir()] == ["10"]


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("policy.safetensors", cut, r"policy\.safetensors is cut off"),
        ("optimizer.safetensors", flip, r"optimizer\.safetensors is damaged"),
        ("arrays.safetensors", lambda path: path.unlink(), r"cannot read .*arrays\.safetensors: No such file"),
        ("state.json", cut, r"state\.json is damaged"),
        ("state.json", lambda path: path.write_bytes(b"\xff\xfe"), r"state\.json is damaged"),
        ("state.json", lambda path: path.unlink(), r"cannot read .*state\.json"),
        ("state.json", lambda path: path.write_text('{"epoch": 3}'), r"state\.json is not of a checkpoint of Lamarckian"),
        ("state.json", lambda path: path.write_text("[]"), "is not of a checkpoint of Lamarckian"),
        ("state.json", lambda path: path.write_text(path.read_text().replace('"number": 1', '"number": 2')), "format number 2"),
        ("state.json", lambda path: path.write_text(path.read_text().replace('"files"', '"flies"')), "damaged: KeyError 'files'"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(run, file, damage, message):
    save(run, make(10), keep=2)
    save(run, make(20), keep=2)
    damage(run.checkpoints_path / "20" / file)
    with pytest.raises(CheckpointError, match=message) as error:
        load(run)
    assert "others are there: 10" in str(error.value)
    assert load(run, 10).steps == 10


def full(descriptor):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_what_was_saved(run, monkeypatch):
    save(run, make(10, 0.5), keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunFolderError, match=r"disk is full; what was saved before is intact"):
            save(run, make(20, 0.9), keep=1)
    assert sorted(entry.name for entry in run.checkpoints_path.iterdir()) == ["10", "best.json"]
    assert load(run, "best").steps == 10
    save(run, make(20, 0.9), keep=1)
    assert load(run).steps == 20


def test_a_truly_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        run = Run(disk)
        save(run, make(10), keep=2)
        with pytest.raises(RunFolderError, match="disk is full"):
            save(run, make(20, arrays={"much": np.zeros(1 << 20, np.uint8)}), keep=2)
        assert saved(run) == [10]
        assert load(run).steps == 10
    finally:
        subprocess.run(["umount", str(disk)], check=True)


WRITER = """
import sys, numpy as np
from pathlib import Path
from lamarckian.record.checkpoint import Checkpoint, save, saved
from lamarckian.record.run import Run
run = Run(Path(sys.argv[1]))
steps = max(saved(run), default=0)
while True:
    steps += 1
    arrays = {"w": np.full(50_000, steps, np.float32)}
    save(run, Checkpoint(steps, steps, steps % 7, {}, arrays, replay=arrays), keep=2)
    print(steps, flush=True)
"""


def test_a_writer_that_is_killed_leaves_the_newest_whole(run):
    for attempt in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(run.folder)], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(0.013 * attempt)
        writer.send_signal(signal.SIGKILL)
        announced = writer.communicate()[0].split()
        newest = load(run)
        assert np.all(newest.policy["w"] == newest.steps)
        assert np.all(load_replay(run, newest.steps)["w"] == newest.steps)
        assert load(run, "best").steps
        if announced:
            assert newest.steps >= int(announced[-1])
        for steps in saved(run):
            checkpoints.read(run.checkpoints_path / str(steps))


def test_a_fitting_signature_passes():
    check_signature(json.loads(json.dumps(signature(ROLE))), ROLE, "checkpoint 10")


@pytest.mark.parametrize(
    ("inputs", "heads", "rewards", "message"),
    [
        ({"ball": Vector(6)}, {}, None, "input 'ball': size is 4 in the checkpoint, 6 in the game"),
        ({"screen": Image(4, 96, 84)}, {}, None, "input 'screen': height is 84 in the checkpoint, 96 in the game"),
        ({"ball": Image(1, 8, 8)}, {}, None, "input 'ball': the checkpoint has Vector, the game has Image"),
        ({"map": Vector(2)}, {}, None, "input 'map': the game has it, the checkpoint does not"),
        ({"ball": None}, {}, None, "input 'ball': the checkpoint has it, the game does not"),
        ({}, {"move": Discrete(5, masked=True)}, None, "head 'move': n is 3 in the checkpoint, 5 in the game"),
        ({}, {"force": Continuous(-2.0, 1.0, (2,))}, None, "head 'force': low is -1.0 in the checkpoint, -2.0 in the game"),
        ({}, {}, ("score",), "rewards: the checkpoint has score, style, the game has score"),
    ],
)
def test_a_signature_that_does_not_fit_says_what_differs(inputs, heads, rewards, message):
    changed = Role(
        {name: space for name, space in {**ROLE.inputs, **inputs}.items() if space is not None},
        {**ROLE.heads, **heads},
        rewards or ROLE.rewards,
    )
    with pytest.raises(CheckpointError) as error:
        check_signature(signature(ROLE), changed, "checkpoint 10")
    assert str(error.value) == f"checkpoint 10 does not fit the game: {message}"
