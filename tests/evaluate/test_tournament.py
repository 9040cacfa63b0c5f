from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from examples.duel import AIM, FIRE, Duel, DuelRules
from lamarckian import plugins
from lamarckian.cli import app
from lamarckian.errors import CheckpointError, GameError, MisuseError, RunFolderError
from lamarckian.evaluate.matches import film
from lamarckian.evaluate.plan import export, load_policy
from lamarckian.evaluate.recording import record
from lamarckian.evaluate.tournament import Contestant, hold, tournament
from lamarckian.evaluate.training import train
from lamarckian.mdp import AsynchronousMatch, Result, wrappers
from lamarckian.mdp.wrappers import Repeated
from lamarckian.recipe import load, resolve
from lamarckian.record.progress import Progress
from lamarckian.record.run import create, open_run

PONG = {"name": "pong", "rounds": 3, "rally_ticks": 200}
SMALL = [
    "game.rounds=3",
    "game.rally_ticks=200",
    "network.hidden=[8]",
    "algorithm.minibatches=2",
    "actor.matches=8",
    "actor.fragment=16",
    "learner.batch=256",
    "learner.threads=1",
    "mode=serial",
    "checkpoint={every_s: null, every_updates: 2, keep: 9}",
    "stop={updates: 4}",
]


def rules(game, **more):
    return resolve({"game": game, "roles": {"left": {"agent": "learner"}, "right": {"agent": "self"}}, **more})


def bots(*names):
    return [Contestant(name) for name in names]


def ranked(standings):
    return [player.name for player in standings.players]


