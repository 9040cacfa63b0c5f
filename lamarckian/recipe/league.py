"""The section `league` of a training: who is met in the roles of the agent `league`, and which versions are kept for that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, model_validator

from lamarckian.errors import RecipeError
from lamarckian.plugins import Section, unknown
from lamarckian.recipe.document import Keys, complete

KINDS = ("opponents", "addition")
DEFAULTS = {"opponents": "pfsp", "add": "updates"}

Share: TypeAlias = Annotated[float, Field(gt=0, le=1)]


class League(Keys):
    opponents: Section = Section(name=DEFAULTS["opponents"])
    """How often each past version is met."""
    add: Section = Section(name=DEFAULTS["add"])
    """When the present version becomes a past one."""
    size: Annotated[int, Field(ge=2)] = 50
    """Most past versions; of more, the oldest goes, but never the first."""
    bots: dict[str, Share] = {}
    """Bots of the game, and the share of the matches that are against each."""
    runs: dict[str, Share] = {}
    """Folders of trained runs, whose best checkpoints are met, and the share of each."""
    swap_sides: bool = True
    """Deals the seats of both roles anew in each match; for games of two roles."""
    distinct: Annotated[int, Field(ge=2)] = 4
    """Most opponents that sit in one actor's matches at a time."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.99
    """What a result still counts in the score that `opponents` goes by, after one more match against the same opponent."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Settings without a name are the default's."""
        if not isinstance(data, dict):
            return data
        return {**data, **{key: {"name": name, **data[key]} for key, name in DEFAULTS.items() if isinstance(data.get(key), dict)}}


def complete_league(league: League | None, agents: Mapping[str, str], game: Any) -> League | None:
    """The section with every setting that was left out; None where no role of `agents`, by role, is played by a league.

    Raises RecipeError for any fault.
    """
    if "league" not in agents.values():
        if league is not None:
            raise RecipeError("league: given, but nobody plays it; give a role the agent 'league', or leave the section out")
        return None
    league = league or League()
    bots = getattr(game, "bots", {})
    for name in league.bots:
        if name not in bots:
            raise RecipeError(f"league.bots.{name}: {unknown(name, bots, 'bots of the game')}")
    for folder in league.runs:
        if not (Path(folder) / "recipe.yaml").is_file():
            raise RecipeError(f"league.runs: there is no run at {folder}")
    shares = sum([*league.bots.values(), *league.runs.values()])
    if shares > 1 + 1e-9:
        raise RecipeError(
            f"league.bots, league.runs: given shares that add up to {shares:g}; allowed: 1 in all, the rest is past versions'"
        )
    if league.swap_sides and len(game.roles) != 2:
        raise RecipeError(
            f"league.swap_sides: given true; it is for games of two roles, this one has {len(game.roles)}: {', '.join(game.roles)}; "
            "write league.swap_sides=false"
        )
    if league.swap_sides and any(role != next(iter(game.roles.values())) for role in game.roles.values()):
        raise RecipeError("league.swap_sides: given true; the roles of the game see or do different things; allowed here: false")
    return league.model_copy(
        update={
            "opponents": complete("opponents", league.opponents),
            "add": complete("addition", league.add),
            "runs": {str(Path(folder).resolve()): share for folder, share in league.runs.items()},
        }
    )
