"""The league: who is in it, what is met, what lies on disk; whole trainings that repeat, resume, and are looked at from outside."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from lamarckian.actor.inference import Inference
from lamarckian.data.ledger import POINTS, MatchResult
from lamarckian.errors import CheckpointError, GameError, MisuseError, RecipeError
from lamarckian.evaluate.league import League
from lamarckian.evaluate.matches import evaluate, film
from lamarckian.evaluate.plan import load_member, load_policy, members, plan
from lamarckian.evaluate.plan import trained as trained_model
from lamarckian.evaluate.samplers import Latest
from lamarckian.evaluate.tournament import tournament
from lamarckian.evaluate.training import train
from lamarckian.games.pong import Pong
from lamarckian.recipe import load, resolve, schema
from lamarckian.recipe.league import League as Settings
from lamarckian.record.league import SELF, LeagueFolder
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run
from lamarckian.record.run import resume as reopen
from tests.commands import start, wait_for
from tests.evaluate.test_training import SERIAL, SMALL, assert_same, metrics, saved

ROOT = Path(__file__).parents[2]
SHORT = ["game.rounds=1", "game.rally_ticks=60", "league.add={name: updates, every: 3}", "algorithm.final_entropy_weight=null"]


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


def train_here(folder: Path, *more: str) -> Path:
    recipe = load("pong/league", [*SERIAL, *SHORT, *more])
    with create(folder, recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    return folder


@pytest.mark.parametrize("way", ["batched", "coroutines"])
def test_serial_runs_repeat_and_resume_bit_for_bit(way, tmp_path):
    more = [f"actor.way={way}", "league.bots={tracker: 0.2, random: 0.1}", "league.size=4", "league.opponents={name: quality, latest: 0.3}"]
    train_here(tmp_path / "whole", *more, "stop={updates: 20}")
    train_here(tmp_path / "again", *more, "stop={updates: 20}")
    train_here(tmp_path / "half", *more, "stop={updates: 11}")
    run, recipe = reopen(tmp_path / "half", ["stop.updates=20"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    whole = saved(tmp_path / "whole")
    assert_same(whole, saved(tmp_path / "again"))
    assert_same(whole, saved(tmp_path / "half"))
    assert whole.state["league"] == saved(tmp_path / "again").state["league"] == saved(tmp_path / "half").state["league"]
    assert [version for version, _ in whole.state["league"]["versions"]] == [0, 12, 15, 18]
    assert np.array(whole.state["league"]["payoffs"]["counts"]).sum() > 0
    for name in files(tmp_path / "whole" / "league"):
        assert (tmp_path / "whole" / "league" / name).read_bytes() == (tmp_path / "half" / "league" / name).read_bytes(), name
    standings = [json.loads((tmp_path / name / "league.json").read_text()) for name in ("whole", "half")]
    assert standings[0] == standings[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_here(tmp_path_factory.mktemp("runs") / "small", "stop={updates: 8}", "record.every_s=0.001", "league.bots={stay: 0.2}")


def test_metrics_and_standings_tell_of_the_league(trained):
    line = metrics(trained)[-1]
    assert line["league/members"] == 3
    assert line["league/rating"] > 0
    assert 0 < line["league/entropy"] < np.log(6)
    standings = json.loads((trained / "league.json").read_text())
    assert [member["name"] for member in standings["members"]][-3:] == ["v0", "v3", "v6"]
    assert standings["version"] == 8
    assert saved(trained).score == standings["present"]["elo"]


def test_it_is_evaluated_against_the_youngest_past_version_or_whom_one_names(trained):
    run = open_run(trained)
    assert evaluate(run, None, 4, "last", False, 0).against == "v6 of its league"
    assert evaluate(run, "stay", 4, "last", False, 0).against == "stay"
    assert next(film(run, None, "last", 0)).ndim == 3
    with pytest.raises(RecipeError, match="--against: 'league' is whom the run plays where --against is left out"):
        evaluate(run, "league", 4, "last", False, 0)


def test_past_versions_play_a_tournament(trained, tmp_path):
    standings = tournament([trained], ["stay"], matches=2, checkpoints="league")
    assert sorted(standings.names) == sorted([*(f"{trained}@v{version}" for version in (0, 3, 6)), "stay"])
    recipe = load("pong/ppo", [*SERIAL, *SHORT[:2], "stop={updates: 1}"])
    with create(tmp_path / "alone", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    with pytest.raises(MisuseError, match="has no league"):
        members(str(tmp_path / "alone"))


def test_trained_runs_are_met_too_unless_their_game_is_another(trained, tmp_path):
    runs = f"league.runs={{{trained}: 0.4}}"
    train_here(tmp_path / "run", runs, "stop={updates: 6}")
    assert index(tmp_path / "run" / "league")[str(trained)] == 0.4
    assert str(trained) in saved(tmp_path / "run").state["league"]["payoffs"]["names"]
    with pytest.raises(
        RecipeError, match=r"league.runs: .*small cannot play here, for it was trained in another game: game.rounds is 2 in this"
    ):
        train_here(tmp_path / "other", runs, "game.rounds=2")
    alone = [f"roles={{left: {{agent: learner}}, right: {{agent: run, path: {trained}}}}}", "league=null", "game.rounds=2"]
    with pytest.raises(RecipeError, match=r"roles.right.path: .*small cannot play here"):
        plan(load("pong/league", alone))


def best(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "checkpoints" / "best.json").read_text())


def test_a_run_without_a_league_may_get_one(tmp_path):
    recipe = load("pong/ppo", [*SERIAL, *SHORT[:2], "stop={updates: 2}", "mode=parallel", "actor.count=1"])
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    run, recipe = reopen(tmp_path / "run", ["roles.right={agent: league}", "league.add.every=3", "stop.updates=6"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    assert [version for version, _ in saved(tmp_path / "run").state["league"]["versions"]] == [2, 5]
    rated = best(tmp_path / "run")
    assert rated["measure"] == "rating from v2" and rated["score"] > 100
    run, recipe = reopen(tmp_path / "run", ["roles.right={agent: tracker}", "league=null", "stop.updates=8", "record.score_window=1"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    played = best(tmp_path / "run")
    assert played["measure"] == "score" and played["score"] <= 1 and played["steps"] > rated["steps"]


def test_opponents_explore_as_little_as_dqn_will_in_the_end(tmp_path):
    recipe = load(
        "pong/dqn",
        [
            *SHORT[:3], "roles.right={agent: league}", "network={name: q, hidden: [16]}", "actor={matches: 8, fragment: 16}",
            "learner={batch: 256, threads: 1}", "mode=serial", "stop={updates: 4}",
            "algorithm={name: dqn, replay_size: 8MB, learning_starts: 1, epsilon_steps: 100_000, final_epsilon: 0.25}",
        ],
    )  # fmt: skip
    with create(tmp_path / "run", recipe) as run:
        train(recipe, run, Progress("", recipe.stop, quiet=True))
    folder, role = str(tmp_path / "run"), Pong().roles["left"]
    newest = load_policy(folder, role, "last")[0]
    assert float(newest.epsilon) > 0.9
    assert [float(load_member(folder, role, version).epsilon) for version in (0, 3)] == [0.25, 0.25]
    infer = Inference(trained_model(folder, role))  # as the opponent of another run
    assert infer({"vector": np.zeros((2, role.inputs["vector"].size), np.float32)})["head.move.epsilon"].tolist() == [[0.25], [0.25]]


def test_a_killed_run_goes_on_with_the_league_of_its_checkpoint(tmp_path):
    """The index names files that are there at any time, and what came after the checkpoint is gone when the run goes on."""
    folder = tmp_path / "run"
    more = [*SMALL, *SHORT, "league.add.every=1", "learner.threads=1", "actor.count=1", "checkpoint.every_s=1", "stop={}", "league.size=5"]
    process = start("train", "pong/league", *more, "--run", folder, "--no-video", cwd=ROOT)
    try:
        wait_for(lambda: list(folder.glob("checkpoints/[0-9]*")), 60, "checkpoint")
        first = max(int(path.name) for path in folder.glob("checkpoints/[0-9]*"))
        wait_for(lambda: len(list(folder.glob("league/v*"))) > 6 or max(map(int, _steps(folder))) > first, 60, "more versions")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    named = {f"v{opponent.version}.safetensors" for opponent in LeagueFolder(folder / "league").opponents() if opponent.version is not None}
    assert named <= files(folder / "league")
    state = saved(folder).state["league"]
    run, recipe = reopen(folder, [f"stop.updates={saved(folder).version + 1}", "league.add.every=1000"])
    with run:
        train(recipe, run, Progress("", recipe.stop, quiet=True), resume=True)
    assert saved(folder).state["league"]["versions"] == state["versions"]
    kept = {f"v{version}.safetensors" for version, _ in state["versions"]}
    dropped = {f"v{version}.safetensors" for version, *_ in state["dropped"]}
    assert {"index.json", *kept} <= files(folder / "league") <= {"index.json", *kept, *dropped}


def _steps(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("checkpoints/[0-9]*")]


ROLES = {"left": {"agent": "learner"}, "right": {"agent": "league"}}


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
