"""Plug-ins: the games, networks, algorithms and agents that a recipe names, their settings, and how to build them.

A plug-in is a class. Its settings are the keyword arguments of its constructor, checked by their annotations; or, where
the class has an attribute `Settings` (a pydantic model), the fields of that, and the constructor takes `settings=`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
import sys
import traceback
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError

from lamarckian.errors import GameError, LamarckianError, RecipeError

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Kind:
    """A kind of plug-in.

    key: of its section in a recipe. group: its entry-point group. built_in: name → `module:Class`.
    given: what the platform passes to the constructor besides the settings: first the arguments by position, then those
        by keyword (with a `=` after the name).
    """

    key: str
    group: str
    built_in: Mapping[str, str]
    given: tuple[str, ...] = ()


KINDS = {
    "game": Kind(
        "game",
        "lamarckian.games",
        {
            "pong": "lamarckian.games.pong:Pong",
            "gymnasium": "lamarckian.mdp.adapters.gymnasium:Gymnasium",
            "atari": "lamarckian.mdp.adapters.atari:Atari",
            "pettingzoo": "lamarckian.mdp.adapters.pettingzoo:PettingZoo",
        },
    ),
    "network": Kind(
        "network", "lamarckian.networks", {"policy": "lamarckian.nets.policy:Policy", "q": "lamarckian.nets.quality:QNetwork"}, ("role",)
    ),
    "algorithm": Kind(
        "algorithm",
        "lamarckian.algorithms",
        {
            "ppo": "lamarckian.rl.ppo:PPO",
            "impala": "lamarckian.rl.impala:IMPALA",
            "a3c": "lamarckian.rl.a3c:A3C",
            "dqn": "lamarckian.rl.dqn:DQN",
            "pg": "lamarckian.rl.pg:PG",
            "imitation": "lamarckian.rl.imitation:Imitation",
        },
        ("policy", "role", "device=", "dtype=", "seed="),
    ),
    "opponents": Kind(
        "league.opponents",
        "lamarckian.opponents",
        {
            "latest": "lamarckian.evaluate.samplers:Latest",
            "uniform": "lamarckian.evaluate.samplers:Uniform",
            "quality": "lamarckian.evaluate.samplers:Quality",
            "pfsp": "lamarckian.evaluate.samplers:PFSP",
            "cycle": "lamarckian.evaluate.samplers:Cycle",
        },
    ),
    "addition": Kind(
        "league.add",
        "lamarckian.additions",
        {
            "steps": "lamarckian.evaluate.additions:Steps",
            "updates": "lamarckian.evaluate.additions:Updates",
            "score": "lamarckian.evaluate.additions:Score",
        },
    ),
    "problem": Kind(
        "problem",
        "lamarckian.problems",
        {
            **{f"zdt{number}": f"lamarckian.ec.problems:ZDT{number}" for number in range(1, 7)},
            **{f"dtlz{number}": f"lamarckian.ec.problems:DTLZ{number}" for number in range(1, 8)},
            **{
                name.lower(): f"lamarckian.ec.problems:{name}"
                for name in (
                    "Sphere",
                    "Ellipsoid",
                    "Rosenbrock",
                    "Rastrigin",
                    "Ackley",
                    "Griewank",
                    "Shubert",
                    "Knapsack",
                    "TSP",
                )
            },
            "command": "lamarckian.evaluate.evaluator:Command",
            "folder": "lamarckian.evaluate.evaluator:Folder",
        },
    ),
    "evolution": Kind(
        "algorithm",
        "lamarckian.evolution",
        {
            "ga": "lamarckian.ec.ga:GA",
            "nsga2": "lamarckian.ec.nsga2:NSGA2",
            "openai-es": "lamarckian.ec.es:OpenAIES",
            "cmaes": "lamarckian.ec.cmaes:CMAES",
            "sep-cmaes": "lamarckian.ec.sep_cmaes:SepCMAES",
            "pso": "lamarckian.ec.pso:PSO",
            "cso": "lamarckian.ec.cso:CSO",
        },
    ),
}
EXTRAS = {"ale_py": "atari", "pettingzoo": "pettingzoo", "ray": "cluster"}


class Section(BaseModel):
    """A plug-in's part of a recipe: its `name`, and beside it the settings of what that names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.__pydantic_extra__ or {})


