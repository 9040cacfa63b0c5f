"""Tournaments: trained agents and bots of a game, everyone against everyone, from both sides alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lamarckian import plugins, seeding
from lamarckian.actor.inference import Model
from lamarckian.actor.process import as_played
from lamarckian.data.ledger import POINTS
from lamarckian.errors import GameError, MisuseError
from lamarckian.evaluate.bout import bout
from lamarckian.evaluate.matches import LANES, play, wave_seed
from lamarckian.evaluate.plan import export, game_differences, load_member, load_policy, members
from lamarckian.evaluate.rating import elo, log_odds, nash, tally
from lamarckian.mdp import BotAgent, Result
from lamarckian.plugins import unknown
from lamarckian.recipe import Player, Recipe, resolve
from lamarckian.recipe.training import build_bot
from lamarckian.record.checkpoint import saved
from lamarckian.record.run import open_training
from lamarckian.record.standings import Standing, Standings

CHECKPOINTS = ("last", "best", "all", "league")


@dataclass(frozen=True)
class Contestant:
    """Who takes part: a trained policy, or where `model` is None the bot of the game that is called `name`."""

    name: str
    model: Model | None = None


def tournament(runs: Sequence[str | Path], bots: Sequence[str], matches: int = 20, seed: int = 0, checkpoints: str = "best") -> Standings:
    """Everyone against everyone: the policies of runs, which take their likeliest actions, and bots of their game.

    matches: of each pair, half of them from either side, and from the same seeds. checkpoints: which of each run take part: last, best,
    all, or league, the past versions in it. Raises a `MisuseError` where the runs are not of one game, or its roles differ in what they
    see and do, and where `hold` does.
    """
    if not runs:
        raise MisuseError("a tournament takes the folder of at least one run, whose game is played; none was given")
    if checkpoints not in CHECKPOINTS:
        raise MisuseError(f"--checkpoints: given {checkpoints!r}; allowed: {', '.join(CHECKPOINTS)}")
    recipe = _rules(runs[0])
    for folder in runs[1:]:
        _compare(recipe, _rules(folder), runs[0], folder)
    contestants = [contestant for folder in runs for contestant in _trained(recipe, folder, checkpoints)]
    return hold(recipe, [*contestants, *map(Contestant, bots)], matches, seed)


def hold(recipe: Recipe, contestants: Sequence[Contestant], matches: int = 20, seed: int = 0) -> Standings:
    """Plays the tournament in a recipe's game, whoever its roles are for; rates who took part.

    Raises a `MisuseError` where there are fewer than two of them, two of one name, or a bot that the game does not have, where the game has
    not exactly two roles, or `matches` is odd; GameError where the game does not say who won.
    """
    game = plugins.build("game", recipe.game)
    _check(recipe, game, contestants, matches)
    contestants = sorted(contestants, key=attrgetter("name"))  # so that the order they are given in changes no digit
    size = len(contestants)
    points, counts = np.zeros((size, size)), np.zeros((size, size))
    for i, j in combinations(range(size), 2):
        for own, other in (tuple(game.roles), tuple(reversed(game.roles))):
            points[i, j] += _meet(recipe, game, {own: contestants[i], other: contestants[j]}, matches // 2, seed)
        points[j, i] = matches - points[i, j]
        counts[i, j] = counts[j, i] = matches
    return _rate(recipe.game.name, [contestant.name for contestant in contestants], points, counts, matches, seed)


def _rate(game: str, names: list[str], points: np.ndarray, counts: np.ndarray, matches: int, seed: int) -> Standings:
    payoff = tally(points, counts)
    ratings, intervals = elo(payoff)
    weights, gains = nash(log_odds(payoff))
    scores = points.sum(axis=1) / counts.sum(axis=1)
    order = sorted(range(len(names)), key=lambda i: (-round(float(ratings[i]), 6), names[i]))
    players = [
        Standing(
            rank=rank,
            name=names[i],
            score=float(scores[i]),
            elo=float(ratings[i]),
            elo_interval=float(intervals[i]),
            nash_weight=float(weights[i]),
            nash_rating=float(gains[i]),
        )
        for rank, i in enumerate(order, 1)
    ]
    return Standings(
        game=game,
        matches=matches,
        seed=seed,
        players=players,
        payoff=[[None if i == j else float(payoff.scores[i, j]) for j in order] for i in order],
    )


def _meet(recipe: Recipe, game: Any, seats: Mapping[str, Contestant], matches: int, seed: int) -> float:
    """The points of the first of two contestants, who play these roles."""
    (own, first), (other, second) = seats.items()
    if first.model is None and second.model is None:
        results = _spar(recipe, game, {role: Player(agent=seated.name) for role, seated in seats.items()}, matches, seed)
        return _points(recipe, [result.outcome for result in results])
    if first.model is None:
        return matches - _meet(recipe, game, {other: second, own: first}, matches, seed)
    # Where a policy plays the other role, `self` keeps the seat for it.
    opponent = Player(agent=second.name if second.model is None else "self")
    seated = recipe.model_copy(update={"roles": {own: Player(agent="learner"), other: opponent}})
    others = {other: second.model} if second.model is not None else {}
    played = play(seated, game, first.model, matches, seed, greedy=True, others=others)
    return _points(recipe, [result.outcome for result in played])


def _spar(recipe: Recipe, game: Any, bots: Mapping[str, Player], matches: int, seed: int) -> list[Result]:
    """How matches among bots went for the first of them; from the seeds that matches of policies have."""
    mdp = as_played(game, recipe.rewards.zero_sum, recipe.actor.frame_skip)
    results = []
    for number in range(matches):
        start = seeding.match_seed(wave_seed(seed, number // LANES), number % LANES, 0)
        agents = {role: BotAgent(build_bot(mdp, role, player)) for role, player in bots.items()}
        results.append(bout(mdp, agents, start)[next(iter(bots))])
    return results


def _points(recipe: Recipe, outcomes: Sequence[str | None]) -> float:
    if None in outcomes:
        raise GameError(f"the results of {recipe.game.name} have no outcome (win, draw or loss), so there is no telling who won")
    return sum(POINTS[outcome] for outcome in outcomes if outcome is not None)


def _rules(folder: str | Path) -> Recipe:
    """The recipe of a run with its policy in every role: who played there in its training does not matter here."""
    document = yaml.safe_load(open_training(folder).recipe_path.read_text())
    first, *rest = document["roles"]
    roles = {first: {"agent": "learner"}, **{role: {"agent": "self"} for role in rest}}
    return resolve({**document, "roles": roles, "league": None})


def _compare(one: Recipe, other: Recipe, where: str | Path, there: str | Path) -> None:
    """Refuses to let runs meet that do not play the same game."""
    faults = game_differences(one, other, str(where), str(there))
    if faults:
        raise MisuseError(f"runs of one tournament must play the same game: {faults}")


def _trained(recipe: Recipe, folder: str | Path, checkpoints: str) -> list[Contestant]:
    """The policies of a run; named by its folder, and where several take part by their steps or versions, too."""
    role = next(iter(plugins.build("game", recipe.game).roles.values()))
    if checkpoints == "league":
        return [
            Contestant(f"{Path(folder)}@v{version}", export(load_member(str(folder), role, version))) for version in members(str(folder))
        ]
    if checkpoints != "all":
        return [Contestant(str(Path(folder)), export(load_policy(str(folder), role, checkpoints)[0]))]
    steps = [str(count) for count in saved(open_training(folder))] or ["last"]  # of which loading says that there is none
    return [Contestant(f"{Path(folder)}@{count}", export(load_policy(str(folder), role, count)[0])) for count in steps]


def _check(recipe: Recipe, game: Any, contestants: Sequence[Contestant], matches: int) -> None:
    roles = list(game.roles)
    if len(roles) != 2:
        raise GameError(f"a tournament takes a game with exactly two roles; {recipe.game.name} has {len(roles)}: {', '.join(roles)}")
    bots = getattr(game, "bots", {})
    for contestant in contestants:
        if contestant.model is None and contestant.name not in bots:
            raise MisuseError(f"--bots: {unknown(contestant.name, bots, f'bots of {recipe.game.name}')}")
    names = [contestant.name for contestant in contestants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MisuseError(f"every player of a tournament needs a name of its own; more than once there: {', '.join(twice)}")
    if len(names) < 2:
        raise MisuseError(
            f"a tournament takes at least two players; given: {', '.join(names) or 'none'}; add runs, or --bots: {', '.join(bots)}"
        )
    if matches < 2 or matches % 2:
        raise MisuseError(f"--matches: given {matches}; allowed: 2, 4, 6 …, so that each side is played equally often")
