"""Replay: what is drawn is what was played, bit for bit, within windows that never cross an end; and it keeps to its size."""

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.data.fragment import layout
from lamarckian.data.replay import Replay, require_memory
from lamarckian.errors import CheckpointError, RecipeError
from lamarckian.mdp import Continuous, Discrete, Image, Role, Vector
from lamarckian.recipe.sizes import parse_size, text

PLAIN = Role({"x": Vector(2)}, {"move": Discrete(3, masked=True)}, ("score", "style"))
SCREEN = Role({"screen": Image(4, 3, 5), "x": Vector(1)}, {"move": Discrete(2)})
T = 4


def play(role: Role, columns: int, seed: int = 0, steps: int = T, ends: float = 0.0) -> dict[str, np.ndarray]:
    """A fragment with ends of both kinds here and there."""
    random = np.random.default_rng(seed)
    fragment = layout(role, steps, columns).empty()
    for array in fragment.values():
        array[...] = random.random(array.shape) < ends if array.dtype == bool else random.integers(0, 2, array.shape)
    fragment["learn"][...] = True
    fragment["inputs.x"][...] = random.random(fragment["inputs.x"].shape)
    fragment["reward"][...] = random.random(fragment["reward"].shape)
    fragment["version"][...] = seed
    if "inputs.screen" in fragment:
        frames = random.integers(0, 256, (steps + 4, columns, 3, 5))
        for row in range(steps + 1):
            fragment["inputs.screen"][row] = frames[row : row + 4].swapaxes(0, 1)
    return fragment


def everything(replay: Replay) -> np.ndarray:
    """All entries that may be drawn."""
    return np.flatnonzero(replay._tree.priorities)


def one(rewards, terminated=(), truncated=(), scripted=()) -> Replay:
    """A replay of one column with these rewards, and these steps as said."""
    role = Role({"x": Vector(1)}, {"move": Discrete(2)})
    fragment = play(role, 1, steps=len(rewards))
    fragment["reward"][:, 0, 0] = rewards
    fragment["inputs.x"][:, 0, 0] = np.arange(len(rewards) + 1)
    for name, steps in (("terminated", terminated), ("truncated", truncated)):
        fragment[name][list(steps)] = True
    fragment["learn"][list(scripted)] = False
    replay = Replay(role, len(rewards), 1 << 16, len(rewards))
    replay.add(fragment)
    return replay


def windows(replay: Replay, n: int, gamma: float = 0.5):
    """(step, return, discount, where it leads to) of all that may be drawn."""
    found = replay.windows(everything(replay), n, gamma)
    rows = zip(found.inputs["x"][:, 0], found.returns[:, 0], found.discount, found.next_inputs["x"][:, 0], strict=True)
    return [tuple(map(float, row)) for row in rows]


def test_windows_shorten_at_the_end_of_a_column():
    assert windows(one([1, 2, 4]), 2) == [(0, 2, 0.25, 2), (1, 4, 0.25, 3), (2, 4, 0.5, 3)]


def test_windows_end_with_the_match():
    assert windows(one([1, 2, 4, 8], terminated=[1]), 3) == [(0, 2, 0, 2), (1, 2, 0, 2), (2, 8, 0.25, 4), (3, 8, 0.5, 4)]


def test_a_truncated_step_is_not_drawn_and_windows_end_before_it():
    assert windows(one([1, 2, 4, 8], truncated=[2]), 3) == [(0, 2, 0.25, 2), (1, 2, 0.5, 2), (3, 8, 0.5, 4)]


def test_a_step_that_is_both_counts_as_terminated():
    assert windows(one([1, 2], terminated=[1], truncated=[1]), 3) == [(0, 2, 0, 2), (1, 2, 0, 2)]


def test_windows_go_on_over_scripted_steps_which_are_not_drawn():
    assert windows(one([1, 2, 4, 8], scripted=[1, 2]), 1) == [(0, 3, 0.125, 3), (3, 8, 0.5, 4)]