def names(kind: str) -> dict[str, str]:
    """Every known name of a kind of plug-in, built-in or from an installed package, → `module:Class`."""
    known = {point.name: point.value for point in metadata.entry_points(group=KINDS[kind].group)}
    return known | dict(KINDS[kind].built_in)


def plugin(kind: str, name: str) -> type:
    """The class that `name` stands for: a known name, or `module:Class`.

    Raises RecipeError where there is no such thing, GameError where it needs an extra that is not installed.
    """
    key = f"{KINDS[kind].key}.name"
    if ":" in name:
        return import_class(name, key)
    known = names(kind)
    if name not in known:
        raise RecipeError(f"{key}: {unknown(name, known, f'{KINDS[kind].key}s')}, or module:Class")
    return import_class(known[name], key)


def import_class(target: str, key: str) -> type:
    """Imports `module:Class`, also from the current directory. `key`: where the recipe names it, for the message."""
    module_name, _, class_name = target.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise RecipeError(f"{key}: given {target!r}; allowed: module:Class, such as mygame.rules:MyGame")
    with imports(f"{key}: {target}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name + ".").startswith(error.name + "."):
                raise RecipeError(f"{key}: there is no module '{error.name}' to import {target!r} from") from None
            raise
        except (ImportError, LamarckianError):
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
            raise RecipeError(f"{key}: {target} fails when it is imported: {fault}") from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        classes = [name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__.startswith(module_name)]
        raise RecipeError(f"{key}: {unknown(class_name, classes, f'classes in {module_name}')}")
    return found


@contextmanager
def imports(what: str) -> Iterator[None]:
    """Turns an import that fails within the block into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra:
            raise GameError(f"{what} needs {error.name}, which is not installed: pip install 'lamarckian[{extra}]'") from error
        raise RecipeError(f"{what} cannot be imported: {error}") from error


def settings_model(cls: type, given: Sequence[str] = ()) -> type[BaseModel]:
    """The pydantic model of a plug-in's settings; it forbids unknown keys.

    given: arguments of the constructor that are no settings, as in `Kind`. `*args` and `**kwargs` never are.
    Raises RecipeError where an annotation cannot be turned into a check.
    """
    own = getattr(cls, "Settings", None)
    if own is not None:
        strict = own.model_config.get("extra") == "forbid"
        return own if strict else type(own.__name__, (own,), {"model_config": ConfigDict(extra="forbid"), "__module__": own.__module__})
    constructor: Any = inspect.unwrap(inspect.getattr_static(cls, "__init__"))
    if constructor is object.__init__:
        return create_model(cls.__name__, __config__=ConfigDict(extra="forbid"))
    leading = 1 + sum(not name.endswith("=") for name in given)
    parameters = [
        p
        for p in list(inspect.signature(constructor).parameters.values())[leading:]
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and f"{p.name}=" not in given
    ]
    annotations = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    try:
        hints = typing.get_type_hints(SimpleNamespace(__annotations__=annotations), constructor.__globals__, include_extras=True)
        fields = {p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default) for p in parameters}
        config = ConfigDict(extra="forbid", protected_namespaces=())
        return create_model(cls.__name__, __config__=config, __doc__=cls.__doc__, **fields)  # type: ignore[call-overload,no-any-return]
    except (NameError, PydanticUserError) as error:
        raise RecipeError(f"the settings of {cls.__module__}:{cls.__qualname__} cannot be read from its constructor: {error}") from error


def build(kind: str, section: Section, *args: Any, **kwargs: Any) -> Any:
    """Makes the plug-in that a section of a recipe describes; `args` and `kwargs` are what its kind is given besides settings.

    Raises RecipeError where the settings do not fit, GameError where an extra is missing.
    """
    return construct(plugin(kind, section.name), section.settings, KINDS[kind].key, *args, given=KINDS[kind].given, **kwargs)


def construct(cls: type, settings: Mapping[str, Any], key: str, *args: Any, given: Sequence[str] = (), **kwargs: Any) -> Any:
    """Checks `settings` (of the recipe's section `key`) and calls the constructor with them and with `args` and `kwargs`."""
    checked = dict(validate(settings_model(cls, given), settings, key))
    own = getattr(cls, "Settings", None)
    if own is not None:
        checked = {"settings": own.model_validate(checked)}
    try:
        with imports(f"{key}: {cls.__name__}"):
            return cls(*args, **kwargs, **checked)
    except ValueError as error:
        raise RecipeError(f"{key}: {cls.__name__} refuses its settings: {error}") from error


def validate(model: type[Model], data: Mapping[str, Any], key: str = "") -> Model:
    """`data` as a `model`, by strict types (a number is not a text); lists do for tuples.

    Raises RecipeError, a line for each fault: its key path beneath `key`, what was given, what is allowed.
    """
    try:
        return model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        faults: dict[tuple, list[Any]] = {}
        for fault in error.errors(include_url=False):
            faults.setdefault(_path(fault["loc"], fault["type"] == "missing", data), []).append(fault)
        raise RecipeError("\n".join(_explain(model, data, key, path, those) for path, those in faults.items())) from None


def unknown(given: str, known: Collection[str], what: str) -> str:
    """Says that `given` is unknown, which known name is nearest, and all that are known."""
    near = nearest(given, known)
    return f"given {given!r}; " + (f"nearest: {near}; " if near else "") + f"known {what}: {', '.join(known) or 'none'}"


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name most like `given`, if one is."""
    return next(iter(difflib.get_close_matches(given, list(known), 1, 0.5)), None)


def key_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted paths of a model's keys."""
    for name, field in model.model_fields.items():
        yield prefix + name
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from key_paths(inner, f"{prefix}{name}.")


def _path(location: Sequence[Any], missing: bool, data: Any) -> tuple:
    """The part of pydantic's `location` that is keys of `data`; the rest names members of a union."""
    path, node = [], data
    for part in location:
        try:
            node = node[part]
        except (LookupError, TypeError):
            continue
        path.append(part)
    return (*path, location[-1]) if missing else tuple(path)


def _explain(model: type[BaseModel], data: Any, key: str, path: tuple, faults: Sequence[Any]) -> str:
    dotted = ".".join(map(str, ([key] if key else []) + list(path))) or "recipe"
    if faults[0]["type"] == "missing":
        return f"{dotted}: missing"
    given = json.dumps(faults[0]["input"], default=str, ensure_ascii=False)
    if len(given) > 80:
        given = given[:77] + "..."
    if faults[0]["type"] == "extra_forbidden":
        return f"{dotted}: unknown key, given {given}; " + _known(model, path, key)
    messages = dict.fromkeys(_message(fault) for fault in faults)
    return f"{dotted}: given {given}; allowed: {', or '.join(messages)}"


def _known(model: type[BaseModel], path: tuple, key: str) -> str:
    level: Any = model
    for part in path[:-1]:
        level = _model_in(level.model_fields[part].annotation) if level and part in level.model_fields else level
    own = list(level.model_fields) if level else []
    near = nearest(path[-1], own)
    if near is not None:
        near = ".".join(map(str, ([key] if key else []) + [*path[:-1], near]))
    else:
        elsewhere = {dotted.rpartition(".")[2]: dotted for dotted in key_paths(model)}
        near = elsewhere.get(nearest(path[-1], elsewhere) or "")
        near = f"{key}.{near}" if near and key else near
    return (f"nearest: {near}; " if near else "") + f"known here: {', '.join(own) or 'none'}"


def _message(fault: Any) -> str:
    if fault["type"] == "model_type":
        return "a section of its own (key: value)"
    return fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _model_in(part))), None)
