"""Episodes are joined from fragments, returns are right, and draws come in the promised order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lamarckian.data.episodes import FORGOTTEN, EpisodeBuffer, discounted
from lamarckian.errors import CheckpointError

T = 4
MADE: Counter[int] = Counter()
"""Columns that `fragment` made of each lane."""


@pytest.fixture(autouse=True)
def none_made():
    MADE.clear()


def buffer(**settings) -> EpisodeBuffer:
    given = {"bootstrap": False, "max_uses": 2, "steps": 1000, "open_bytes": 1 << 20, "seed": 3} | settings
    return EpisodeBuffer(np.array([0.5]), **given)


def fragment(*columns: tuple[int, int, set[int]], truncated: bool = False, bootstrap: float = 0.0, learn: bool = True) -> dict:
    """Columns of (lane, the number of their first step, which of their rows end an episode); a step's number is its input and reward."""
    count, made = len(columns), []
    for lane, _, _ in columns:
        made.append(MADE[lane])
        MADE[lane] += 1
    numbers = np.array([[first + t for _, first, _ in columns] for t in range(T + 1)], np.float32)
    ended = np.array([[t in ends for _, _, ends in columns] for t in range(T)])
    return {
        "inputs.x": numbers[..., None],
        "action.a": numbers[:T].astype(np.int32),
        "log_prob.a": np.zeros((T, count), np.float32),
        "value": np.zeros((T + 1, count, 1), np.float32),
        "reward": numbers[:T, :, None],
        "bootstrap": np.where(ended, bootstrap, 0.0).astype(np.float32)[..., None],
        "terminated": ended & (not truncated),
        "truncated": ended & truncated,
        "learn": np.full((T, count), learn),
        "version": np.zeros((T, count), np.int64),
        "lane": np.array([lane for lane, _, _ in columns]),
        "column": np.array(made),
    }


def by_number(drawn: dict[str, np.ndarray]) -> dict[int, float]:
    return dict(zip(drawn["inputs.x"][:, 0].astype(int).tolist(), drawn["return"][:, 0].tolist(), strict=True))


def test_returns_by_hand():
    reward = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]], np.float32)
    found = discounted(reward, np.array([8.0, 0.0]), np.array([0.5, 1.0]))
    assert found.tolist() == [[1 + 1 + 1 + 1, 70.0], [2 + 2 + 2, 60.0], [4 + 4, 40.0]]


def test_an_episode_is_joined_over_fragments_and_waits_for_its_end():
    episodes = buffer()
    episodes.add(fragment((7, 0, set()), (8, 100, {1})))
    assert (len(episodes), episodes.waiting) == (2, T + 2)
    assert by_number(episodes.draw(10)) == {100: 100 + 101 / 2, 101: 101.0}
    episodes.add(fragment((8, 104, set()), (7, 4, {0})))
    assert episodes.waiting == 2 + T + 3
    found = by_number(episodes.draw(5))
    assert found == {4: 4.0, 3: 5.0, 2: 4.5, 1: 3.25, 0: 1.625}
    assert len(episodes) == 7


def test_a_lane_may_come_twice_in_a_fragment_and_end_often():
    episodes = buffer()
    episodes.add(fragment((1, 0, {0, 2}), (1, 4, {3})))
    assert by_number(episodes.draw(10)) == {0: 0.0, 1: 2.0, 2: 2.0, 3: 3 + 2 + 1.25 + 6 / 8 + 7 / 16, 4: 8.875, 5: 9.75, 6: 9.5, 7: 7.0}
    assert episodes.waiting == 0


def test_an_episode_that_lacks_a_column_is_dropped_and_counted():
    episodes = buffer()
    episodes.add(fragment((1, 0, set()), (2, 100, set())))
    lost = fragment((1, 4, {1}))
    episodes.add(fragment((1, 8, {2}), (2, 104, {0})))  # of another episode than the first, though nobody can see where it began
    assert sorted(by_number(episodes.draw(20))) == [100, 101, 102, 103, 104]
    assert (episodes.waiting, episodes.dropped) == (1 + 3, T + 3)
    episodes.add(fragment((1, 12, {0})))
    assert by_number(episodes.draw(2)) == {11: 17.0, 12: 12.0}
    episodes.add(lost)  # too late
    assert (episodes.waiting, episodes.dropped) == (3 + 2, T + 3 + 3 + 2)


