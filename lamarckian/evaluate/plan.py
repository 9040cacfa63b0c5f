"""What a recipe means on this machine: the game, the policy, the shapes, and how many processes and threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from lamarckian import plugins
from lamarckian.actor.inference import Model
from lamarckian.actor.process import Description, LeagueDescription, build_mdp, fragment_layout
from lamarckian.cluster.machine import cores
from lamarckian.data.fragment import Layout, gradient_layout
from lamarckian.errors import CheckpointError, MisuseError, RecipeError
from lamarckian.evaluate.gradients import Learning, build_algorithm
from lamarckian.mdp import MDP, Role, Saves
from lamarckian.nets.export import export_onnx
from lamarckian.nets.parameters import assign, manifest
from lamarckian.nets.policy import build, parameter_count
from lamarckian.recipe import Recipe, batched_obstacles
from lamarckian.recipe.league import League
from lamarckian.record import checkpoint
from lamarckian.record.league import LeagueFolder
from lamarckian.record.progress import fraction
from lamarckian.record.run import Run, open_training
from lamarckian.record.signature import check_signature, differences
from lamarckian.rl.algorithm import from_gradients, opponent_values
from lamarckian.transport.memory import keep_pages


@dataclass
class Plan:
    """The parts of a training that both modes share.

    layout: of what actors send. learning: what they need to compute gradients, where that is what they send.
    fragments: how many make a batch. actors: how many processes.
    """

    recipe: Recipe
    mdp: MDP
    role: Role
    policy: Any
    description: Description
    layout: Layout
    learning: Learning | None
    fragments: int
    actors: int
    device: str


def plan(recipe: Recipe, run: Run | None = None, opponents: bool = True) -> Plan:
    """Builds what the recipe names. Raises RecipeError, GameError or CheckpointError where something does not fit.

    run: in whose folder the league lies, where the recipe has one. opponents: whether trained runs that play are looked for; who only
    learns needs none.
    """
    serial = recipe.mode == "serial"
    algorithm = plugins.plugin("algorithm", recipe.algorithm.name)
    learning = _learning(recipe) if from_gradients(algorithm) else None
    count, wanted = recipe.actor.count, recipe.learner.threads
    # The learner has a core of its own, unless actors do its work.
    spare = 1 if serial else cores() if learning else max(1, cores() - 1)
    actors = spare if count == "auto" else count
    # Threads that have to wait for a core make all others wait.
    threads = wanted if wanted != "auto" else 1 if serial else max(1, cores() - actors)
    torch.set_num_threads(threads)
    keep_pages()
    mdp = plugins.build("game", recipe.game)
    role = mdp.roles[recipe.learners[0]]
    policy = build_policy(recipe, role)
    for role_name, player in recipe.roles.items():
        if player.agent == "run" and opponents:
            check_player(recipe, player.settings["path"], f"roles.{role_name}.path")
    description = describe(recipe, mdp, export(policy), recipe.actor.matches, recipe.seed, opponents)
    if recipe.league is not None and run is not None:
        description.league = _describe_league(recipe, recipe.league, run, role)
    layout = fragment_layout(description, build_mdp(description))
    if learning:
        layout = gradient_layout(layout, description.model.size)
    return Plan(
        recipe,
        mdp,
        role,
        policy,
        description,
        layout,
        learning,
        recipe.learner.batch // recipe.fragment_samples,
        actors,
        _device(recipe.learner.device),
    )


def build_learning(plan: Plan) -> Any:
    """The recipe's algorithm, with nothing learned yet. Raises RecipeError where its settings do not fit the run."""
    recipe = plan.recipe
    algorithm: Any = plugins.build(
        "algorithm", recipe.algorithm, plan.policy, plan.role, device=plan.device, dtype=recipe.learner.dtype, seed=recipe.seed
    )
    if hasattr(algorithm, "prepare"):
        algorithm.prepare(plan.layout.steps, fraction(recipe.stop, {"steps": 0, "updates": 0, "minutes": 0.0}) is None)
    return algorithm


def describe(recipe: Recipe, mdp: MDP, model: Model, matches: int, seed: int, opponents: bool = True) -> Description:
    """What actors need to know to play `matches` matches at once; without the policies of trained runs unless `opponents`."""
    roles = {name: {"agent": player.agent, **player.settings} for name, player in recipe.roles.items()}
    return Description(
        game=recipe.game.model_dump(mode="json"),
        roles=roles,
        model=model,
        models={name: trained(player["path"], mdp.roles[name]) for name, player in roles.items() if player["agent"] == "run" and opponents},
        matches=matches,
        steps=recipe.actor.fragment,
        frame_skip=recipe.actor.frame_skip,
        batched=_batched(recipe, mdp),
        seed=seed,
        zero_sum=recipe.rewards.zero_sum,
    )


def acting(plan: Plan) -> tuple[str, dict[str, Any]]:
    """What each actor runs, and what all of them are told."""
    if plan.learning:
        return "lamarckian.evaluate.gradients:main", {"description": plan.description, "learning": plan.learning}
    return "lamarckian.actor.process:main", {"description": plan.description}


def published(plan: Plan) -> int:
    """How many numbers a version has, as actors get it."""
    if plan.learning is None:
        return plan.description.model.size
    return len(build_algorithm(plan.description, plan.mdp, plan.learning).publication())


