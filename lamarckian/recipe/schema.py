"""The JSON schema of recipes, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lamarckian.errors import GameError, RecipeError
from lamarckian.plugins import KINDS, names, plugin, settings_model
from lamarckian.recipe import evolution, league, training


def schema() -> dict[str, Any]:
    """The JSON schema of recipes, with the settings of every plug-in that can be imported here."""
    forms = [_form(training.Recipe, (*training.KINDS, *league.KINDS)), _form(evolution.EvolutionRecipe, evolution.KINDS)]
    definitions = forms[0].pop("$defs") | forms[1].pop("$defs")
    return {"oneOf": forms, "$defs": definitions}


def _form(model: type[BaseModel], kinds: tuple[str, ...]) -> dict[str, Any]:
    document = model.model_json_schema()
    for kind in kinds:
        forms = [_plugin_schema(kind, name, document["$defs"]) for name in names(kind)]
        section, _, key = KINDS[kind].key.rpartition(".")
        place = document["$defs"][section.capitalize()] if section else document
        place["properties"][key] = {"oneOf": [*forms, _OTHER]}
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
