"""The two ways of playing give the same fragments, and both go on exactly where they were saved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lamarckian.actor.actor import Actor
from lamarckian.actor.process import Description, build_actor, build_mdp, fragment_layout
from lamarckian.data.fragment import OUTCOMES
from lamarckian.data.pool import LocalPool
from lamarckian.errors import ContractError, NumericsError
from lamarckian.mdp import Continuous, Discrete, Observation, Observations, Result, Role, Step, Steps, Vector
from lamarckian.record.checkpoint import pack, unpack
from lamarckian.transport.versions import VersionBoard
from tests.actor.policies import linear

TRACKED = {"left": {"agent": "learner"}, "right": {"agent": "tracker"}}
BOTH = {"left": {"agent": "learner"}, "right": {"agent": "learner"}}
MIRRORED = {"left": {"agent": "self"}, "right": {"agent": "learner"}}
LEARNS = {"agent": "learner"}
PONG = {"name": "pong", "rounds": 2, "rally_ticks": 200}


def actor(
    roles: Mapping[str, Any], batched: bool, game: Mapping[str, Any] = PONG, recurrent: bool = False, life: tuple[int, ...] = ()
) -> tuple[Actor, LocalPool]:
    description = Description(dict(game), dict(roles), None, {}, matches=5, steps=16, frame_skip=1, batched=batched, seed=3)  # type: ignore[arg-type]
    mdp = build_mdp(description)
    description.model, parameters = linear(next(iter(mdp.roles.values())), recurrent=recurrent)
    pool = LocalPool(fragment_layout(description, mdp), 2)
    board = VersionBoard.create(parameters.size)
    board.publish(7, parameters)
    return build_actor(description, mdp, pool, board, life=life, taped=not batched), pool


def collect(actor: Actor, pool: LocalPool, count: int) -> tuple[list[dict[str, np.ndarray]], list[Any]]:
    """The next `count` fragments, and the results of the matches that ended in them."""
    fragments: list[dict[str, np.ndarray]] = []
    results: list[Any] = []
    while len(fragments) < count:
        actor.turn()
        while (filled := pool.get(0.0)) is not None:
            fragments.append({name: array.copy() for name, array in filled.views.items()})
            results += filled.meta.results
            pool.release(filled.slot)
    return fragments, results


def assert_same(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]]) -> None:
    assert len(left) == len(right)
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=f"fragment {number}, {name}")


@pytest.mark.parametrize("recurrent", [False, True], ids=["", "recurrent"])
@pytest.mark.parametrize("roles", [TRACKED, BOTH, MIRRORED], ids=["tracked", "both", "mirrored"])
def test_same_fragments_by_both_ways(roles, recurrent):
    found = []
    for batched in (True, False):
        player, pool = actor(roles, batched, recurrent=recurrent)
        player.start()
        found.append(collect(player, pool, 20))
        player.close()
    (fragments, results), (others, other_results) = found
    assert_same(fragments, others)
    assert results == other_results
    assert len(results) > 10
    assert {fragment["terminated"].any() for fragment in fragments} == {True, False}
    assert all(((fragment["outcome"] != 0) == fragment["terminated"]).all() for fragment in fragments)
    ends = Counter(OUTCOMES[code] for fragment in fragments for code in fragment["outcome"].flatten().tolist() if code)
    assert ends == Counter(result.outcome for result in results)
    assert all((fragment["version"] == 7).all() for fragment in fragments)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "coroutines"])
def test_columns_say_whose_they_are_and_lives_do_not_share_names(batched):
    names = []
    for life in ((), (7, 0), (7, 1)):
        player, pool = actor(BOTH, batched, life=life)
        player.start()
        fragments, _ = collect(player, pool, 3)
        player.close()
        assert all(sorted(fragment["lane"].tolist()) == sorted(fragments[0]["lane"].tolist()) for fragment in fragments)
        for one, other in pairwise(fragments):
            where = [other["lane"].tolist().index(lane) for lane in one["lane"].tolist()]
            np.testing.assert_array_equal(one["inputs.vector"][-1], other["inputs.vector"][0, where])
        names += fragments[0]["lane"].tolist()
    assert len(set(names)) == len(names) == 30


@pytest.mark.parametrize("recurrent", [False, True], ids=["", "recurrent"])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "coroutines"])
@pytest.mark.parametrize("roles", [TRACKED, BOTH, MIRRORED], ids=["tracked", "both", "mirrored"])
def test_goes_on_where_it_was_saved(roles, batched, recurrent):
    goes_on(roles, batched, PONG, recurrent)


@pytest.mark.parametrize("roles", [TRACKED, BOTH, MIRRORED], ids=["tracked", "both", "mirrored"])
def test_goes_on_where_it_was_saved_at_different_rates(roles):
    goes_on(roles, False, {**PONG, "period": {"right": 3}, "latency": {"left": 1}})


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "coroutines"])
def test_results_that_are_not_handed_on_yet_are_saved(batched):
    """Matches of a few ticks: some end in every single step."""
    goes_on(TRACKED, batched, {"name": "pong", "rounds": 1, "rally_ticks": 7})


def test_goes_on_where_a_role_was_over_before_the_others():
    goes_on({"first": LEARNS, "last": LEARNS}, False, {"name": "tests.actor.games:Melting"})


def goes_on(roles, batched, game, recurrent=False):
    """Eight fragments in one go are the same as three, and five after saving and loading; for every way to part them."""
    player, pool = actor(roles, batched, game, recurrent)
    player.start()
    expected, results = collect(player, pool, 8)
    player.close()
    for parted in (1, 2, 3, 6):
        player, pool = actor(roles, batched, game, recurrent)
        player.start()
        before, earlier = collect(player, pool, parted)
        arrays, form = pack(player.save())
        player.close()
        resumed, pool = actor(roles, batched, game, recurrent)
        resumed.load(unpack(arrays, json.loads(json.dumps(form))))
        after, later = collect(resumed, pool, 8 - parted)
        resumed.close()
        assert_same(expected, before + after)
        assert results == earlier + later


class Countdown:
    """Counts down from a number that the seed gives; truncated at 1. The value of a state tells which one it was."""

    roles = {"player": Role({"x": Vector(1)}, {"a": Continuous(-1.0, 1.0, (1,))})}

    def start(self, seed: int) -> Countdown.Match:
        return Countdown.Match(3 + seed % 5)

    class Match:
        def __init__(self, left: int) -> None:
            self.left = left
            self.controllers = {"player": self}
            self.role = Countdown.roles["player"]

        async def run(self) -> None: ...

        def close(self) -> None: ...

        def leave(self) -> None: ...

        def observation(self) -> Observation:
            return Observation({"x": np.array([self.left], np.float32)})

        async def reset(self) -> Observation:
            return self.observation()

        async def step(self, action: Mapping[str, Any]) -> Step:
            assert -1.0 <= action["a"][0] <= 1.0
            self.left -= 1
            return Step(self.observation(), (float(self.left),), False, self.left == 1)

        def result(self) -> Result:
            return Result(0.0)


class Late(Countdown):
    """The same, many at once; after each match there is a step that belongs to none."""

    def start_many(self, size: int, seed: int) -> Late:
        self.size, self.left, self.random = size, np.zeros(size, np.int64), np.random.default_rng(seed)
        return self

    def reset(self) -> dict[str, Observations]:
        self.left = self.random.integers(3, 8, self.size)
        return {"player": self.observations()}

    def observations(self) -> Observations:
        return Observations({"x": self.left[:, None].astype(np.float32)})

    def step(self, actions: Any) -> dict[str, Steps]:
        begins = self.left == 1
        self.left = np.where(begins, self.random.integers(3, 8, self.size), self.left - 1)
        truncated = self.left == 1
        return {
            "player": Steps(
                self.observations(),
                np.where(begins, 0.0, self.left)[:, None].astype(np.float32),
                np.zeros(self.size, np.bool_),
                truncated,
                Observations({"x": np.ones((int(truncated.sum()), 1), np.float32)}),
                results=[(int(b), Result(0.0)) for b in np.nonzero(truncated)[0]],
                waiting=truncated,
            )
        }

    def close(self) -> None: ...


COUNTDOWNS = pytest.mark.parametrize("game", ["Countdown", "Late"])


class Faulty:
    """Counts its steps; in match 2 the fourth has a mask that leaves nothing, or a reward that is not finite."""

    roles = {"player": Role({"x": Vector(1)}, {"a": Discrete(2, masked=True), "b": Discrete(2)})}

    def __init__(self, fault: str) -> None:
        self.fault, self.size, self.ticks, self.started = fault, 0, 0, 0

    def start(self, seed: int) -> Faulty.Match:
        self.started += 1
        return Faulty.Match(self.fault if self.started - 1 == 2 else "")

    def start_many(self, size: int, seed: int) -> Faulty:
        self.size = size
        return self

    def reset(self) -> dict[str, Observations]:
        legal = np.ones((self.size, 2), np.bool_)
        legal[2] = self.fault != "mask" or self.ticks < 3
        return {"player": Observations({"x": np.full((self.size, 1), self.ticks, np.float32)}, {"a": legal})}

    def step(self, actions: Any) -> dict[str, Steps]:
        self.ticks += 1
        none, reward = np.zeros(self.size, np.bool_), np.zeros((self.size, 1), np.float32)
        reward[2] = np.inf if self.fault == "reward" and self.ticks == 4 else 0.0
        return {"player": Steps(self.reset()["player"], reward, none, none)}

    def close(self) -> None: ...

    class Match(Countdown.Match):
        def __init__(self, fault: str) -> None:
            super().__init__(100)
            self.role = Faulty.roles["player"]
            self.fault = fault

        def observation(self) -> Observation:
            legal = np.full(2, self.fault != "mask" or self.left > 97)
            return Observation({"x": np.array([self.left], np.float32)}, {"a": legal})

        async def step(self, action: Mapping[str, Any]) -> Step:
            self.left -= 1
            reward = np.inf if self.fault == "reward" and self.left == 96 else 0.0
            return Step(self.observation(), (reward,), False, False)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "coroutines"])
@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ("mask", ContractError, r"the mask of head 'a' leaves no legal action; .* \(role 'player', match 2, step 4\)"),
        ("reward", NumericsError, r"a reward is not finite: \[inf\] \(role 'player', match 2, step 4\)"),
    ],
    ids=["mask", "reward"],
)
def test_a_faulty_step_says_where_it_is(fault, error, says, batched):
    player, pool = actor({"player": LEARNS}, batched, {"name": "tests.actor.test_ways:Faulty", "fault": fault})
    player.start()
    with pytest.raises(error, match=says):
        collect(player, pool, 2)
    player.close()


@COUNTDOWNS
def test_fragments_hold_what_was_remembered(game):
    """Row by row the state is what the rules of the recurrent policy make of the inputs, from 0 in each match."""
    roles = {"player": {"agent": "learner"}}
    player, pool = actor(roles, game == "Late", {"name": f"tests.actor.test_ways:{game}"}, recurrent=True)
    player.start()
    fragments, _ = collect(player, pool, 6)
    player.close()
    worth = np.float32(_value_of_one())
    opened_anew = 0
    for fragment in fragments:
        left, state = fragment["inputs.x"][..., 0], fragment["state.sum"][:, 0].copy()
        for t, ended in enumerate(fragment["truncated"]):
            state = state / 2 + left[t]
            np.testing.assert_allclose(fragment["value"][t, :, 0], worth * state, rtol=1e-5)
            np.testing.assert_allclose(fragment["bootstrap"][t, :, 0], np.where(ended, worth * (state / 2 + 1), 0.0), rtol=1e-5)
            state = np.where(ended, 0.0, state)
        np.testing.assert_allclose(fragment["value"][-1, :, 0], worth * (state / 2 + left[-1]), rtol=1e-5)
        opened_anew += int((fragment["state.sum"] == 0).sum())
    assert 0 < opened_anew < 6 * 5


@COUNTDOWNS
def test_fragments_hold_what_happened(game):
    """Every row is checked against the rules of the countdown, truncations and the rows behind them included."""
    roles = {"player": {"agent": "learner"}}
    player, pool = actor(roles, game == "Late", {"name": f"tests.actor.test_ways:{game}"})
    player.start()
    fragments, results = collect(player, pool, 6)
    player.close()
    worth = np.float32(_value_of_one())
    for fragment in fragments:
        left = fragment["inputs.x"][..., 0]
        np.testing.assert_array_equal(fragment["reward"][..., 0], left[:-1] - 1)
        np.testing.assert_array_equal(fragment["truncated"], left[:-1] == 2)
        assert not fragment["terminated"].any()
        ended = fragment["truncated"]
        np.testing.assert_array_equal(left[1:][~ended], left[:-1][~ended] - 1)
        assert (left[1:][ended] >= 3).all()
        np.testing.assert_allclose(fragment["value"][..., 0], worth * left, rtol=1e-5)
        np.testing.assert_allclose(fragment["bootstrap"][..., 0], np.where(ended, worth, 0.0), rtol=1e-5)
        assert fragment["learn"].all()
    assert results
    assert all(result.returns == [result.length * (result.length + 1) / 2] for result in results)


def _value_of_one() -> float:
    from lamarckian.actor.inference import Inference

    model, _ = linear(Countdown.roles["player"])
    return float(Inference(model)({"x": np.ones((1, 1), np.float32)})["value"][0, 0])
