"""Sides swapped at random: the seed deals the seats, the same by both ways, and whoever sits somewhere gets what belongs there."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.errors import CheckpointError, GameError
from lamarckian.games.pong import Pong
from lamarckian.mdp import Discrete, Observations, Result, Role, Saves, Steps, Vector
from lamarckian.mdp.check import check_mdp
from lamarckian.mdp.sides import SwappedMatches, deal, swapped
from lamarckian.mdp.wrappers import frame_skip, zero_sum
from lamarckian.seeding import match_seed
from tests.mdp.toys import Count

NAMES = ("a", "b", "c")


def test_seats_are_dealt_by_the_seed_and_all_alike():
    dealt = [tuple(deal(seed, 3)) for seed in range(1200)]
    counts = {order: dealt.count(order) for order in set(dealt)}
    assert len(counts) == 6
    assert all(150 < count < 250 for count in counts.values())
    assert dealt[7] == tuple(deal(7, 3))


def test_a_role_gets_the_controller_of_its_seat():
    game = Count(period={"right": 2})
    for seed in range(8):
        match = swapped(game).start(seed)
        crossed = deal(seed, 2)[0] == 1
        assert match.controllers["left"].name == ("right" if crossed else "left")
        assert match.controllers["right"].name == ("left" if crossed else "right")
        match.close()


@pytest.mark.parametrize(
    "game",
    [Pong(rounds=1, rally_ticks=60), Pong(rounds=1, rally_ticks=60, observation="image", image_size=32), Count(7)],
    ids=["vectors", "images", "count"],
)
def test_swapped_games_keep_the_contract(game):
    check_mdp(swapped(game), steps=80)


def test_wrappers_go_around_and_within():
    check_mdp(frame_skip(swapped(zero_sum(Pong(rounds=1, rally_ticks=40))), 2), steps=40)
    assert set(swapped(Pong()).bots) == set(Pong.bots)
    assert swapped(Pong()).batchable and not swapped(Pong(latency=1)).batchable and not swapped(Count()).batchable


class Seats:
    """Matches that tell each seat who it is: observation and reward are the seat's number, as is the missed tick of the third."""

    size = 40

    def __init__(self) -> None:
        self.acted: list[np.ndarray] = []

    def observe(self, seat: int, rows: int = size) -> Observations:
        legal = {"m": np.ones((rows, 3), np.bool_)}
        learn = np.full(rows, False) if seat == 1 else None
        return Observations({"x": np.full((rows, 1), seat, np.float32)}, legal, learn)

    def reset(self):
        return {name: self.observe(seat) for seat, name in enumerate(NAMES)}

    def step(self, actions):
        self.acted.append(np.stack([actions[name]["m"] for name in NAMES]))
        truncated = np.arange(self.size) % 2 == 0
        return {
            name: Steps(
                self.observe(seat),
                np.full((self.size, 1), seat, np.float32),
                ~truncated & (np.arange(self.size) % 3 == 0),
                truncated,
                self.observe(seat, int(truncated.sum())),
                np.full(self.size, 5, np.int32) if seat == 2 else None,
                [(b, Result(float(seat))) for b in range(self.size) if b % 2 == 0 or b % 3 == 0],
            )
            for seat, name in enumerate(NAMES)
        }

    def close(self):
        pass


def test_everything_of_a_match_is_dealt_alike_and_the_next_match_anew():
    games = Seats()
    matches = SwappedMatches(games, NAMES, 11)
    assert not isinstance(matches, Saves)
    seats = np.array([deal(match_seed(11, b, 0), 3) for b in range(40)]).T
    first = matches.reset()
    for k, name in enumerate(NAMES):
        np.testing.assert_array_equal(first[name].inputs["x"][:, 0], seats[k])
        np.testing.assert_array_equal(first[name].learn, seats[k] != 1)
    steps = matches.step({name: {"m": np.full(40, k)} for k, name in enumerate(NAMES)})
    for seat in range(3):  # each seat is acted for by the role that sits in it
        np.testing.assert_array_equal(games.acted[0][seat], np.argmax(seats == seat, axis=0))
    ended = np.array([b % 2 == 0 or b % 3 == 0 for b in range(40)])
    later = np.array([deal(match_seed(11, b, int(ended[b])), 3) for b in range(40)]).T
    for k, name in enumerate(NAMES):
        step = steps[name]
        np.testing.assert_array_equal(step.reward[:, 0], seats[k])
        np.testing.assert_array_equal(step.missed, np.where(seats[k] == 2, 5, 0))
        np.testing.assert_array_equal(step.final.inputs["x"][:, 0], seats[k][::2])
        assert [(b, result.score) for b, result in step.results] == [(b, seats[k][b]) for b in range(40) if ended[b]]
        np.testing.assert_array_equal(step.observations.inputs["x"][:, 0], later[k])


def test_matches_go_on_where_they_were_saved():
    game = swapped(Pong(rounds=1, rally_ticks=30))
    random = np.random.default_rng(0)
    actions = [{role: {"move": random.integers(3, size=6)} for role in game.roles} for _ in range(80)]
    whole = game.start_many(6, 3)
    whole.reset()
    for taken in actions[:50]:
        whole.step(taken)
    state = whole.save()
    resumed = game.start_many(6, 3)
    seen = resumed.load(state)
    for taken in actions[50:]:
        one, other = whole.step(taken), resumed.step(taken)
        for role in game.roles:
            np.testing.assert_array_equal(one[role].observations.inputs["vector"], other[role].observations.inputs["vector"])
            np.testing.assert_array_equal(one[role].reward, other[role].reward)
            assert one[role].results == other[role].results
    assert seen.keys() == game.roles.keys()
    with pytest.raises(CheckpointError, match="were sides swapped then"):
        resumed.load(Pong(rounds=1).start_many(6, 3).save())


def test_roles_that_differ_cannot_be_swapped():
    class Unlike:
        roles = {"hunter": Role({"x": Vector(1)}, {"a": Discrete(2)}), "prey": Role({"x": Vector(2)}, {"a": Discrete(2)})}

    with pytest.raises(GameError, match="those of this game differ: hunter, prey"):
        swapped(Unlike())