@pytest.mark.parametrize("role", [PLAIN, SCREEN], ids=["plain", "image"])
def test_what_is_read_is_what_was_played(role):
    fragments = [play(role, 3, seed, ends=0.2) for seed in range(5)]
    replay = Replay(role, T, 1 << 20, 6 * T)  # room for two fragments
    for fragment in fragments:
        replay.add(fragment)
    assert replay.samples == 6 * T
    entries = everything(replay)
    found = replay.windows(entries, 1, 0.9)
    for k, entry in enumerate(entries):
        fragment = fragments[found.version[k]]
        assert found.version[k] >= 3
        column, row = divmod(entry, T)
        lane = (column - found.version[k] * 3) % 6 % 3
        for name in role.arrays():
            assert np.array_equal(found.inputs[name][k], fragment[f"inputs.{name}"][row, lane])
            assert np.array_equal(found.next_inputs[name][k], fragment[f"inputs.{name}"][row + 1, lane])
        for name in role.masks():
            assert np.array_equal(found.next_legal[name][k], fragment[f"legal.{name}"][row + 1, lane])
        assert found.actions["move"][k] == fragment["action.move"][row, lane]
        assert np.array_equal(found.returns[k], fragment["reward"][row, lane])
        assert found.discount[k] == (0 if fragment["terminated"][row, lane] else np.float32(0.9))