def test_an_episode_whose_beginning_is_unknown_is_dropped():
    episodes = buffer()
    fragment((1, 0, set()))
    episodes.add(fragment((1, 4, {1})))
    assert (len(episodes), episodes.waiting, episodes.dropped) == (0, 2, 2)


@pytest.mark.parametrize(("bootstrap", "worth"), [(False, 3.0), (True, 3 + 0.5 * 6)])
def test_a_truncated_episode_is_worth_its_final_value_where_that_is_asked_for(bootstrap, worth):
    episodes = buffer(bootstrap=bootstrap)
    episodes.add(fragment((1, 0, {3}), truncated=True, bootstrap=6.0))
    assert by_number(episodes.draw(4))[3] == worth


def test_unseen_steps_come_first_and_none_more_often_than_allowed():
    episodes = buffer()
    episodes.add(fragment((1, 0, {3})))
    assert sorted(by_number(episodes.draw(4))) == [0, 1, 2, 3]
    episodes.add(fragment((1, 10, {3})))
    drawn = episodes.draw(6)
    assert drawn["uses"].tolist() == [0] * 4 + [1] * 2
    assert sorted(by_number(drawn))[2:] == [10, 11, 12, 13]
    episodes.add(fragment((1, 20, set())))
    assert len(episodes) == 6
    assert len(episodes.draw(100)["uses"]) == 6
    episodes.add(fragment((1, 30, set())))
    assert len(episodes) == 0 and len(episodes.draw(100)["uses"]) == 0


def test_seen_steps_are_drawn_uniformly():
    episodes = buffer(max_uses=100_000)
    episodes.add(fragment((1, 0, {3})))
    episodes.draw(4)
    counts = np.bincount([number for _ in range(2000) for number in by_number(episodes.draw(1))], minlength=4)
    assert abs(counts - 500).max() < 100


def test_the_oldest_make_way_and_what_was_never_drawn_is_counted():
    episodes = buffer(steps=6)
    episodes.add(fragment((1, 0, {3})))
    episodes.draw(3)
    episodes.add(fragment((1, 10, {3})))
    assert len(episodes) == 6 and episodes.dropped <= 1
    assert min(by_number(episodes.draw(6))) == 2
    assert buffer().draw(3)["uses"].tolist() == []


def test_episodes_of_the_dead_are_forgotten():
    episodes = buffer()
    episodes.add(fragment((1, 0, set()), (2, 0, set())))
    for _ in range(2 * FORGOTTEN - 1):
        episodes.add(fragment((2, 0, set())))
    assert episodes.waiting == (2 * FORGOTTEN + 1) * T
    episodes.add(fragment((2, 0, {3})))
    assert (episodes.waiting, episodes.dropped) == (0, T)


def test_open_episodes_are_bounded_and_those_not_continued_make_way():
    one_step = sum(x[0, :1].nbytes for name, x in fragment((9, 0, set())).items() if name not in ("value", "lane", "column"))
    episodes = buffer(open_bytes=3 * T * one_step)
    episodes.add(fragment((1, 0, set()), (2, 10, set()), (3, 20, set())))
    episodes.add(fragment((1, 4, set())))
    assert (episodes.waiting, episodes.dropped) == (3 * T, T)
    episodes.add(fragment((1, 8, {0}), (2, 14, {0})))
    assert sorted(by_number(episodes.draw(100))) == [*range(9)]  # not 14, whose beginning made way


def test_steps_that_a_script_decided_count_in_returns_only():
    episodes = buffer()
    half = fragment((1, 0, {3}))
    half["learn"][2:] = False
    episodes.add(half)
    assert by_number(episodes.draw(9)) == {0: 1.375, 1: 2.75}


def test_goes_on_exactly_from_what_was_saved():
    batches = [fragment((lane, 10 * number, {number % T}), (lane + 1, 5 * number, set())) for number in range(6) for lane in (2 * number,)]
    whole, first, second = buffer(), buffer(), buffer()
    for batch in batches:
        whole.add(batch)
        expected = whole.draw(3)
    for batch in batches[:3]:
        first.add(batch)
        first.draw(3)
    state = first.save()
    first.draw(5)
    second.load(state)
    for batch in batches[3:]:
        second.add(batch)
        found = second.draw(3)
    assert all((found[name] == x).all() for name, x in expected.items())
    left, right = whole.save(), second.save()
    assert left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left if name != "open.length")
    assert whole.waiting == second.waiting
    with pytest.raises(CheckpointError, match="episode buffer"):
        buffer().load({"uses": np.zeros(3)})
