"""What a role sees and does: inputs, heads, and the role that joins them.

Shapes in this file are those of one controller at one step; time and batch axes come in front of them later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lamarckian.errors import GameError

VALID = ".valid"


@dataclass(frozen=True)
class ArraySpec:
    """Shape and type of one array."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Vector:
    """A float32 vector `[size]`."""

    size: int

    def arrays(self, name: str) -> dict[str, ArraySpec]:
        return {name: ArraySpec((self.size,), np.dtype(np.float32))}


@dataclass(frozen=True)
class Image:
    """A uint8 image `[channels, height, width]`; networks see it divided by 255."""

    channels: int
    height: int
    width: int

    def arrays(self, name: str) -> dict[str, ArraySpec]:
        return {name: ArraySpec((self.channels, self.height, self.width), np.dtype(np.uint8))}


@dataclass(frozen=True)
class Units:
    """A set of at most `count` units: float32 features `[count, size]`, and `NAME.valid`, bool `[count]`, which are there."""

    count: int
    size: int

    def arrays(self, name: str) -> dict[str, ArraySpec]:
        return {
            name: ArraySpec((self.count, self.size), np.dtype(np.float32)),
            name + VALID: ArraySpec((self.count,), np.dtype(np.bool_)),
        }


Input: TypeAlias = Vector | Image | Units


@dataclass(frozen=True)
class Discrete:
    """A choice among `n` actions; an action is an int in [0, n).

    `masked`: the game says at each step which actions are legal, bool `[n]`, or `[n_given, n]` when `given` is set.
    `given`: an earlier discrete head that this one depends on: its mask has a row for each of that head's actions, and
    `active[i]` says whether this head matters at all once action i was taken there (left out: it always does).
    """

    n: int
    masked: bool = False
    given: str | None = None
    active: tuple[bool, ...] | None = None

    @property
    def action(self) -> ArraySpec:
        return ArraySpec((), np.dtype(np.int32))


@dataclass(frozen=True)
class Continuous:
    """A float32 array of `shape`, each entry within [low, high] (scalars, or arrays of that shape as nested tuples).

    `given` and `active` as in `Discrete`.
    """

    low: float | tuple
    high: float | tuple
    shape: tuple[int, ...]
    given: str | None = None
    active: tuple[bool, ...] | None = None

    @property
    def action(self) -> ArraySpec:
        return ArraySpec(self.shape, np.dtype(np.float32))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound, float32 arrays of `shape`."""
        return tuple(np.broadcast_to(np.asarray(side, np.float32), self.shape).copy() for side in (self.low, self.high))  # type: ignore[return-value]


Head: TypeAlias = Discrete | Continuous


@dataclass(frozen=True)
class Role:
    """A seat in a game: what it sees, what it does, and the names of its rewards."""

    inputs: Mapping[str, Input]
    heads: Mapping[str, Head]
    rewards: tuple[str, ...] = ("score",)

    def __post_init__(self) -> None:
        if not self.inputs or not self.heads or not self.rewards:
            raise GameError("a role needs at least one input, one head and one reward name")
        seen: dict[str, Head] = {}
        for name, head in self.heads.items():
            if head.active is not None and head.given is None:
                raise GameError(f"head '{name}': `active` needs `given`, the earlier head that it depends on")
            if head.given is not None:
                earlier = seen.get(head.given)
                if not isinstance(earlier, Discrete):
                    raise GameError(f"head '{name}': `given` must name an earlier discrete head, of {list(seen)}, not '{head.given}'")
                if head.active is not None and len(head.active) != earlier.n:
                    wanted = f"{earlier.n} entries, one for each action of '{head.given}'"
                    raise GameError(f"head '{name}': `active` must have {wanted}, not {len(head.active)}")
            seen[name] = head

    def arrays(self) -> dict[str, ArraySpec]:
        """Every array of an observation's `inputs`, by name."""
        return {name: spec for key, space in self.inputs.items() for name, spec in space.arrays(key).items()}

    def masks(self) -> dict[str, ArraySpec]:
        """Every array of an observation's `legal`, by head: bool `[n]`, or `[n_given, n]` for a conditional mask."""
        masks = {}
        for name, head in self.heads.items():
            if isinstance(head, Discrete) and head.masked:
                given = () if head.given is None else (self.heads[head.given].n,)  # type: ignore[union-attr]
                masks[name] = ArraySpec((*given, head.n), np.dtype(np.bool_))
        return masks
