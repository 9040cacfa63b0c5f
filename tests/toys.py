"""A small game, network and algorithm: what a user's own plug-ins look like, for tests of recipes and of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lamarckian.mdp import Continuous, Discrete, Role, Vector


class Careful:
    def __init__(self, *, skill: Annotated[float, Field(ge=0, le=1)] = 1.0) -> None:
        self.skill = skill


class Careless:
    pass


class Wind(BaseModel):
    model_config = ConfigDict(extra="forbid")

    speed: Annotated[float, Field(gt=0)] = 1.0
    gusts: bool = False


class Duel:
    """A duel."""

    bots: Mapping[str, type] = {"careful": Careful, "careless": Careless}

    def __init__(
        self,
        field: Annotated[int, Field(ge=8, le=64)],
        sides: Literal["alike", "unlike"] = "alike",
        wind: Wind = Wind(),  # noqa: B008
        weights: tuple[float, ...] = (1.0,),
        limit: Annotated[int, Field(ge=1)] | Literal["none"] = "none",
    ) -> None:
        if field == 13:
            raise ValueError("13 is bad luck")
        self.settings = {"field": field, "sides": sides, "wind": wind, "weights": weights, "limit": limit}
        left = Role({"vector": Vector(4)}, {"move": Discrete(3)})
        right = left if sides == "alike" else Role({"vector": Vector(4)}, {"move": Continuous(-1.0, 1.0, (2,))})
        self.roles = {"left": left, "right": right}

    def start(self, seed: int) -> Any:
        raise NotImplementedError


class FastDuel(Duel):
    def start_many(self, size: int, seed: int) -> Any:
        raise NotImplementedError


class Solo:
    """A game for one."""

    def __init__(self) -> None:
        self.roles = {"player": Role({"vector": Vector(4)}, {"move": Discrete(3)})}

    def start(self, seed: int) -> Any:
        raise NotImplementedError


class Net:
    def __init__(self, role: Role, /, hidden: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = [64, 64]) -> None:  # noqa: B006
        self.role = role
        self.hidden = hidden


class Learning:
    class Settings(BaseModel):
        learning_rate: Annotated[float, Field(gt=0, description="step size")] = 3e-4
        epochs: Annotated[int, Field(ge=1)] = 2

    def __init__(self, policy: Net, role: Role, *, settings: Settings, device: str) -> None:
        self.policy = policy
        self.settings = settings
        self.device = device


class Unreadable:
    def __init__(self, board: SomethingElsewhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass
