"""Plays matches with a trained policy: to measure it, and to film it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from lamarckian import plugins, seeding
from lamarckian.actor.coroutines import CoroutineRollout
from lamarckian.actor.inference import Model
from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.process import Description, as_played, build_mdp, build_rollout, fragment_layout, learners
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.tally import Tally
from lamarckian.data.pool import MatchResult
from lamarckian.errors import GameError, MisuseError, RecipeError
from lamarckian.evaluate.plan import check_player, describe, export, load_member, load_policy, members
from lamarckian.mdp import Result
from lamarckian.recipe import Recipe, resolve
from lamarckian.record.run import Run

LANES = 64


class Report(msgspec.Struct, frozen=True):
    """What an evaluation found: mean and standard deviation over matches of the score and of the summed rewards."""

    run: str
    version: int
    matches: int
    score_mean: float
    score_std: float
    return_mean: float
    return_std: float
    against: str


class FirstOfEach(Tally):
    """Counts the first match of each lane only, so that short matches do not count more often than long ones."""

    def __init__(self, roles: list[str], matches: int, rewards: int) -> None:
        super().__init__(roles, matches, rewards)
        self.first: dict[int, MatchResult] = {}

    def end(self, lane: int, result: Result | None, opponent: str = "") -> None:
        super().end(lane, result, opponent)
        [ended], _ = self.take()
        self.first.setdefault(lane, ended)


def evaluate(run: Run, against: str | None, matches: int, checkpoint: str, stochastic: bool, seed: int) -> Report:
    """Plays `matches` matches with a run's policy, against the recipe's opponents or `against`.

    against: a bot of the game, the folder of a run, `self`, or `module:Class`. checkpoint: last, best, or its steps.
    Raises a `LamarckianError` where that cannot be.
    """
    recipe, others = _seat(run, against)
    mdp = plugins.build("game", recipe.game)
    policy, saved = load_policy(str(run.folder), mdp.roles[recipe.learners[0]], checkpoint)
    results = play(recipe, mdp, export(policy), matches, seed, not stochastic, _opposing(run, mdp, others))
    scores = np.array([result.score for result in results])
    returns = np.array([sum(result.returns) for result in results])
    return Report(
        run=str(run.folder),
        version=saved.version,
        matches=matches,
        score_mean=float(scores.mean()),
        score_std=float(scores.std()),
        return_mean=float(returns.mean()),
        return_std=float(returns.std()),
        against=_opponents(recipe, others),
    )


def play(
    recipe: Recipe, mdp: Any, model: Model, matches: int, seed: int, greedy: bool, others: Mapping[str, Model] | None = None
) -> list[MatchResult]:
    """Plays `matches` matches of the recipe with `model` as its learner; how each went for that.

    others: models that play roles in place of whom the recipe names.
    """
    results: list[MatchResult] = []
    for wave, first in enumerate(range(0, matches, LANES)):
        description = describe(recipe, mdp, model, min(LANES, matches - first), seed)
        _replace(description, others or {})
        results += _wave(description, wave_seed(seed, wave), greedy)
    return results


def _replace(description: Description, others: Mapping[str, Model]) -> None:
    """Lets models play these roles."""
    for role, other in others.items():
        description.roles[role], description.models[role] = {"agent": "run"}, other


def wave_seed(seed: int, wave: int) -> int:
    """The seed of the `wave`-th lot of up to `LANES` matches that are played at once."""
    return seeding.derive(seed, "evaluate", wave)


def film(run: Run, against: str | None, checkpoint: str, seed: int) -> Iterator[np.ndarray]:
    """The frames of one match, RGB uint8 `[height, width, 3]`. Raises GameError where the game cannot be looked at."""
    recipe, others = _seat(run, against)
    mdp: Any = plugins.build("game", recipe.game)
    policy, _ = load_policy(str(run.folder), mdp.roles[recipe.learners[0]], checkpoint)
    description = describe(recipe, mdp, export(policy), 1, seed)
    _replace(description, _opposing(run, mdp, others))
    description.batched = False
    shown = _Shown(mdp)
    rollout, tally = _rollout(description, as_played(shown, description.zero_sum, description.frame_skip), seed, greedy=True)
    assert isinstance(rollout, CoroutineRollout)
    ticks = -1
    rollout.start()
    try:
        rollout.turn()
        while not tally.first:
            if rollout.loop.ticks != ticks or not rollout.loop.parked:
                ticks = rollout.loop.ticks
                yield shown.match.render()
            rollout.turn()
    finally:
        rollout.close()


class _Shown:
    """A game whose matches can be looked at."""

    def __init__(self, mdp: Any) -> None:
        self.roles = mdp.roles
        self.bots = getattr(mdp, "bots", {})
        self._start = getattr(mdp, "start_rendered", mdp.start)

    def start(self, seed: int) -> Any:
        self.match = self._start(seed)
        if not hasattr(self.match, "render"):
            self.match.close()
            raise GameError("this game cannot be filmed: its matches have no method `render`")
        return self.match


def _wave(description: Description, seed: int, greedy: bool) -> list[MatchResult]:
    """The first match of each lane."""
    rollout, tally = _rollout(description, build_mdp(description), seed, greedy)
    rollout.start()
    try:
        while len(tally.first) < description.matches * len(learners(description)):
            rollout.turn()
    finally:
        rollout.close()
    return list(tally.first.values())


def _rollout(description: Description, mdp: Any, seed: int, greedy: bool) -> tuple[Any, FirstOfEach]:
    roles = learners(description)
    role = mdp.roles[roles[0]]
    policy = ActingPolicy(description.model, role, seeding.generator(seed, "policy"), greedy)
    tally = FirstOfEach(roles, description.matches, len(role.rewards))
    shape = fragment_layout(description, mdp)
    recorder = Recorder(shape, lambda stage, lanes: None, np.arange(shape.columns))
    rollout, _ = build_rollout(description, mdp, policy, recorder, tally, seed, greedy=greedy)
    return rollout, tally


def _seat(run: Run, against: str | None) -> tuple[Recipe, dict[str, int]]:
    """The run's recipe for an evaluation, and the past versions that play in it, by role.

    Its first learning role is the policy's, others that learned are the policy's too but not counted, and where `against` is given, that
    plays all but the first. Where it is not, the youngest past version plays for the league.
    """
    document = yaml.safe_load(run.recipe_path.read_text())
    players = document["roles"]
    first, *rest = [role for role, player in players.items() if player["agent"] == "learner"]
    leagues = [role for role, player in players.items() if player["agent"] == "league"]
    players |= {role: {"agent": "self"} for role in (*rest, *leagues)}
    if against is not None:
        others = [role for role in players if role != first]
        if not others:
            raise RecipeError(f"--against: {document['game']['name']} has one role only, there is nobody to play against")
        if against in ("learner", "league"):
            what = "who is evaluated" if against == "learner" else "whom the run plays where --against is left out"
            raise RecipeError(f"--against: {against!r} is {what}; allowed: self, a bot of the game, the folder of a run, or module:Class")
        is_run = (Path(against) / "recipe.yaml").is_file()
        players |= {role: {"agent": "run", "path": against} if is_run else {"agent": against} for role in others}
        leagues = []
    try:
        newest = dict.fromkeys(leagues, members(str(run.folder))[-1]) if leagues else {}
    except MisuseError as error:
        raise MisuseError(f"{error}; or name whom it is to meet: --against") from None
    recipe = resolve({**document, "league": None})
    if against is not None and is_run:
        check_player(recipe, against, "--against")
    return recipe, newest


def _opposing(run: Run, mdp: Any, versions: Mapping[str, int]) -> dict[str, Model]:
    """The models of past versions, by role."""
    return {role: export(load_member(str(run.folder), mdp.roles[role], version)) for role, version in versions.items()}


def _opponents(recipe: Recipe, versions: Mapping[str, int]) -> str:
    """Who they are, in words."""
    names = []
    for role, player in recipe.roles.items():
        if role in versions:
            names.append(f"v{versions[role]} of its league")
        elif player.agent != "learner":
            names.append(" ".join([player.agent, *(f"{name}={value}" for name, value in player.settings.items())]))
    return ", ".join(names) or "nobody"
