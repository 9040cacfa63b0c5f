"""An actor from its description: in a process of its own, or in the learner's for serial mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np

from lamarckian import plugins, recipe, seeding
from lamarckian.actor.actor import Actor, SlotFiller
from lamarckian.actor.batched import BatchedRollout
from lamarckian.actor.coroutines import CoroutineRollout
from lamarckian.actor.inference import Model
from lamarckian.actor.opponents import Crowd, League, Seating
from lamarckian.actor.policy import ActingPolicy, Versions
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.tally import Tally
from lamarckian.data.fragment import Layout, layout
from lamarckian.data.pool import PoolClient, Sink
from lamarckian.mdp import MDP, Agent, Bot, BotAgent
from lamarckian.mdp.sides import swapped
from lamarckian.mdp.spaces import ArraySpec
from lamarckian.mdp.wrappers import frame_skip, zero_sum
from lamarckian.record.league import LeagueFolder
from lamarckian.transport.versions import VersionBoard

LANE_BITS = (1 << 20) - 1
"""The bits of a lane's name that tell it from others of its actor; those above are the actor's seed, which no other has."""


class LeagueDescription(msgspec.Struct):
    """What an actor needs to know of a league.

    folder: where its index and past versions lie. bots: of the game. models: the policies of trained runs, by name.
    """

    folder: str
    bots: list[str]
    models: dict[str, Model]
    distinct: int
    swap_sides: bool


class Description(msgspec.Struct):
    """All that an actor needs to know. Plain data, so that it travels to any machine.

    roles: who plays each role, as in the recipe. model: the learner's policy.
    models: the policies of trained runs, by role.
    """

    game: dict[str, Any]
    roles: dict[str, dict[str, Any]]
    model: Model
    models: dict[str, Model]
    matches: int
    steps: int
    frame_skip: int
    batched: bool
    seed: int
    zero_sum: bool = False
    league: LeagueDescription | None = None


class Wiring(msgspec.Struct):
    """How an actor process reaches the learner on the same machine: inherited descriptors and the pool's address."""

    name: str
    address: str
    pool_fd: int
    board_fd: int


def build_mdp(description: Description) -> MDP:
    """The game as the actor plays it."""
    game = plugins.build("game", plugins.Section(**description.game))
    swaps = description.league is not None and description.league.swap_sides
    return as_played(game, description.zero_sum, description.frame_skip, swaps)


def as_played(game: MDP, zero_sums: bool, skip: int, swaps: bool = False) -> MDP:
    """A game with what a recipe puts around it: zero-sum rewards, sides swapped, actions that last `skip` ticks."""
    if zero_sums:
        game = zero_sum(game)
    if swaps:
        game = swapped(game)
    return game if skip == 1 else frame_skip(game, skip)


def learners(description: Description) -> list[str]:
    """The roles that learn."""
    return [role for role, player in description.roles.items() if player["agent"] == "learner"]


def fragment_layout(description: Description, mdp: MDP) -> Layout:
    """The layout of the actor's fragments: a column for each learning role of each match."""
    roles = learners(description)
    state = {name: ArraySpec(tuple(shape), np.dtype(np.float32)) for name, shape in description.model.state.items()}
    return layout(mdp.roles[roles[0]], description.steps, description.matches * len(roles), state)


def build_rollout(
    description: Description,
    mdp: MDP,
    policy: ActingPolicy,
    recorder: Recorder,
    tally: Tally,
    seed: int,
    taped: bool = False,
    greedy: bool = False,
) -> tuple[BatchedRollout | CoroutineRollout, list[ActingPolicy]]:
    """The matches of one actor, with everybody who plays in them; and the policies among those, the learner's first.

    taped: the matches can be saved. greedy: the policies of trained runs take their likeliest actions.
    """
    roles = learners(description)
    policies: dict[str, ActingPolicy] = {}
    bots: dict[str, Callable[[], Bot]] = {}
    agents: dict[str, Callable[[], Agent]] = {}
    for role, player in description.roles.items():
        if role in roles or player["agent"] == "league":
            continue
        if player["agent"] == "self":
            policies[role] = policy
        elif player["agent"] == "run":
            policies[role] = ActingPolicy(description.models[role], mdp.roles[role], seeding.generator(seed, role), greedy)
        else:
            kind: dict[str, Any] = bots if player["agent"] in getattr(mdp, "bots", {}) else agents
            kind[role] = partial(recipe.build_bot, mdp, role, recipe.Player(**player))
    acting = [policy, *(other for other in policies.values() if other is not policy)]
    matches, league = description.matches, _league(description, mdp, seed)
    if description.batched:
        others = {**policies, **{role: make() for role, make in bots.items()}}
        return BatchedRollout(mdp, policy, recorder, tally, roles, others, matches, seed, league), acting  # type: ignore[arg-type]
    seated = {role: [make() for _ in range(matches)] for role, make in agents.items()}
    seated |= {role: [BotAgent(make()) for _ in range(matches)] for role, make in bots.items()}
    return CoroutineRollout(mdp, policy, recorder, tally, roles, {**policies, **seated}, matches, seed, taped, league), acting


def _league(description: Description, mdp: MDP, seed: int) -> League | None:
    league = description.league
    if league is None:
        return None
    roles = [role for role, player in description.roles.items() if player["agent"] == "league"]
    models, model, role = league.models, description.model, mdp.roles[roles[0]]
    random = seeding.generator(seed, "league")
    seating = Seating(
        LeagueFolder(league.folder),
        league.bots,
        lambda name: ActingPolicy(models.get(name, model), role, random),
        description.matches,
        league.distinct,
        seed,
    )
    return League(
        seating,
        Crowd(seating, random),
        roles,
        {name: partial(recipe.build_bot, mdp, roles[0], recipe.Player(agent=name)) for name in league.bots},
    )


def build_actor(
    description: Description, mdp: MDP, sink: Sink, versions: Versions, index: int = 0, life: tuple[int, ...] = (), taped: bool = False
) -> Actor:
    """The `index`-th actor of a run; its matches and its sampling draw from streams of their own.

    life: what tells it from the actors of the same index before it, so that it does not play their matches again.
    """
    role = mdp.roles[learners(description)[0]]
    seed = seeding.derive(description.seed, "actor", index, *life)
    policy = ActingPolicy(description.model, role, seeding.generator(seed, "policy"), versions=versions)
    shape = fragment_layout(description, mdp)
    tally = Tally(learners(description), description.matches, len(role.rewards))
    filler = SlotFiller(shape, sink, tally)
    recorder = Recorder(shape, filler, (seed & ~LANE_BITS) + np.arange(shape.columns))
    rollout, policies = build_rollout(description, mdp, policy, recorder, tally, seed, taped)
    return Actor(rollout, recorder, filler, policies)


def main(config: dict[str, Any]) -> None:
    """Runs an actor until the process is ended."""
    description = msgspec.convert(config["description"], Description)
    wiring = msgspec.convert(config["wiring"], Wiring)
    mdp = build_mdp(description)
    shape = fragment_layout(description, mdp)
    board = VersionBoard.attach(wiring.board_fd, description.model.size)
    client = PoolClient(wiring.pool_fd, shape, wiring.address, wiring.name)
    actor = build_actor(description, mdp, client, board, config["index"], (*config["life"], config["attempt"]))
    actor.filler.reserve()
    actor.start()
    while True:
        actor.turn()
        actor.filler.reserve()  # before new steps, not behind them: so the newest version acts in them
