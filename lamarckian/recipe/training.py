"""Recipes of trainings: a game, who plays it, and how they learn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from lamarckian.errors import RecipeError
from lamarckian.plugins import Section, build, construct, import_class, plugin, settings_model, unknown, validate
from lamarckian.recipe.cluster import Cluster, complete_cluster, refuse_impossible
from lamarckian.recipe.document import Auto, Count, Finite, Keys, Seconds, Window, complete
from lamarckian.recipe.league import League, complete_league

KINDS = ("game", "network", "algorithm")
DEFAULTS = {"network": "policy", "algorithm": "ppo"}

Weight: TypeAlias = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


class Player(BaseModel):
    """Who plays a role: `learner`, `self` (the newest version, not recorded), `league` (whoever the section `league` says), `run` (a
    trained run, at `path`), a bot of the game, or `module:Class`; beside `agent` stand the settings of that."""

    model_config = ConfigDict(extra="allow", frozen=True)

    agent: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the agent's name."""
        return dict(self.__pydantic_extra__ or {})


class TrainedRun(Keys):
    path: str
    """Folder of the run whose best checkpoint plays."""


AGENTS: dict[str, type[BaseModel]] = {"learner": Keys, "self": Keys, "league": Keys, "run": TrainedRun}


class Rewards(Keys):
    weights: dict[str, Weight] = {}
    """How much each reward of the learning roles counts; one that is left out counts 1. `lamarckian set` changes them meanwhile."""
    zero_sum: bool = False
    """Pays each role its own rewards less the mean of the other roles'."""


class Actor(Keys):
    count: Count | Auto = "auto"
    """Actor processes; of each machine, in a cluster."""
    matches: Count = 64
    """Matches that one actor plays at a time."""
    fragment: Count = 64
    """Steps T of a fragment."""
    way: Literal["auto", "batched", "coroutines"] = "auto"
    """How an actor steps its matches; auto: batched where the game can."""
    frame_skip: Count = 1
    """Ticks between two decisions of a role."""


class Learner(Keys):
    batch: Count = 8192
    """Samples per update: a whole number of fragments."""
    threads: Count | Auto = "auto"
    """CPU threads of the learner."""
    slots: Count | Auto = "auto"
    """Fragments that the memory pool holds."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"


class Stop(Keys):
    """When training ends: as soon as one of these is reached. With none it goes on until Ctrl-C."""

    steps: Count | None = None
    """Samples that the learner has been sent."""
    updates: Count | None = None
    minutes: Seconds | None = None
    score: Finite | None = None
    """Mean score of the last `score_matches` matches."""
    score_matches: Window = 100


class Checkpoints(Keys):
    every_s: Seconds | None = 60.0
    every_updates: Count | None = None
    keep: Count = 3
    """The newest ones that stay; the best by score stays too."""


class Record(Keys):
    every_s: Seconds = 5.0
    """Time between two lines of metrics."""
    score_window: Window = 100
    """Matches over which the recorded score is averaged."""


class Recipe(Keys):
    """All about a run. Made by `load` or `resolve`, which also check and complete the plug-ins' settings."""

    game: Section
    roles: dict[str, Player] = {}
    league: League | None = None
    rewards: Rewards = Rewards()
    network: Section = Section(name="policy")
    algorithm: Section = Section(name="ppo")
    start: str | None = None
    """Folder of a run with the same network, whose best checkpoint gives the first parameters."""
    actor: Actor = Actor()
    learner: Learner = Learner()
    mode: Literal["parallel", "serial"] = "parallel"
    cluster: Cluster | None = None
    stop: Stop = Stop()
    checkpoint: Checkpoints = Checkpoints()
    record: Record = Record()
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def learners(self) -> tuple[str, ...]:
        """The roles that the learner plays."""
        return tuple(role for role, player in self.roles.items() if player.agent == "learner")

    @property
    def fragment_samples(self) -> int:
        """Samples in one fragment: T steps of every match's learning roles."""
        return self.actor.fragment * self.actor.matches * len(self.learners)


