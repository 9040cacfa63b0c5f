"""Recipes as documents: where they are found, how they are read, and how `key.path=value` changes them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

from lamarckian.errors import RecipeError
from lamarckian.plugins import KINDS, Section, nearest, plugin, settings_model, validate

Count: TypeAlias = Annotated[int, Field(ge=1)]
Window: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Auto: TypeAlias = Literal["auto"]


class Keys(BaseModel):
    """A section whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def dump(self) -> str:
        """The section as YAML, with every setting that was left out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def complete(kind: str, section: Section) -> Section:
    """A plug-in's section with every setting that was left out. Raises RecipeError where one does not fit."""
    settings = validate(settings_model(plugin(kind, section.name), KINDS[kind].given), section.settings, KINDS[kind].key)
    return Section(name=section.name, **settings.model_dump(mode="json"))


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


def find(name: str) -> tuple[str, str]:
    """The name and the text of a built-in recipe, or of one at a path. Raises RecipeError where there is none."""
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


def parse(text: str) -> dict[str, Any]:
    """A recipe's text as a plain document. Raises RecipeError where it is none."""
    document = _read(text)
    if not isinstance(document, dict):
        raise RecipeError("a recipe has keys at its top: game, roles, … for a training; problem, algorithm, … for an evolution")
    return document


def override(document: dict[str, Any], change: str) -> None:
    """Applies `key.path=value` to a document. Raises RecipeError where that is not of this form, or leads nowhere."""
    path, equals, value = change.partition("=")
    if not equals or not all(path.split(".")):
        raise RecipeError(f"cannot use {change!r}; an override reads key.path=value, such as learner.batch=4096")
    *sections, key = path.split(".")
    for depth, section in enumerate(sections):
        inner = document.get(section)
        if inner is None:
            inner = document[section] = {}
        if not isinstance(inner, dict):
            raise RecipeError(f"{path}: {'.'.join(sections[: depth + 1])} has no keys in it, it is {inner!r}")
        document = inner
    document[key] = _read(value)
