"""Fragments: T consecutive steps of B controllers, laid out in one block of memory.

A block is what walks: an actor fills it, its slot number travels, the learner reads it, and nobody copies it on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lamarckian.mdp.spaces import ArraySpec, Role

ALIGNMENT_BYTES = 64

OUTCOMES = (None, "win", "draw", "loss")


@dataclass(frozen=True)
class Field:
    """One array of a fragment: `shape` of an entry behind the axes `[rows, B]`, or `[B]` where `rows` is 0."""

    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Layout:
    """Which arrays a fragment of `steps` × `columns` has, and where they lie in its block.

    | array | shape | |
    | --- | --- | --- |
    | `inputs.<name>` | [T+1, B, …] | observations; the last row is what the fragment's last step led to |
    | `legal.<head>` | [T+1, B, …] | masks |
    | `action.<head>`, `log_prob.<head>` | [T, B, …] | what was done, and its log-probability then, float32 |
    | `value` | [T+1, B, R] | the acting policy's values |
    | `reward` | [T, B, R] | |
    | `terminated`, `truncated`, `learn` | [T, B] | bool |
    | `outcome` | [T, B] | int8, how the match that ends with this step went for the role, an index of `OUTCOMES`; 0 elsewhere |
    | `bootstrap` | [T, B, R] | value of a truncated match's final observation, 0 elsewhere |
    | `missed` | [T, B] | int32, ticks |
    | `version` | [T, B] | int64, the version that acted |
    | `lane` | [B] | int64, whose column it is: the same for consecutive columns of a seat, never for two seats |
    | `column` | [B] | int64, its number among those of its lane, from 0 |
    | `state.<name>` | [B, …] | recurrent state before the first step |
    """

    steps: int
    columns: int
    fields: Mapping[str, Field]
    offsets: Mapping[str, int] = field(init=False)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        offsets, end = {}, 0
        for name, spec in self.fields.items():
            offsets[name] = end
            count = max(spec.rows, 1) * self.columns * int(np.prod(spec.shape, dtype=np.int64))
            end += -(-count * spec.dtype.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "size_bytes", end)

    def plain(self) -> dict[str, Any]:
        """The layout as data that msgpack can say; `from_plain` reads it."""
        fields = {name: [spec.rows, list(spec.shape), spec.dtype.str] for name, spec in self.fields.items()}
        return {"steps": self.steps, "columns": self.columns, "fields": fields}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Layout:
        """The layout that `plain` gave."""
        fields = {name: Field(rows, tuple(shape), np.dtype(code)) for name, (rows, shape, code) in plain["fields"].items()}
        return cls(plain["steps"], plain["columns"], fields)

    def resized(self, steps: int, columns: int) -> Layout:
        """The layout of a fragment of these fields that is shorter, or narrower. Raises ValueError where it would be larger."""
        if not (1 <= steps <= self.steps and 1 <= columns <= self.columns):
            raise ValueError(f"fragments have 1 to {self.steps} steps and 1 to {self.columns} columns, not {steps} and {columns}")
        fields = {name: replace(spec, rows=spec.rows and spec.rows - self.steps + steps) for name, spec in self.fields.items()}
        return Layout(steps, columns, fields)

    def views(self, block: memoryview | bytearray | np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of the fragment in `block`, without a copy."""
        views = {}
        for name, spec in self.fields.items():
            shape = (spec.rows, self.columns, *spec.shape) if spec.rows else (self.columns, *spec.shape)
            views[name] = np.ndarray(shape, spec.dtype, block, self.offsets[name])
        return views

    def empty(self) -> dict[str, np.ndarray]:
        """A fragment in memory of its own, filled with `fill_unwritten`.

        It is aligned as shared blocks are: sums may differ in their last bit by where an array begins.
        """
        block = np.zeros(self.size_bytes + ALIGNMENT_BYTES, np.uint8)
        views = self.views(block[-block.ctypes.data % ALIGNMENT_BYTES :])
        fill_unwritten(views)
        return views


def layout(role: Role, steps: int, columns: int, state: Mapping[str, ArraySpec] | None = None) -> Layout:
    """The layout of fragments of `role`, for a policy whose recurrent state per controller is `state`."""
    rewards = len(role.rewards)
    fields: dict[str, Field] = {}
    for name, spec in role.arrays().items():
        fields[f"inputs.{name}"] = Field(steps + 1, spec.shape, spec.dtype)
    for name, spec in role.masks().items():
        fields[f"legal.{name}"] = Field(steps + 1, spec.shape, spec.dtype)
    for name, head in role.heads.items():
        fields[f"action.{name}"] = Field(steps, head.action.shape, head.action.dtype)
        fields[f"log_prob.{name}"] = Field(steps, (), np.dtype(np.float32))
    fields["value"] = Field(steps + 1, (rewards,), np.dtype(np.float32))
    fields["reward"] = Field(steps, (rewards,), np.dtype(np.float32))
    fields["terminated"] = Field(steps, (), np.dtype(np.bool_))
    fields["truncated"] = Field(steps, (), np.dtype(np.bool_))
    fields["learn"] = Field(steps, (), np.dtype(np.bool_))
    fields["outcome"] = Field(steps, (), np.dtype(np.int8))
    fields["bootstrap"] = Field(steps, (rewards,), np.dtype(np.float32))
    fields["missed"] = Field(steps, (), np.dtype(np.int32))
    fields["version"] = Field(steps, (), np.dtype(np.int64))
    fields["lane"] = fields["column"] = Field(0, (), np.dtype(np.int64))
    for name, spec in (state or {}).items():
        fields[f"state.{name}"] = Field(0, spec.shape, spec.dtype)
    return Layout(steps, columns, fields)


def gradient_layout(fragments: Layout, parameters: int) -> Layout:
    """The layout of what an actor sends that computes gradients: one entry for each of its `fragments`.

    | array | shape | |
    | --- | --- | --- |
    | `gradient` | [1, L] | of the parameters, as they are published, float32 |
    | `version` | [1] | int64, the version it was computed by |
    | `samples` | [1] | int64, steps learned from; with 0 there is no gradient |
    | `reward` | [1, T, B, R] | of the fragment, as in `Layout` |
    """
    reward = fragments.fields["reward"]
    fields = {
        "gradient": Field(0, (parameters,), np.dtype(np.float32)),
        "version": Field(0, (), np.dtype(np.int64)),
        "samples": Field(0, (), np.dtype(np.int64)),
        "reward": Field(0, (reward.rows, fragments.columns, *reward.shape), reward.dtype),
    }
    return Layout(1, 1, fields)


def fill_unwritten(views: Mapping[str, np.ndarray]) -> None:
    """Fills arrays with values that no actor writes (NaN, the least integer), so that a read of unwritten data shows."""
    for array in views.values():
        if array.dtype.kind == "f":
            array.fill(np.nan)
        elif array.dtype.kind == "i":
            array.fill(np.iinfo(array.dtype).min)