def resolve(document: Mapping[str, Any]) -> Recipe:
    """A checked recipe from its plain form; the settings of plug-ins are completed with their defaults.

    Raises RecipeError for any fault, GameError where the game needs something that is not there.
    """
    named = {
        kind: {"name": name, **document.get(kind, {})} for kind, name in DEFAULTS.items() if isinstance(document.get(kind, {}), Mapping)
    }
    recipe = validate(Recipe, {**document, **named})
    recipe = recipe.model_copy(update={"network": _network(recipe, document)})
    sections = {kind: complete(kind, getattr(recipe, kind)) for kind in KINDS}
    start = None if recipe.start is None else str(Path(recipe.start).resolve())
    recipe = recipe.model_copy(update={**sections, "start": start, "cluster": complete_cluster(recipe.cluster)})
    game = build("game", recipe.game)
    recipe = recipe.model_copy(update={"roles": _complete_roles(recipe, game)})
    agents = {role: player.agent for role, player in recipe.roles.items()}
    recipe = recipe.model_copy(update={"league": complete_league(recipe.league, agents, game)})
    recipe = recipe.model_copy(update=_complete_rewards(recipe, game))
    _refuse_impossible(recipe, game)
    return recipe


def _network(recipe: Recipe, document: Mapping[str, Any]) -> Section:
    """The network's section: of the kind that the algorithm learns, where none is named. Raises RecipeError for another kind."""
    wanted = getattr(plugin("algorithm", recipe.algorithm.name), "network", DEFAULTS["network"])
    given = recipe.network
    if "name" not in document.get("network", {}):
        return Section(name=wanted, **given.settings)
    if getattr(plugin("network", given.name), "kind", DEFAULTS["network"]) != wanted:
        raise RecipeError(
            f"network.name: given {given.name!r}; the algorithm {recipe.algorithm.name} learns networks of the kind {wanted!r}; "
            f"allowed here: {wanted}, or module:Class of that kind, or no network.name at all"
        )
    return given


def batched_obstacles(recipe: Recipe, game: Any) -> list[str]:
    """Why actors cannot step the matches of this recipe in one call; nothing where they can."""
    obstacles = []
    if not hasattr(game, "start_many"):
        obstacles.append("the game does not step many matches in one call")
    elif not getattr(game, "batchable", True):
        obstacles.append("the game cannot step many matches in one call with these settings")
    if recipe.actor.frame_skip > 1:
        obstacles.append("actor.frame_skip is above 1")
    bots = getattr(game, "bots", {})
    obstacles += [
        f"roles.{role}.agent is not a bot of the game"
        for role, player in recipe.roles.items()
        if player.agent not in AGENTS and player.agent not in bots
    ]
    return obstacles


def player_class(game: Any, role: str, player: Player) -> type:
    """The class of the bot that plays `role`: one of the game's own, or `module:Class`.

    Raises RecipeError where the game has no such bot.
    """
    bots = getattr(game, "bots", {})
    if player.agent in bots:
        return bots[player.agent]
    if ":" in player.agent:
        return import_class(player.agent, f"roles.{role}.agent")
    raise RecipeError(f"roles.{role}.agent: {unknown(player.agent, [*AGENTS, *bots], 'agents')}, or module:Class")


def build_bot(game: Any, role: str, player: Player) -> Any:
    """Makes the bot (`lamarckian.mdp.Bot`), or what `module:Class` names, that plays `role`."""
    return construct(player_class(game, role, player), player.settings, f"roles.{role}")


