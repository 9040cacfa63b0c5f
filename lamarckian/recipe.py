"""Recipes: the YAML that says everything about a run. Read, checked and completed here, before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

from lamarckian.errors import GameError, RecipeError
from lamarckian.plugins import KINDS, Section, build, construct, import_class, names, nearest, plugin, settings_model, unknown, validate

Count: TypeAlias = Annotated[int, Field(ge=1)]
Window: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Auto: TypeAlias = Literal["auto"]

DEFAULTS = {"network": "policy", "algorithm": "ppo"}


class Keys(BaseModel):
    """A section whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Player(BaseModel):
    """Who plays a role: `learner`, `self` (the newest version, not recorded), `run` (a trained run, at `path`), a bot of
    the game, or `module:Class`; beside `agent` stand the settings of that."""

    model_config = ConfigDict(extra="allow", frozen=True)

    agent: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the agent's name."""
        return dict(self.__pydantic_extra__ or {})


class TrainedRun(Keys):
    path: str
    """Folder of the run whose best checkpoint plays."""


AGENTS: dict[str, type[BaseModel]] = {"learner": Keys, "self": Keys, "run": TrainedRun}


class Actor(Keys):
    count: Count | Auto = "auto"
    """Actor processes."""
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
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None
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
    network: Section = Section(name="policy")
    algorithm: Section = Section(name="ppo")
    actor: Actor = Actor()
    learner: Learner = Learner()
    mode: Literal["parallel", "serial"] = "parallel"
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

    def dump(self) -> str:
        """The recipe as YAML, with every setting that was left out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def load(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of a built-in name or at a path, with `key.path=value` applied to it.

    Raises RecipeError for any fault in the recipe, GameError where the game needs something that is not there.
    """
    where, text = _find(str(name_or_path))
    try:
        document = _parse(text)
        for override in overrides:
            _override(document, override)
        return resolve(document)
    except RecipeError as error:
        raise RecipeError(f"recipe {where}: " + str(error).replace("\n", "\n  ")) from error.__cause__


def resolve(document: Mapping[str, Any]) -> Recipe:
    """A checked recipe from its plain form; the settings of plug-ins are completed with their defaults.

    Raises RecipeError for any fault, GameError where the game needs something that is not there.
    """
    named = {
        kind: {"name": name, **document.get(kind, {})} for kind, name in DEFAULTS.items() if isinstance(document.get(kind, {}), Mapping)
    }
    recipe = validate(Recipe, {**document, **named})
    sections = {kind: _complete(kind, getattr(recipe, kind)) for kind in KINDS}
    recipe = recipe.model_copy(update=sections)
    game = build("game", recipe.game)
    recipe = recipe.model_copy(update={"roles": _complete_roles(recipe, game)})
    _refuse_impossible(recipe, game)
    return recipe


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


def built_in() -> dict[str, str]:
    """Every built-in recipe → the first line of its comment header."""
    folder = resources.files("lamarckian") / "recipes"
    found = {}
    for game in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if game.is_dir():
            for file in sorted(game.iterdir(), key=lambda entry: entry.name):
                if file.name.endswith(".yaml"):
                    head = file.read_text().partition("\n")[0]
                    found[f"{game.name}/{file.name.removesuffix('.yaml')}"] = head.removeprefix("#").strip()
    return found


def schema() -> dict[str, Any]:
    """The JSON schema of recipes, with the settings of every plug-in that can be imported here."""
    document = Recipe.model_json_schema()
    for kind in KINDS:
        document["properties"][kind] = {"oneOf": [_plugin_schema(kind, name, document["$defs"]) for name in names(kind)] + [_OTHER]}
    return document


_OTHER = {
    "title": "module:Class",
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
    "required": ["name"],
    "additionalProperties": True,
}


