"""Opponents from a league: drawn by their shares, few at a time, the same by both ways, and saved in the middle."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from lamarckian.actor.opponents import Crowd, Seating
from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.process import Description, LeagueDescription, build_actor, build_mdp, fragment_layout
from lamarckian.data.pool import LocalPool
from lamarckian.errors import CheckpointError
from lamarckian.mdp import Discrete, Role, Vector
from lamarckian.record.checkpoint import pack, unpack
from lamarckian.record.league import SELF, LeagueFolder, Opponent
from lamarckian.transport.versions import VersionBoard
from tests.actor.policies import linear
from tests.actor.test_ways import PONG, assert_same, collect

LEARNER, LEAGUE, TRACKER = ({"agent": name} for name in ("learner", "league", "tracker"))


class Source:
    """An index that tests may change."""

    def __init__(self, /, **shares: float) -> None:
        self.shares = shares
        self.gone: set[int] = set()
        self.asked = 0

    def opponents(self) -> list[Opponent]:
        self.asked += 1
        return [Opponent(name, share, int(name[1:]) if name[1:].isdigit() else None) for name, share in self.shares.items()]

    def parameters(self, version: int) -> np.ndarray:
        if version in self.gone:
            raise CheckpointError("gone")
        return np.full(1, version, np.float32)


class Guest:
    """What `Seating` needs of a policy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = -1

    def hold(self, version: int, parameters: np.ndarray) -> None:
        self.version = version
        self.parameters = parameters


def seating(source: Source, matches: int = 8, distinct: int = 4, seed: int = 0) -> Seating:
    return Seating(source, ["bot"], Guest, matches, distinct, seed)  # type: ignore[arg-type]


def play(seats: Seating, random: np.random.Generator, turns: int, matches: int = 8) -> Counter:
    """Ends matches at random; how often each opponent was seated. Never are more than `distinct` there at a time."""
    seats.start()
    met: Counter = Counter()
    for match in range(matches):
        met[seats.begin(match)] += 1
    for _ in range(turns):
        seats.settle()
        assert len({*seats.names, *seats.guests}) <= 4
        assert {name for name in seats.names if name.startswith("v")} <= seats.guests.keys()
        for match in np.nonzero(random.random(matches) < 0.2)[0]:
            met[seats.begin(int(match))] += 1
    return met


def test_opponents_are_met_as_often_as_their_shares_say():
    shares = {SELF: 0.5, "v0": 0.1, "v7": 0.2, "bot": 0.15, "run": 0.05}
    met: Counter = Counter()
    for seed in range(20):
        met += play(seating(Source(**shares), seed=seed), np.random.default_rng(seed), 2000)
    total = sum(met.values())
    assert total > 60_000
    for name, share in shares.items():
        # A draw is for about 20 matches, so there are about 3000 of them.
        assert abs(met[name] / total - share) < 4 * np.sqrt(share * (1 - share) / 2500), name


def test_a_slot_draws_anew_when_its_matches_have_been_played_and_nobody_is_left():
    source = Source(v1=1.0)
    seats = seating(source, matches=4, distinct=2)
    seats.start()
    for match in range(4):
        seats.begin(match)
    source.shares = {"v2": 1.0}
    for match in (0, 1, 2):
        seats.begin(match)
        seats.settle()
        assert seats.names == ["v1"] * 4
    seats.begin(3)  # eight matches have begun
    seats.settle()
    assert seats.names == ["v1"] * 4
    assert seats.begin(2) == "v2"
    assert seats.names == ["v1", "v1", "v2", "v1"]
    assert [seats.of(name).tolist() for name in ("v1", "v2", "v3")] == [[0, 1, 3], [2], []]
    assert [matches.tolist() for matches in seats.places()] == [[], [0, 1, 2, 3]]
    source.shares = {"v3": 1.0}
    for _ in range(20):  # as long as a match with v1 goes on, the slot waits
        seats.begin(2)
        seats.settle()
    assert seats.names == ["v1", "v1", "v2", "v1"]
    assert source.asked == 2
    for match in (0, 1, 3):
        seats.begin(match)
    seats.settle()
    assert [seats.begin(match) for match in range(4)] == ["v3"] * 4
    assert seats.guests.keys() == {"v2", "v3"}  # who is gone is let go with the next draw


def test_the_order_of_matches_within_a_tick_changes_nothing():
    found = []
    for order in (1, -1):
        seats, random = seating(Source(v1=0.5, v2=0.5)), np.random.default_rng(0)
        seats.start()
        names = []
        for _ in range(200):
            for match in np.nonzero(random.random(8) < 0.5)[0][::order]:
                seats.begin(int(match))
            seats.settle()
            names.append(list(seats.names))
        found.append(names)
    assert found[0] == found[1]
    assert {"v1", "v2"} < {name for names in found[0] for name in names}


def test_who_has_left_the_league_since_it_was_drawn_is_drawn_again():
    source = Source(v1=0.5, v2=0.5)
    source.gone = {1}
    for seed in range(5):
        seats = seating(source, distinct=2, seed=seed)
        try:
            seats.start()
        except CheckpointError:
            continue  # thrice the same
        assert seats.begin(0) == "v2"
    source.gone = {1, 2}
    with pytest.raises(CheckpointError, match="gone"):
        seating(source).start()