def stacks(random: np.random.Generator, rows: int, columns: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Images `[rows, columns, C, H, W]` as games show them: moved on by some frames, as they were, or begun anew, with zeros or whole."""
    images = np.empty((rows, columns, *shape), np.uint8)
    for column in range(columns):
        image = random.integers(0, 3, shape)
        for row in range(rows):
            match random.integers(6):
                case 0:
                    image = np.concatenate([np.zeros_like(image[1:]), random.integers(0, 3, (1, *shape[1:]))])
                case 1:
                    image = random.integers(0, 3, shape)
                case 2:
                    image = np.repeat(random.integers(0, 3, (1, *shape[1:])), shape[0], 0)
                case new:
                    image = np.concatenate([image, random.integers(0, 3, (new - 3, *shape[1:]))])[new - 3 :]
            images[row, column] = image
    return images


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_images_come_back_bit_for_bit_whatever_they_are(channels, steps, columns, fragments, seed):
    random = np.random.default_rng(seed)
    role = Role({"x": Vector(1), "image": Image(channels, 2, 3)}, {"move": Discrete(2)})
    replay = Replay(role, steps, 1 << 20, int(random.integers(1, 12)) * steps)
    played = []
    for version in range(fragments):
        fragment = play(role, columns, version, steps)
        fragment["inputs.image"][...] = stacks(random, steps + 1, columns, (channels, 2, 3))
        fragment["inputs.x"][...] = (version * columns + np.arange(columns))[:, None]  # tells whose column it is
        replay.add(fragment)
        played += list(fragment["inputs.image"].swapaxes(0, 1))
    assert replay.samples >= steps
    entries = everything(replay)
    found = replay.windows(entries, 1, 1.0)
    newest = len(played) - replay.samples // steps
    assert found.inputs["x"].min() == newest  # the oldest went first, and none besides
    for k, entry in enumerate(entries):
        column = played[int(found.inputs["x"][k, 0])]
        assert np.array_equal(found.inputs["image"][k], column[entry % steps])
        assert np.array_equal(found.next_inputs["image"][k], column[entry % steps + 1])


def test_a_frame_is_stored_once():
    role = Role({"screen": Image(4, 84, 84), "x": Vector(1)}, {"move": Discrete(2)})
    replay = Replay(role, 64, 50_000_000)
    whole = 65 * 4 * 84 * 84
    assert replay._columns > 3.7 * 50_000_000 / whole  # 65 rows take 68 frames, not 260
    assert sum(array.nbytes for array in replay._arrays.values()) + replay._images["screen"]._frames.nbytes <= 50_000_000


def test_columns_that_need_more_frames_drive_out_older_ones_sooner():
    random = np.random.default_rng(0)
    replay = Replay(SCREEN, T, 1 << 20, 8 * T)
    for seed in range(4):
        fragment = play(SCREEN, 2, seed)
        fragment["inputs.screen"][...] = random.integers(0, 256, fragment["inputs.screen"].shape)  # nothing repeats
        replay.add(fragment)
    assert 0 < replay.samples < 8 * T and replay.full
    assert replay.eligible == replay.samples == len(everything(replay))


def test_new_samples_have_the_highest_priority():
    replay = Replay(PLAIN, T, 1 << 16)
    replay.add(play(PLAIN, 1))
    replay.prioritise(np.array([0, 1]), np.array([5.0, 0.5]))
    replay.add(play(PLAIN, 1))
    assert replay._tree.priorities[: 2 * T].tolist() == [5, 0.5, 1, 1, 5, 5, 5, 5]


def test_importance_weights_by_hand():
    replay = Replay(PLAIN, 2, 1 << 16, 2)
    replay.add(play(PLAIN, 1, steps=2))
    replay.prioritise(np.array([0, 1]), np.array([1.0, 3.0]))
    entries, weights = replay.draw(np.full(4, 0.5), beta=0.5)
    # P = 1/4 and 3/4, N = 2: (N P)^−½ = √2 and √⅔; over the larger one, 1 and √⅓.
    assert sorted(entries.tolist()) == [0, 1, 1, 1]
    np.testing.assert_allclose(weights, np.where(entries == 0, 1.0, 3**-0.5), rtol=1e-6)
    assert (replay.draw(np.full(4, 0.5), beta=0.0)[1] == 1).all()


@pytest.mark.parametrize("role", [PLAIN, SCREEN], ids=["plain", "image"])
@pytest.mark.parametrize("fragments", [1, 5])
def test_it_goes_on_as_it_was_saved(role, fragments):
    replay, twin = (Replay(role, T, 1 << 20, 7 * T) for _ in range(2))
    for seed in range(fragments):
        replay.add(play(role, 2, seed, ends=0.2))
    replay.prioritise(everything(replay)[:2], np.array([2.5, 0.1]))
    twin.load({name: array.copy() for name, array in replay.save().items()})
    for both in (replay, twin):
        both.add(play(role, 2, 9))
    assert (replay.samples, replay.eligible, replay.highest) == (twin.samples, twin.eligible, twin.highest)
    uniform = np.random.default_rng(0).random(64)
    drawn = [both.draw(uniform, 0.4) for both in (replay, twin)]
    assert np.array_equal(drawn[0][0], drawn[1][0]) and np.array_equal(drawn[0][1], drawn[1][1])
    for name, array in replay.windows(drawn[0][0], 3, 0.9).next_inputs.items():
        assert np.array_equal(array, twin.windows(drawn[0][0], 3, 0.9).next_inputs[name])


def test_a_replay_of_another_size_or_game_is_refused():
    saved = Replay(PLAIN, T, 1 << 20, 7 * T)
    saved.add(play(PLAIN, 2))
    for other in (Replay(PLAIN, T, 1 << 20, 8 * T), Replay(PLAIN, T + 1, 1 << 20, 7 * T), Replay(SCREEN, T, 1 << 20, 7 * T)):
        with pytest.raises(CheckpointError, match=r"room for 7 columns of 4 steps.*delete the checkpoint's replay\.safetensors"):
            other.load(saved.save())


@pytest.mark.parametrize(("samples", "capacity"), [(7 * T, 7 * T), (7 * T - 1, 6 * T), (1, T)])
def test_it_holds_no_more_samples_than_it_may_but_a_column(samples, capacity):
    assert Replay(PLAIN, T, 1 << 20, samples).capacity == capacity


def test_it_must_have_room_for_a_column():
    with pytest.raises(RecipeError, match=r"1 KB has no room .* 64 steps .*shorter actor\.fragment"):
        Replay(PLAIN, 64, 1024)


def test_continuous_actions_are_kept_too():
    role = Role({"x": Vector(1)}, {"aim": Continuous(-1.0, 1.0, (2,))})
    fragment = play(role, 1)
    fragment["action.aim"][...] = np.random.default_rng(0).random((T, 1, 2))
    replay = Replay(role, T, 1 << 16)
    replay.add(fragment)
    assert np.array_equal(replay.windows(np.arange(T), 1, 1.0).actions["aim"], fragment["action.aim"][:, 0])


@pytest.mark.parametrize(("given", "size"), [("1GB", 1 << 30), ("1.5 mb", 3 << 19), ("64KB", 1 << 16)])
def test_sizes_are_read(given, size):
    assert parse_size(given) == size


@pytest.mark.parametrize("given", ["", "GB", "5", "-1GB", "nanGB", "infGB", "5XB", "0GB"])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(ValueError, match=r"500MB or 1\.5GB"):
        parse_size(given)


def test_more_than_the_memory_is_refused_with_both_figures():
    total = psutil.virtual_memory().total
    with pytest.raises(RecipeError, match=rf"algorithm\.replay_size: given {text(2 * total)}; this machine has {text(total)} of memory"):
        require_memory(2 * total, "algorithm.replay_size")
    require_memory(1 << 20, "algorithm.replay_size")


def test_several_draws_at_once_are_those_one_by_one():
    replay = one([0.0] * 32)
    replay.prioritise(np.arange(replay.samples), np.arange(1.0, replay.samples + 1))
    uniform = np.random.default_rng(0).random((3, 8))
    entries, weights = replay.draw(uniform, 0.5)
    singly = [replay.draw(row, 0.5) for row in uniform]
    np.testing.assert_array_equal(entries, [one for one, _ in singly])
    np.testing.assert_array_equal(weights, [one for _, one in singly])
    assert len({tuple(row) for row in entries.tolist()}) == 3
