"""The league: who is in it, what is met, what lies on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from lamarckian.data.ledger import POINTS, MatchResult
from lamarckian.errors import CheckpointError, GameError, MisuseError, RecipeError
from lamarckian.evaluate.league import League
from lamarckian.evaluate.samplers import Latest
from lamarckian.evaluate.training import train
from lamarckian.recipe import resolve, schema
from lamarckian.recipe.league import League as Settings
from lamarckian.record.league import SELF, LeagueFolder
from lamarckian.record.progress import Progress
from lamarckian.record.run import create
from tests.evaluate.test_training import saved

ROLES = {"left": {"agent": "learner"}, "right": {"agent": "league"}}


def settings(**changes) -> Settings:  # type: ignore[no-untyped-def]
    roles = {"left": {"agent": "learner"}, "right": {"agent": "league"}}
    plain = {"opponents": {"name": "pfsp", "latest": 0.5}, "add": {"name": "updates", "every": 2}, **changes}
    found = resolve({"game": {"name": "pong"}, "roles": roles, "league": plain}).league
    assert found is not None
    return found


def result(opponent: str, outcome: str | None = "win") -> MatchResult:
    return MatchResult("left", 1.0, outcome, 10, [1.0], {}, opponent, POINTS.get(outcome))  # type: ignore[arg-type]


def flat(value: float) -> np.ndarray:
    return np.full(3, value, np.float32)


def opened(chosen: Settings, folder: Path, version: int = 0, state: Mapping[str, Any] | None = None) -> League:
    """A league whose version v has the parameters v, and 100 v steps behind it."""
    found: list[League] = []
    found.append(League(chosen, folder, 100 * version, version, lambda: flat(found[0].version if found else version), state))
    return found[0]


def grow(league: League, versions: range, results: list[MatchResult] | None = None) -> None:
    for version in versions:
        league.update(100 * version, version, results or [])


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def index(folder: Path) -> dict[str, float]:
    return {opponent.name: opponent.share for opponent in LeagueFolder(folder).opponents()}


def test_versions_are_taken_in_and_met_by_their_shares(tmp_path):
    league = opened(settings(bots={"tracker": 0.1, "random": 0.3}), tmp_path)
    assert index(tmp_path) == pytest.approx({SELF: 0.3, "v0": 0.3, "tracker": 0.1, "random": 0.3})
    grow(league, range(1, 6))
    assert files(tmp_path) == {"index.json", "v0.safetensors", "v2.safetensors", "v4.safetensors"}
    np.testing.assert_array_equal(LeagueFolder(tmp_path).parameters(4), flat(4))
    assert index(tmp_path) == pytest.approx({SELF: 0.3, "v0": 0.1, "v2": 0.1, "v4": 0.1, "tracker": 0.1, "random": 0.3})
    league.update(600, 6, [result("v0")] * 30 + [result("v2", "loss")] * 10 + [result("tracker", "draw"), result(SELF, "loss")])
    shares = index(tmp_path)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["v0"] < 0.001 < shares["v4"] == shares["v6"] < shares["v2"]
    line = league.metrics()
    assert line["league/members"] == 4
    assert line["league/entropy"] == pytest.approx(-sum(share * np.log(share) for share in shares.values()))
    assert (line["league/score/first"], line["league/score/tracker"]) == (1.0, 0.5)
    assert "league/score/newest" not in line
    assert line["league/score/mean"] == pytest.approx((1.0 + 0.0 + 0.5) / 3)


def test_of_more_than_size_the_oldest_goes_but_never_the_first(tmp_path):
    league = opened(settings(size=3), tmp_path)
    grow(league, range(1, 12))
    assert index(tmp_path).keys() == {SELF, "v0", "v8", "v10"}
    league.update(1200, 12, [result("v6")])  # it has left since it sat down
    assert {line["name"] for line in league.standings()["members"]} == {"v0", "v10", "v12"}


def test_ratings_do_not_jump_when_a_version_is_dropped(tmp_path):
    league = opened(settings(size=3), tmp_path)
    for version in range(1, 40, 2):
        names = [member["name"] for member in league.standings()["members"]]
        results = [result(name) for name in names[-2:] for _ in range(9)] + [result(name, "loss") for name in names[-2:] for _ in range(4)]
        league.update(100 * version, version, results)
        before = {member["name"]: member["elo"] for member in league.standings()["members"]}
        rating = league.rating()
        grow(league, range(version + 1, version + 2))  # is taken in, and the oldest goes
        after = {member["name"]: member["elo"] for member in league.standings()["members"]}
        assert after == pytest.approx({name: before.get(name, rating) for name in after}, abs=1e-4)
        assert len(after) <= 3 and league.rating() == pytest.approx(rating, abs=1e-4)
    assert rating > 1500 + 20 * 60


def test_a_league_made_smaller_lets_the_oldest_go_when_it_goes_on(tmp_path):
    league = opened(settings(size=6), tmp_path)
    grow(league, range(1, 11))
    assert index(tmp_path).keys() == {SELF, *(f"v{version}" for version in (0, 2, 4, 6, 8, 10))}
    resumed = opened(settings(size=3), tmp_path, 10, league.save())
    resumed.tidy([1000])
    grow(resumed, range(11, 13))
    assert index(tmp_path).keys() == {SELF, "v0", "v10", "v12"}
    resumed.tidy([1000])  # the checkpoint that it went on from names all of them still
    assert files(tmp_path) == {"index.json", *(f"v{version}.safetensors" for version in (0, 2, 4, 6, 8, 10, 12))}
    resumed.tidy([1200])
    assert files(tmp_path) == {"index.json", *(f"v{version}.safetensors" for version in (0, 10, 12))}


def test_parameters_are_asked_for_when_a_version_is_taken_in_and_the_sampler_once_an_update(tmp_path, monkeypatch):
    asked = {"parameters": 0, "shares": 0}

    def parameters() -> np.ndarray:
        asked["parameters"] += 1
        return flat(0)

    def shares(self, pool):  # type: ignore[no-untyped-def]
        asked["shares"] += 1
        return 1.0, np.zeros(len(pool.versions))

    monkeypatch.setattr(Latest, "shares", shares)
    league = League(settings(opponents={"name": "latest"}, add={"name": "updates", "every": 5}), tmp_path, 0, 0, parameters)
    for version in range(1, 11):
        league.update(100 * version, version, [])
        league.metrics()
        league.standings()
    assert asked == {"parameters": 3, "shares": 11}


def test_parameters_stay_as_long_as_a_checkpoint_names_them(tmp_path):
    league = opened(settings(size=3), tmp_path)
    grow(league, range(1, 7))  # v2 went at 600
    league.tidy([500, 600])
    assert "v2.safetensors" in files(tmp_path)
    early = json.loads(json.dumps(league.save()))
    grow(league, range(7, 9))  # v4 went at 800
    latest = json.loads(json.dumps(league.save()))
    league.tidy([600, 800])
    opened(settings(size=3), tmp_path, 8, latest)  # a checkpoint is written before its folder is tidied up
    assert files(tmp_path) == {"index.json", *(f"v{version}.safetensors" for version in (0, 4, 6, 8))}
    opened(settings(size=3), tmp_path, 6, {**early, "dropped": []})
    assert files(tmp_path) == {"index.json", *(f"v{version}.safetensors" for version in (0, 4, 6))}  # v8 was taken in after that checkpoint
    (tmp_path / "v4.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks v4.safetensors, past versions that the checkpoint names"):
        opened(settings(size=3), tmp_path, 6, {**early, "dropped": []})


@pytest.mark.parametrize("sampler", [{"name": "pfsp"}, {"name": "quality"}, {"name": "cycle", "updates": 3}, {"name": "uniform"}], ids=str)
def test_a_league_goes_on_exactly_where_it_was_saved(sampler, tmp_path):
    def play(league: League, versions: range) -> None:
        for version in versions:
            random = np.random.default_rng(version)
            names = list(index(league._folder._folder))
            results = [result(str(random.choice(names)), str(random.choice(["win", "draw", "loss"]))) for _ in range(9)]
            league.update(100 * version, version, results)

    chosen = settings(opponents=sampler, size=4, bots={"tracker": 0.2})
    whole = opened(chosen, tmp_path / "whole")
    half = opened(chosen, tmp_path / "half")
    play(whole, range(1, 20))
    play(half, range(1, 10))
    state = json.loads(json.dumps(half.save()))
    play(half, range(10, 13))
    resumed = opened(chosen, tmp_path / "half", 9, state)
    assert files(tmp_path / "half") == {"index.json", *(f"v{version}.safetensors" for version in (0, 2, 4, 6, 8))}
    play(resumed, range(10, 20))
    assert resumed.save() == whole.save()
    assert resumed.metrics() == whole.metrics()
    assert resumed.standings() == whole.standings()
    assert index(tmp_path / "half") == index(tmp_path / "whole")


def test_another_sampler_begins_anew_when_a_league_goes_on(tmp_path):
    league = opened(settings(opponents={"name": "quality"}), tmp_path)
    grow(league, range(1, 5), [result("v0")])
    resumed = opened(settings(opponents={"name": "cycle"}, bots={"stay": 0.5}), tmp_path, 4, league.save())
    assert resumed.shares() == {SELF: 0.0, "v0": 0.5, "v2": 0.0, "v4": 0.0, "stay": 0.5}


def test_a_game_that_does_not_say_who_won_is_refused(tmp_path):
    league = opened(settings(), tmp_path)
    league.update(100, 1, [result(SELF, None)])
    with pytest.raises(GameError, match="no outcome"):
        league.update(200, 2, [result("v0", None)])


def test_a_match_counts_once_however_many_roles_learn(tmp_path):
    league = opened(settings(opponents={"name": "quality"}, add={"name": "steps", "every": 10**6}), tmp_path)
    first, last = result("v0"), MatchResult("up", 0.0, "loss", 10, [1.0], {}, "v0", 0.5)
    league.update(100, 1, [structs.replace(first, points=None), last] * 3)
    assert league.standings()["members"][0]["matches"] == 3
    assert league.metrics()["league/score/first"] == 0.5
    assert league.save()["sampler"]["qualities"] == [0.0]  # nobody was beaten


def test_samplers_and_rules_of_ones_own(tmp_path):
    own = {"name": "tests.evaluate.own:First", "share": 0.25}
    league = opened(settings(opponents=own, add={"name": "tests.evaluate.own:Never"}), tmp_path)
    grow(league, range(1, 9))
    assert index(tmp_path) == {SELF: 0.75, "v0": 0.25}
    with pytest.raises(MisuseError, match=r"tests.evaluate.own:First must give a share .* the 1 past ones, .*; it gave \[-0.5, 1.5\]"):
        opened(settings(opponents={**own, "share": 1.5}), tmp_path)


def test_a_damaged_version_is_named(tmp_path):
    opened(settings(), tmp_path)
    path = tmp_path / "v0.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match=r"cannot read .*v0.safetensors, a past version of the league"):
        LeagueFolder(tmp_path).parameters(0)


@pytest.mark.parametrize("swap_sides", [True, False])
def test_sides_of_more_than_two_roles_are_not_swapped(swap_sides):
    roles = {"up": {"agent": "learner"}, "down": {"agent": "learner"}, "other": {"agent": "league"}}
    document = {"game": {"name": "tests.evaluate.games:Three"}, "roles": roles, "actor": {"matches": 8, "fragment": 16}}
    document |= {"learner": {"batch": 256}, "league": {"swap_sides": swap_sides}}
    if swap_sides:
        with pytest.raises(RecipeError, match=r"given true; .* this one has 3: up, down, other; write league.swap_sides=false"):
            resolve(document)
    else:
        assert resolve(document).league is not None


def test_matches_of_three_roles_are_counted_once(tmp_path):
    roles = {"up": {"agent": "learner"}, "down": {"agent": "learner"}, "other": {"agent": "league"}}
    recipe = resolve(
        {
            "game": {"name": "tests.evaluate.games:Three"},
            "roles": roles,
            "network": {"hidden": [8]},
            "actor": {"matches": 8, "fragment": 16},
            "learner": {"batch": 256, "threads": 1},
            "league": {"swap_sides": False, "opponents": {"name": "uniform", "delta": 0}, "decay": 1.0},
            "mode": "serial",
            "stop": {"updates": 6},
        }
    )
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    state = saved(tmp_path / "run").state
    [points], [matches] = state["league"]["payoffs"]["row"]
    # Half of the matches are against v0, and each has a result for either learner; "up" wins and "down" loses all of theirs.
    assert 0.1 * state["matches"] < matches < 0.4 * state["matches"]
    assert points == matches / 2


@pytest.mark.parametrize(
    ("roles", "league", "says"),
    [
        ({**ROLES, "right": {"agent": "tracker"}}, {}, "league: given, but nobody plays it"),
        (ROLES, {"bots": {"trakcer": 0.1}}, "league.bots.trakcer: given 'trakcer'; nearest: tracker"),
        (ROLES, {"bots": {"tracker": 1.5}}, "league.bots.tracker: given 1.5; allowed: less than or equal to 1"),
        (ROLES, {"bots": {"tracker": 0.7, "stay": 0.4}}, r"shares that add up to 1.1; allowed: 1 in all"),
        (ROLES, {"runs": {"nowhere": 0.4}}, "league.runs: there is no run at nowhere"),
        (ROLES, {"opponents": {"name": "uniform", "gamma": 1}}, "league.opponents.gamma: unknown key"),
        (ROLES, {"add": {"name": "never"}}, "league.add.name: given 'never'; .*known league.adds: steps, updates, score"),
        (ROLES, {"distinct": 1}, "league.distinct: given 1; allowed: greater than or equal to 2"),
        (ROLES, {"size": 1}, "league.size: given 1"),
    ],
    ids=str,
)
def test_faults_in_the_section_are_named(roles, league, says):
    with pytest.raises(RecipeError, match=says):
        resolve({"game": {"name": "pong"}, "roles": roles, "league": league})


def test_the_section_is_complete_and_in_the_schema():
    recipe = resolve({"game": {"name": "pong"}, "roles": ROLES})
    assert recipe.league is not None
    assert recipe.league.opponents.settings == {"weighting": "hard", "power": 2.0, "latest": 0.35}
    assert recipe.league.add.settings == {"every": 20}
    assert resolve({"game": {"name": "pong"}, "roles": {**ROLES, "right": {"agent": "self"}}}).league is None
    forms = schema()["$defs"]["League"]["properties"]["opponents"]["oneOf"]
    assert [form["title"] for form in forms] == ["latest", "uniform", "quality", "pfsp", "cycle", "module:Class"]