def _complete_roles(recipe: Recipe, game: Any) -> dict[str, Player]:
    roles = recipe.roles or ({next(iter(game.roles)): Player(agent="learner")} if len(game.roles) == 1 else {})
    for role in roles:
        if role not in game.roles:
            raise RecipeError(f"roles.{role}: {unknown(role, game.roles, 'roles')}")
    open_seats = [role for role in game.roles if role not in roles]
    if open_seats:
        agents = ", ".join([*AGENTS, *getattr(game, "bots", {})])
        raise RecipeError(f"roles: nobody plays {', '.join(open_seats)}; give each role of the game an agent: {agents}")
    complete = {}
    for role in game.roles:
        agent = roles[role].agent
        model = AGENTS.get(agent) or settings_model(player_class(game, role, roles[role]))
        complete[role] = Player(agent=agent, **validate(model, roles[role].settings, f"roles.{role}").model_dump(mode="json"))
    learners = [role for role, player in complete.items() if player.agent == "learner"]
    if not learners:
        raise RecipeError(f"roles: nobody learns; give one of {', '.join(game.roles)} the agent 'learner'")
    for role, player in complete.items():
        if player.agent in ("learner", "self", "league") and game.roles[role] != game.roles[learners[0]]:
            raise RecipeError(f"roles.{role}.agent: {player.agent!r} cannot play here: '{role}' has other spaces than '{learners[0]}'")
        if player.agent == "run":
            folder = Path(player.settings["path"])
            if not (folder / "recipe.yaml").is_file():
                raise RecipeError(f"roles.{role}.path: there is no run at {folder}")
            complete[role] = Player(agent="run", path=str(folder.resolve()))  # type: ignore[call-arg]
    return complete


def _complete_rewards(recipe: Recipe, game: Any) -> dict[str, Any]:
    """The sections of the rewards and of the algorithm: weights stand in the first, for every reward, and not in the second."""
    given, names = recipe.rewards.weights, game.roles[recipe.learners[0]].rewards
    for name in given:
        if name not in names:
            raise RecipeError(f"rewards.weights.{name}: {unknown(name, names, 'rewards')}")
    if recipe.rewards.zero_sum and len(game.roles) < 2:
        raise RecipeError(f"rewards.zero_sum: given true; the game has one role, {', '.join(game.roles)}; allowed here: false")
    weights = {name: given.get(name, 1.0) for name in names}
    algorithm = recipe.algorithm
    if hasattr(plugin("algorithm", algorithm.name), "set_reward_weights"):
        settings = algorithm.settings
        if settings.pop("reward_weights", None):
            raise RecipeError("algorithm.reward_weights: the weights of rewards stand in a section of their own: rewards.weights")
        algorithm = Section(name=algorithm.name, **settings)
    elif set(weights.values()) != {1.0}:
        raise RecipeError(f"rewards.weights: the algorithm {algorithm.name} cannot weigh rewards: it has no method `set_reward_weights`")
    return {"rewards": recipe.rewards.model_copy(update={"weights": weights}), "algorithm": algorithm}


def _refuse_impossible(recipe: Recipe, game: Any) -> None:
    obstacles = batched_obstacles(recipe, game)
    if recipe.actor.way == "batched" and obstacles:
        raise RecipeError(f"actor.way: 'batched' cannot be used: {'; '.join(obstacles)}; allowed here: auto, coroutines")
    if recipe.cluster is not None:
        refuse_impossible(recipe.cluster, recipe, plugin("algorithm", recipe.algorithm.name))
    samples, batch = recipe.fragment_samples, recipe.learner.batch
    if batch % samples:
        below = batch // samples * samples
        near = f"{below} or {below + samples}" if below else str(samples)
        raise RecipeError(
            f"learner.batch: given {batch}; a fragment has actor.fragment × actor.matches × learning roles = {samples} samples, "
            f"and a batch is whole fragments; allowed: multiples of {samples}, such as {near}"
        )
    if getattr(plugin("algorithm", recipe.algorithm.name), "from_gradients", False) and batch != samples:
        raise RecipeError(
            f"learner.batch: given {batch}; {recipe.algorithm.name} updates by the gradient of one fragment, which has "
            f"actor.fragment × actor.matches × learning roles = {samples} samples; allowed: {samples}"
        )
    if recipe.mode == "serial" and recipe.actor.count not in ("auto", 1):
        raise RecipeError(f"actor.count: given {recipe.actor.count}; in serial mode there is one actor: allowed: auto, 1")