def _plugin_schema(kind: str, name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    named = {"title": name, "type": "object", "properties": {"name": {"const": name}}, "required": ["name"]}
    try:
        model = settings_model(plugin(kind, name), KINDS[kind].given).model_json_schema()
    except (RecipeError, GameError) as error:
        return named | {"description": str(error), "additionalProperties": True}
    definitions |= model.pop("$defs", {})
    return model | named | {"properties": named["properties"] | model["properties"], "required": ["name", *model.get("required", ())]}


def _complete(kind: str, section: Section) -> Section:
    settings = validate(settings_model(plugin(kind, section.name), KINDS[kind].given), section.settings, kind)
    return Section(name=section.name, **settings.model_dump(mode="json"))


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
        if player.agent in ("learner", "self") and game.roles[role] != game.roles[learners[0]]:
            raise RecipeError(f"roles.{role}.agent: {player.agent!r} cannot play here: '{role}' has other spaces than '{learners[0]}'")
        if player.agent == "run":
            folder = Path(player.settings["path"])
            if not (folder / "recipe.yaml").is_file():
                raise RecipeError(f"roles.{role}.path: there is no run at {folder}")
            complete[role] = Player(agent="run", path=str(folder.resolve()))  # type: ignore[call-arg]
    return complete


def _refuse_impossible(recipe: Recipe, game: Any) -> None:
    obstacles = batched_obstacles(recipe, game)
    if recipe.actor.way == "batched" and obstacles:
        raise RecipeError(f"actor.way: 'batched' cannot be used: {'; '.join(obstacles)}; allowed here: auto, coroutines")
    samples, batch = recipe.fragment_samples, recipe.learner.batch
    if batch % samples:
        below = batch // samples * samples
        near = f"{below} or {below + samples}" if below else str(samples)
        raise RecipeError(
            f"learner.batch: given {batch}; a fragment has actor.fragment × actor.matches × learning roles = {samples} samples, "
            f"and a batch is whole fragments; allowed: multiples of {samples}, such as {near}"
        )
    if recipe.mode == "serial" and recipe.actor.count not in ("auto", 1):
        raise RecipeError(f"actor.count: given {recipe.actor.count}; in serial mode there is one actor: allowed: auto, 1")


def _find(name: str) -> tuple[str, str]:
    path = Path(name)
    known = built_in()
    if name in known:
        return name, (resources.files("lamarckian") / "recipes" / f"{name}.yaml").read_text()
    if path.suffix not in (".yaml", ".yml") and not path.is_file():
        near = nearest(name, known)
        raise RecipeError(
            f"there is no recipe {name!r}"
            + (f"; nearest: {near}" if near else "")
            + f"; built in: {', '.join(known)}; or a path to a .yaml file"
        )
    try:
        return name, path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot read recipe {name}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML that reads 3e-4 and 1e6 as numbers, and refuses a key that comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # type: ignore[no-untyped-call]
        for key in keys:
            if not isinstance(key, str):
                raise RecipeError(f"line {node.start_mark.line + 1}: a key must be a text, not {key!r}; put it in quotes")
            if keys.count(key) > 1:
                raise RecipeError(f"line {node.start_mark.line + 1}: key '{key}' comes twice")
        return super().construct_mapping(node, deep)


def _exponent(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float | int:
    value = float(node.value)
    return int(value) if value.is_integer() and "." not in node.value else value


_Loader.add_implicit_resolver("!exponent", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789"))
_Loader.add_constructor("!exponent", _exponent)


def _read(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise RecipeError("not YAML: " + " ".join(str(error).split())) from None


def _parse(text: str) -> dict[str, Any]:
    document = _read(text)
    if not isinstance(document, dict):
        raise RecipeError(f"a recipe has keys at its top: {', '.join(Recipe.model_fields)}")
    return document


def _override(document: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    if not equals or not all(path.split(".")):
        raise RecipeError(f"cannot use {override!r}; an override reads key.path=value, such as learner.batch=4096")
    *sections, key = path.split(".")
    for depth, section in enumerate(sections):
        inner = document.get(section)
        if inner is None:
            inner = document[section] = {}
        if not isinstance(inner, dict):
            raise RecipeError(f"{path}: {'.'.join(sections[: depth + 1])} has no keys in it, it is {inner!r}")
        document = inner
    document[key] = _read(value)