def model(folder):
    game = plugins.build("game", rules(PONG).game)
    return export(load_policy(str(folder), game.roles["left"])[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run of four updates, with checkpoints after two and four."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    resolved = load("pong/ppo", SMALL)
    with create(folder, resolved) as run:
        train(resolved, run, Progress("", resolved.stop, quiet=True))
    return folder


@pytest.fixture(scope="module")
def four():
    return hold(rules(PONG), bots("stay", "random", "tracker", "interceptor"), matches=6)


def test_bots_are_ranked_by_who_beats_whom(four):
    names = ranked(four)
    assert names[:2] == ["interceptor", "tracker"]
    assert [player.rank for player in four.players] == [1, 2, 3, 4]
    elo = [player.elo for player in four.players]
    assert elo == sorted(elo, reverse=True) and np.mean(elo) == pytest.approx(1500)
    assert four.payoff[0][1] > 0.5 and min(four.payoff[1][2:]) > 0.5
    best = four.players[0]
    assert (best.nash_weight, best.nash_rating) == (1.0, 0.0)
    assert all(player.nash_rating < 0 and player.elo_interval > 0 for player in four.players[1:])


def test_scores_are_shares_of_the_points_of_all_matches(four):
    payoff = np.array(four.payoff, float)
    assert np.nansum(payoff, axis=1) / 3 == pytest.approx([player.score for player in four.players])
    off = ~np.eye(4, dtype=bool)
    assert (payoff + payoff.T)[off].tolist() == [1.0] * 12
    assert (payoff[off] * 12 % 1 == 0).all()


def test_a_seed_repeats_a_tournament_and_others_play_other_matches(four):
    again = hold(rules(PONG), bots("interceptor", "random", "tracker", "stay"), matches=6)
    assert again == four
    assert len({hold(rules(PONG), bots("random", "stay"), matches=10, seed=seed).players[0].elo for seed in range(4)}) > 1


def test_a_trained_agent_joins_in(trained):
    standings = tournament([trained], ["tracker", "stay"], matches=4)
    assert sorted(ranked(standings)) == sorted([str(trained), "tracker", "stay"])
    assert ranked(standings)[0] == "tracker"


def test_it_does_not_matter_who_of_a_pair_comes_first(trained):
    before, after = (hold(rules(PONG), [Contestant(name, model(trained)), *bots("random")], matches=6) for name in ("a", "z"))
    assert {player.name: player.score for player in before.players}["a"] == {player.name: player.score for player in after.players}["z"]
    assert hold(rules(PONG), [*bots("random"), Contestant("a", model(trained))], matches=6) == before


def test_an_agent_is_as_good_as_itself_since_sides_and_seeds_are_the_same(trained):
    even = hold(rules(PONG), [Contestant(name, model(trained)) for name in ("one", "two")], matches=6)
    assert [player.score for player in even.players] == [0.5, 0.5]
    assert [player.elo for player in even.players] == [1500, 1500]
    assert [player.nash_weight for player in even.players] == [0.5, 0.5]


def test_the_batched_way_and_coroutines_play_the_same_matches(trained):
    players = [Contestant("one", model(trained)), *bots("stay", "random")]
    batched, coroutines = (hold(rules(PONG, actor={"way": way}), players, matches=4) for way in ("batched", "coroutines"))
    assert batched == coroutines


def test_all_checkpoints_of_a_run_play_each_other(trained):
    standings = tournament([trained], [], matches=2, checkpoints="all")
    assert sorted(ranked(standings)) == [f"{trained}@1024", f"{trained}@512"]


def test_the_command_prints_a_table_and_leaves_files(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(trained.parent)
    arguments = ["tournament", "small", "--bots", "stay, tracker", "--matches", "2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.stdout.splitlines()[0].split() == ["rank", "name", "score", "Elo", "Nash"]
    assert done.stdout.splitlines()[1].split()[:2] == ["1", "tracker"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["payoff.csv", "payoff.png", "tournament.json"]
    asked = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    document = json.loads(asked.stdout)
    assert document == json.loads((tmp_path / "out" / "tournament.json").read_text())
    assert {player["name"] for player in document["players"]} == {"small", "stay", "tracker"}


@pytest.mark.parametrize(
    ("players", "matches", "says"),
    [
        (["stay"], 2, "at least two players; given: stay; .*tracker, interceptor, random, stay"),
        ([], 2, "given: none"),
        (["stay", "tracker", "stay"], 2, "name of its own; more than once there: stay"),
        (["stay", "trakcer"], 2, "'trakcer'; nearest: tracker"),
        (["stay", "tracker"], 3, "--matches: given 3"),
        (["stay", "tracker"], 0, "--matches: given 0"),
    ],
)
def test_who_cannot_play_a_tournament_is_refused(players, matches, says):
    with pytest.raises(MisuseError, match=says):
        hold(rules(PONG), bots(*players), matches)


def test_a_run_given_twice_is_refused(trained):
    with pytest.raises(MisuseError, match="more than once there"):
        tournament([trained, f"{trained}/"], [])


def test_checkpoints_are_last_best_or_all(trained, tmp_path):
    with pytest.raises(MisuseError, match="--checkpoints: given 'worst'; allowed: last, best, all, league"):
        tournament([trained], ["stay"], checkpoints="worst")
    with pytest.raises(RunFolderError, match="is not there"):
        tournament([tmp_path / "none"], ["stay"])
    with pytest.raises(MisuseError, match="at least one run"):
        tournament([], ["stay", "tracker"])


def test_a_run_without_a_checkpoint_cannot_play(tmp_path):
    create(tmp_path / "new", rules(PONG)).close()
    for checkpoints in ("best", "all"):
        with pytest.raises(CheckpointError, match="no checkpoint yet"):
            tournament([tmp_path / "new"], ["stay"], checkpoints=checkpoints)


def test_runs_of_different_games_do_not_meet(trained, tmp_path):
    for name, game in {"long": {**PONG, "rounds": 9}, "image": {**PONG, "observation": "image"}}.items():
        create(tmp_path / name, rules(game)).close()
    create(tmp_path / "skips", rules(PONG, actor={"frame_skip": 4})).close()
    for name, says in {
        "long": "game.rounds is 3 in .*, 9 in",
        "image": "game.observation is vector",
        "skips": "actor.frame_skip is 1 in .*, 4 in",
    }.items():
        with pytest.raises(MisuseError, match=says):
            tournament([trained, tmp_path / name], [])


def test_a_game_for_one_has_no_tournament():
    solo = resolve({"game": {"name": "tests.evaluate.games:Faulty"}})
    with pytest.raises(GameError, match=r"exactly two roles; tests.evaluate.games:Faulty has 1: player"):
        hold(solo, bots("a", "b"))


class Shooter:
    """Fires when it has aimed long enough."""

    def start(self, matches, seeds):
        pass

    def act(self, observations):
        return {"move": np.where(observations.inputs["view"][:, 0] == 1, FIRE, AIM)}


class Idler(Shooter):
    def act(self, observations):
        return {"move": np.full(len(observations.inputs["view"]), AIM)}


class Shootout(Duel):
    """A game that does not step many matches in one call."""

    bots: ClassVar = {"shooter": Shooter, "idler": Idler}


class Untold(Shootout):
    def start(self, seed):
        class Silent(DuelRules):
            def result(self, role):
                return Result(super().result(role).score)

        return AsynchronousMatch(Silent(self.lives, self.ticks, seed), self.roles)


@pytest.mark.parametrize("frame_skip", [1, 2])
def test_bots_of_any_game_meet(frame_skip):
    shootout = rules({"name": "tests.evaluate.test_tournament:Shootout"}, actor={"frame_skip": frame_skip})
    assert ranked(hold(shootout, bots("idler", "shooter"), matches=2)) == ["shooter", "idler"]


def test_a_game_that_does_not_say_who_won_is_refused():
    with pytest.raises(GameError, match="no outcome"):
        hold(rules({"name": "tests.evaluate.test_tournament:Untold"}), bots("idler", "shooter"), matches=2)


def test_bots_films_and_recordings_play_the_game_that_trainings_play(tmp_path, monkeypatch):
    """Frames skipped around zero-sum rewards, wherever matches are played without actors."""
    resolved = load("pong/ppo", [*SMALL, "rewards.zero_sum=true", "actor.frame_skip=3", "stop={updates: 1}"])
    with create(tmp_path / "run", resolved) as run:
        train(resolved, run, Progress("", resolved.stop, quiet=True))
    around = []

    class Watched(Repeated):
        def __init__(self, name, controller, n):
            super().__init__(name, controller, n)
            around.append(n)

    def watched(match):
        around.append("zero sum")
        return settle(match)

    settle = wrappers._settle
    monkeypatch.setattr(wrappers, "Repeated", Watched)
    monkeypatch.setattr(wrappers, "_settle", watched)
    ways = {
        "bots": lambda: hold(resolved, bots("stay", "random"), matches=2),
        "film": lambda: next(film(open_run(tmp_path / "run"), "stay", "last", 0)),
        "record": lambda: record(resolved, {"left": "stay", "right": "random"}, [], 1, tmp_path / "recorded", 0),
    }
    for way, play in ways.items():
        around.clear()
        play()
        assert around[:3] == ["zero sum", 3, 3], way