def _learning(recipe: Recipe) -> Learning:
    network, algorithm = (section.model_dump(mode="json") for section in (recipe.network, recipe.algorithm))
    return Learning(network, algorithm, recipe.learner.dtype)


def _describe_league(recipe: Recipe, league: League, run: Run, role: Role) -> LeagueDescription:
    for folder in league.runs:
        check_player(recipe, folder, "league.runs")
    models = {folder: trained(folder, role) for folder in league.runs}
    return LeagueDescription(str(run.league_path.resolve()), list(league.bots), models, league.distinct, league.swap_sides)


def check_player(recipe: Recipe, folder: str, key: str) -> None:
    """Raises RecipeError where a run that shall play, as `key` says, was not trained in the recipe's game."""
    faults = game_differences(recipe, open_training(folder).recipe(), "this recipe", folder)
    if faults:
        raise RecipeError(f"{key}: {folder} cannot play here, for it was trained in another game: {faults}")


def game_differences(one: Recipe, other: Recipe, where: str, there: str) -> str:
    """In what the games of two recipes differ, in words; empty where their agents can meet."""
    return differences(_played(one), _played(other), f"in {where}", f"in {there}")


def game_recorded(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe makes the matches that are recorded by it, by key."""
    return {**_played(recipe), "rewards.zero_sum": recipe.rewards.zero_sum}


def _played(recipe: Recipe) -> dict[str, Any]:
    game = {f"game.{key}": value for key, value in recipe.game.model_dump(mode="json").items()}
    return {**game, "actor.frame_skip": recipe.actor.frame_skip}


def build_policy(recipe: Recipe, role: Role) -> Any:
    """The recipe's network for `role`, freshly initialised."""
    return build(lambda role: plugins.build("network", recipe.network, role), role, recipe.seed)


def export(policy: Any) -> Model:
    """The policy as actors get it."""
    offsets = {entry.name: entry.offset for entry in manifest(policy)}
    state = {name: spec.shape for name, spec in policy.state.items()}
    return Model(export_onnx(policy), offsets, parameter_count(policy), state)


def load_policy(folder: str, role: Role, which: str = "best") -> tuple[Any, checkpoint.Checkpoint]:
    """The policy of a run's checkpoint, to play `role`. Raises CheckpointError where it does not fit the game."""
    run = open_training(folder)
    saved = checkpoint.load(run, which)
    check_signature(saved.signature, role, f"checkpoint {saved.steps} of {folder}")
    policy = build_policy(run.recipe(), role)
    restore(policy, saved.policy, folder)
    return policy, saved


def begin_from(folder: str, recipe: Recipe, policy: Any, role: Role) -> None:
    """Gives `policy` the parameters of a run's best checkpoint. Raises CheckpointError where its network is another, or its game."""
    there = open_training(folder).recipe().network.model_dump(mode="json")
    here = recipe.network.model_dump(mode="json")
    faults = differences(there, here, "there", "here")
    if faults:
        raise CheckpointError(f"start: the run {folder} has another network: {faults}; give this recipe the same `network`")
    restore(policy, load_policy(folder, role)[1].policy, folder)


def members(folder: str) -> list[int]:
    """The past versions in a run's league as of its newest checkpoint, oldest first. Raises MisuseError where it has no league."""
    league = checkpoint.load(open_training(folder)).state.get("league")
    if league is None:
        raise MisuseError(f"run {folder} has no league; a recipe with an algorithm that plays gives a role the agent 'league' to have one")
    return [version for version, _ in league["versions"]]


def load_member(folder: str, role: Role, version: int) -> Any:
    """The policy of a past version in a run's league, to play `role`. Raises CheckpointError where it does not fit the game."""
    policy, _ = load_policy(folder, role, "last")
    assign(policy, LeagueFolder(open_training(folder).league_path).parameters(version))
    return policy


def restore(policy: Any, arrays: Any, where: str) -> None:
    """Loads a checkpoint's parameters. Raises CheckpointError where they are another network's."""
    try:
        policy.load_state_dict(checkpoint.as_tensors(dict(arrays)))
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint of {where} holds another network: {' '.join(str(error).split())}") from error


def trained(folder: str, role: Role) -> Model:
    """The best policy of a run, for actors to play against."""
    policy, _ = load_policy(folder, role)
    section = open_training(folder).recipe().algorithm
    given = opponent_values(plugins.plugin("algorithm", section.name), section.settings)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if name in given:
                parameter.fill_(given[name])
    return export(policy)


def _batched(recipe: Recipe, mdp: Any) -> bool:
    if recipe.actor.way == "coroutines" or batched_obstacles(recipe, mdp):
        return False
    return recipe.actor.way == "batched" or recipe.mode == "parallel" or _saves(recipe, mdp)


def _saves(recipe: Recipe, mdp: Any) -> bool:
    """Serial mode resumes exactly, which in the batched way takes a game and bots that can be saved in the middle."""
    bots = getattr(mdp, "bots", {})
    seated = {*(player.agent for player in recipe.roles.values() if player.agent in bots), *(recipe.league.bots if recipe.league else ())}
    if not all(hasattr(bots[name], "save") for name in seated):
        return False
    games = mdp.start_many(1, 0)
    try:
        return isinstance(games, Saves)
    finally:
        games.close()


def _device(device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise RecipeError("learner.device: given 'cuda'; there is no CUDA device on this machine; allowed here: auto, cpu")
    return "cuda" if device == "auto" and torch.cuda.is_available() else "cpu" if device == "auto" else device
