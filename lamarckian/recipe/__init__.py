"""Recipes: the YAML that says everything about a run. Read, checked and completed here, before anything starts.

There are two kinds: a training has a `game`, an evolution a `problem`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from lamarckian.errors import RecipeError
from lamarckian.recipe import evolution, training
from lamarckian.recipe.document import built_in, find, override, parse
from lamarckian.recipe.evolution import EvolutionRecipe, EvolutionStop
from lamarckian.recipe.schema import schema
from lamarckian.recipe.training import AGENTS, Player, Recipe, Stop, batched_obstacles, build_bot, player_class, resolve

__all__ = [
    "AGENTS",
    "AnyRecipe",
    "EvolutionRecipe",
    "EvolutionStop",
    "Player",
    "Recipe",
    "Stop",
    "batched_obstacles",
    "build_bot",
    "built_in",
    "load",
    "load_any",
    "player_class",
    "resolve",
    "resolve_any",
    "schema",
]

AnyRecipe: TypeAlias = Recipe | EvolutionRecipe
Kind = TypeVar("Kind", Recipe, EvolutionRecipe)
_COMMANDS = {Recipe: ("trains a game", "train"), EvolutionRecipe: ("evolves a problem", "evolve")}


def load(name_or_path: str | Path, overrides: Iterable[str] = (), kind: type[Kind] = Recipe) -> Kind:  # type: ignore[assignment]
    """The recipe of a built-in name or at a path, with `key.path=value` applied to it.

    Raises RecipeError for any fault in the recipe, or where it is not of this `kind`; GameError where the game needs something that is not
    there.
    """
    recipe = load_any(name_or_path, overrides)
    if not isinstance(recipe, kind):
        does, command = _COMMANDS[type(recipe)]
        raise RecipeError(f"recipe {name_or_path} {does}: use `lamarckian {command}`")
    return recipe


def load_any(name_or_path: str | Path, overrides: Iterable[str] = ()) -> AnyRecipe:
    """As `load`, whichever kind it is."""
    where, text = find(str(name_or_path))
    try:
        document = parse(text)
        for change in overrides:
            override(document, change)
        return resolve_any(document)
    except RecipeError as error:
        raise RecipeError(f"recipe {where}: " + str(error).replace("\n", "\n  ")) from error.__cause__


def resolve_any(document: Mapping[str, Any]) -> AnyRecipe:
    """A checked recipe from its plain form, whichever kind it is. Raises as `load`."""
    return evolution.resolve(document) if "problem" in document and "game" not in document else training.resolve(document)