ONE_SIDE = {"left": LEARNER, "right": LEAGUE}
OTHER_SIDE = {"left": LEAGUE, "right": LEARNER}


def league_actor(folder, batched, roles=ONE_SIDE, recurrent=False, swap_sides=True, model_seed=0, other_kind=False):  # type: ignore[no-untyped-def]
    description = Description(dict(PONG), roles, None, {}, matches=7, steps=16, frame_skip=1, batched=batched, seed=3)  # type: ignore[arg-type]
    role = next(iter(build_mdp(description).roles.values()))
    description.model, parameters = linear(role, model_seed, recurrent)
    other, _ = linear(role, 9, quality=other_kind)
    description.league = LeagueDescription(str(folder), ["tracker", "random"], {"a run": other}, distinct=4, swap_sides=swap_sides)
    mdp = build_mdp(description)
    pool = LocalPool(fragment_layout(description, mdp), 2)
    board = VersionBoard.create(parameters.size)
    board.publish(7, parameters)
    return build_actor(description, mdp, pool, board, taped=not batched), pool


@pytest.fixture(params=[False, True], ids=["", "recurrent"])
def recurrent(request):
    return request.param


@pytest.fixture
def folder(tmp_path, recurrent):
    """A league of two past versions, two bots and a run."""
    role = next(iter(build_mdp(Description(dict(PONG), {}, None, {}, 1, 1, 1, True, 0)).roles.values()))  # type: ignore[arg-type]
    found = LeagueFolder(tmp_path / "league")
    for version in (0, 4):
        found.store(version, linear(role, version + 1, recurrent)[1])
    names = {SELF: None, "v0": 0, "v4": 4, "tracker": None, "random": None, "a run": None}
    found.publish([Opponent(name, 1 / 6, version) for name, version in names.items()])
    return tmp_path / "league"


@pytest.mark.parametrize("roles", [ONE_SIDE, OTHER_SIDE], ids=["left", "right"])
@pytest.mark.parametrize("swap_sides", [False, True], ids=["", "swapped"])
def test_same_fragments_by_both_ways(folder, recurrent, roles, swap_sides):
    found = []
    for batched in (True, False):
        player, pool = league_actor(folder, batched, roles, recurrent, swap_sides)
        player.start()
        found.append(collect(player, pool, 60))
        player.close()
    (fragments, results), (others, other_results) = found
    assert_same(fragments, others)
    assert results == other_results
    assert {result.opponent for result in results} >= {SELF, "v0", "v4", "tracker", "random", "a run"}


def test_policies_and_q_networks_sit_at_once(folder, recurrent):
    found = []
    for batched in (True, False):
        player, pool = league_actor(folder, batched, ONE_SIDE, recurrent, other_kind=True)
        player.start()
        found.append(collect(player, pool, 60))
        player.close()
    assert_same(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert {result.opponent for result in found[0][1]} >= {"v0", "v4", "a run"}


def test_each_of_a_crowd_plays_as_it_does_alone():
    """The likeliest action of each guest is its own network's, whichever kind it is of, and whoever sits beside it."""
    role = Role({"x": Vector(4)}, {"move": Discrete(3)})
    guests, random = {}, np.random.default_rng(0)
    for number, name in enumerate(("v1", "q1", "v2", "q2")):
        model, parameters = linear(role, number, quality=name.startswith("q"))
        guests[name] = ActingPolicy(model, role, random, greedy=True)
        guests[name].hold(number, parameters)
    names = ["q2", "v1", "q1", "v2", "v1", "q2", "v2", "q1"]
    crowd = Crowd(SimpleNamespace(changes=1, names=names, guests=guests), random)  # type: ignore[arg-type]
    seen, legal, seats = random.normal(size=(8, 4)).astype(np.float32), {"move": np.ones((8, 3), np.bool_)}, np.arange(8)
    played = crowd.decide({"x": seen}, legal, seats, 8).played["move"]
    alone = [guests[name].decide({"x": seen[m : m + 1]}, {}, np.array([m]), 1).played["move"][0] for m, name in enumerate(names)]
    assert played.tolist() == alone
    assert len(set(alone)) > 1


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "coroutines"])
def test_goes_on_where_it_was_saved(folder, recurrent, batched):
    player, pool = league_actor(folder, batched, recurrent=recurrent)
    player.start()
    expected, results = collect(player, pool, 30)
    player.close()
    for parted in (1, 9, 20):
        player, pool = league_actor(folder, batched, recurrent=recurrent)
        player.start()
        before, earlier = collect(player, pool, parted)
        arrays, form = pack(player.save())
        player.close()
        resumed, pool = league_actor(folder, batched, recurrent=recurrent)
        resumed.load(unpack(arrays, json.loads(json.dumps(form))))
        after, later = collect(resumed, pool, 30 - parted)
        resumed.close()
        assert_same(expected, before + after)
        assert results == earlier + later
    assert len({result.opponent for result in results}) > 3


def test_only_the_learner_is_recorded(folder, recurrent):
    """A column for each match, all by the learner's version, whoever sits opposite."""
    player, pool = league_actor(folder, True, recurrent=recurrent)
    player.start()
    fragments, _ = collect(player, pool, 5)
    player.close()
    for fragment in fragments:
        assert fragment["version"].shape == (16, 7)
        assert (fragment["version"] == 7).all()
