"""Refusals of settings that would do nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from lamarckian.errors import RecipeError


def is_default(settings: BaseModel, name: str) -> bool:
    """Whether a setting has its default: a recipe holds all settings, so it does not show which of them were given."""
    return bool(getattr(settings, name) == type(settings).model_fields[name].default)


def require_default(settings: BaseModel, names: Iterable[str], why: str) -> None:
    """Raises RecipeError where one of these settings differs from its default, since nothing uses it; `why` says that."""
    for name in names:
        if not is_default(settings, name):
            raise RecipeError(f"algorithm.{name}: given {getattr(settings, name)!r}; {why}: leave it out")


def require_constant(setting: str, given: Any, constant: Any) -> None:
    """Raises RecipeError for a setting by which something changes over the run, in one that has no end. constant: what changes nothing."""
    if given != constant:
        raise RecipeError(
            f"algorithm.{setting}: given {given!r}; it goes by the share of the run that is done, and this run has no end: "
            f"give {constant!r}, or stop.steps, stop.updates or stop.minutes"
        )
