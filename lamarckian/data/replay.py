"""Replay: the newest columns of what was played, bounded in bytes, from which single steps are drawn again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import psutil
from numba import njit

from lamarckian.data.frames import FrameStore
from lamarckian.data.sumtree import SumTree
from lamarckian.errors import CheckpointError, RecipeError
from lamarckian.mdp.spaces import ArraySpec, Image, Role
from lamarckian.recipe.sizes import text

Array = TypeVar("Array")
Other = TypeVar("Other")


class Windows(NamedTuple, Generic[Array]):
    """K steps, each with what came of it over a window of at most n steps.

    inputs: what was seen `[K, …]`, by input. actions: what was done, by head. returns: Σ_i γ^i r_i over the window, float32 `[K, R]`.
    discount: γ^k of a window of k steps, 0 where it ends with the match, float32 `[K]`. next_inputs, next_legal: what the window led to.
    version: that acted, int64 `[K]`.
    """

    inputs: dict[str, Array]
    actions: dict[str, Array]
    returns: Array
    discount: Array
    next_inputs: dict[str, Array]
    next_legal: dict[str, Array]
    version: Array

    def map(self, function: Callable[[Array], Other]) -> Windows[Other]:
        """The same with `function` of each array."""

        def each(arrays: Mapping[str, Array]) -> dict[str, Other]:
            return {name: function(x) for name, x in arrays.items()}

        return Windows(
            each(self.inputs),
            each(self.actions),
            function(self.returns),
            function(self.discount),
            each(self.next_inputs),
            each(self.next_legal),
            function(self.version),
        )


class Sequences(NamedTuple, Generic[Array]):
    """K whole columns of T steps, for networks that remember; each step with what came of it, as in `Windows`.

    inputs `[K, T+1, …]`, by input; legal `[K, T+1, …]` and actions `[K, T, …]`, by head; state: before the first step `[K, …]`, by name.
    first: bool `[K, T+1]`, where a match begins. learn: bool `[K, T]`, which steps may be learned from.
    returns `[K, T, R]`, discount `[K, T]`; ends: the row that a window led to, int64 `[K, T]`. version `[K]`: that acted first.
    """

    inputs: dict[str, Array]
    legal: dict[str, Array]
    actions: dict[str, Array]
    state: dict[str, Array]
    first: Array
    learn: Array
    returns: Array
    discount: Array
    ends: Array
    version: Array

    def map(self, function: Callable[[Array], Other]) -> Sequences[Other]:
        """The same with `function` of each array."""
        return Sequences(*({k: function(x) for k, x in f.items()} if isinstance(f, dict) else function(f) for f in self))  # type: ignore[arg-type, union-attr]


class Replay:
    """A ring of columns, each T consecutive steps of one lane with what they led to. Step t of column c is the entry c T + t; or, where a
    network's recurrent `state` is kept, the whole column c is the entry c.

    Steps are drawn in proportion to their priorities, at first the highest that any had (Schaul et al. 2016,
    https://arxiv.org/abs/1511.05952). Never drawn are steps that a script decided (`learn` is False), and those that were truncated: their
    final observation is not kept. Of images each frame is stored once, see `FrameStore`.

    size_bytes: what all may take; a column that needs more than others, for its images begin anew, drives out the older ones sooner.
    samples: how many steps it holds at most, but one column at least; None for as many as there is room for.
    state: the recurrent state of a controller, which is kept as it was before a column's first step.
    Raises RecipeError where not even one column has room.
    """

    def __init__(
        self, role: Role, steps: int, size_bytes: int, samples: int | None = None, state: Mapping[str, ArraySpec] | None = None
    ) -> None:
        self.steps = steps
        self.eligible = 0
        """Entries that can be drawn."""
        self._unit = 1 if state else steps  # entries of a column
        self.highest = 1.0
        """The highest priority that any step had."""
        images = {name: space.arrays(name)[name].shape for name, space in role.inputs.items() if isinstance(space, Image)}
        plain: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            **{f"inputs.{name}": ((steps + 1, *spec.shape), spec.dtype) for name, spec in role.arrays().items() if name not in images},
            **{f"legal.{name}": ((steps + 1, *spec.shape), spec.dtype) for name, spec in role.masks().items()},
            **{f"action.{name}": ((steps, *head.action.shape), head.action.dtype) for name, head in role.heads.items()},
            "reward": ((steps, len(role.rewards)), np.dtype(np.float32)),
            **{name: ((steps,), np.dtype(np.bool_)) for name in ("terminated", "truncated", "learn")},
            "version": ((steps,), np.dtype(np.int64)),
            **{f"state.{name}": (spec.shape, spec.dtype) for name, spec in (state or {}).items()},
        }
        usual = {name: steps + shape[0] for name, shape in images.items()}  # frames of a column in which no match begins
        self._column_bytes = (
            sum(math.prod(shape) * dtype.itemsize for shape, dtype in plain.values())
            + sum(usual[name] * math.prod(shape[1:]) + 8 * (steps + 1) for name, shape in images.items())
            + 16 * self._unit  # of the tree
        )
        columns = size_bytes // self._column_bytes
        if samples is not None:
            columns = min(columns, max(samples // steps, 1))
        if columns < 1:
            raise RecipeError(
                f"a replay of {text(size_bytes)} has no room for a single fragment's column: {steps} steps of this game take "
                f"{text(self._column_bytes)}; give it more, or a shorter actor.fragment"
            )
        self._columns = columns
        self._arrays = {name: np.empty((columns, *shape), dtype) for name, (shape, dtype) in plain.items()}
        self._images = {
            name: FrameStore(columns, steps + 1, max(columns * usual[name], (steps + 1) * shape[0]), shape)
            for name, shape in images.items()
        }
        self._inputs, self._masks, self._heads, self._states = list(role.arrays()), list(role.masks()), list(role.heads), list(state or {})
        self._tree = SumTree(columns * self._unit)
        self._next = self._held = self._used = 0

    @property
    def capacity(self) -> int:
        """Steps that there is room for."""
        return self._columns * self.steps

    @property
    def eligible_samples(self) -> int:
        """Steps that can be drawn, or of columns that can."""
        return self.eligible * self.steps // self._unit

    @property
    def full(self) -> bool:
        """Whether old columns make way for new ones."""
        return self._held == self._columns or self._held < self._used

    @property
    def samples(self) -> int:
        """Steps that it holds."""
        return self._held * self.steps

    @property
    def size_bytes(self) -> int:
        """What the columns that it holds take."""
        return self._held * self._column_bytes

    def add(self, fragment: Mapping[str, np.ndarray]) -> None:
        """Takes the columns of a fragment, in the order of its lanes; the oldest go."""
        for lane in range(fragment["reward"].shape[1]):
            ends = {name: store.plan(fragment[f"inputs.{name}"], lane) for name, store in self._images.items()}
            while self._held == self._columns or (
                self._held and not all(store.fits(self._oldest, ends[name]) for name, store in self._images.items())
            ):
                self._assign(self._oldest, np.zeros(self._unit))
                self._held -= 1
            place = self._next
            for name, array in self._arrays.items():
                array[place] = fragment[name][lane] if name.startswith("state.") else fragment[name][:, lane]
            for name, store in self._images.items():
                store.write(place, fragment[f"inputs.{name}"], lane, ends[name])
            learn = self._learnable(place)
            self._assign(place, np.where(learn if self._unit > 1 else learn.any(keepdims=True), self.highest, 0.0))
            self._next = (place + 1) % self._columns
            self._held += 1
            self._used = max(self._used, place + 1)

    def draw(self, uniform: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """K entries in proportion to their priorities, int64 `[K]`, one from each of K equal parts of their sum; and their weights.

        uniform: float64 `[K]` in [0, 1), which decides. Weights: (N P(i))^−β over the largest of them, float32 `[K]` (eq. in §3.4).
        Several rows, `[…, K]`, are several draws.
        """
        entries = self._tree.draw(uniform)
        chance = self._tree.priorities[entries] / self._tree.total
        weights = (self.eligible * chance) ** -beta
        return entries, (weights / weights.max(axis=-1, keepdims=True)).astype(np.float32)

    def prioritise(self, entries: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of entries that were drawn, float64 `[K]`, above 0: p^α of Schaul et al."""
        self._tree.update(entries, priorities)
        self.highest = max(self.highest, float(priorities.max()))

    def windows(self, entries: np.ndarray, n: int, gamma: float) -> Windows[np.ndarray]:
        """The steps at `entries`, each with its window: it ends after `n` steps, with the match, where the column ends, or before a step
        that was truncated. It goes on over steps that a script decided: they are part of the game, and their values are never learned.
        """
        columns, steps = entries // self.steps, entries % self.steps
        arrays = self._arrays
        returns, discount = np.zeros((len(entries), arrays["reward"].shape[2]), np.float32), np.empty(len(entries), np.float32)
        ends = np.empty(len(entries), np.int64)
        _window(
            arrays["reward"], arrays["terminated"], arrays["truncated"], arrays["learn"], columns, steps, n, gamma, returns, discount, ends
        )
        return Windows(
            {name: self._input(name, columns, steps) for name in self._inputs},
            {name: arrays[f"action.{name}"][columns, steps] for name in self._heads},
            returns,
            discount,
            {name: self._input(name, columns, ends) for name in self._inputs},
            {name: arrays[f"legal.{name}"][columns, ends] for name in self._masks},
            arrays["version"][columns, steps],
        )

    def sequences(self, columns: np.ndarray, n: int, gamma: float) -> Sequences[np.ndarray]:
        """Whole columns, with the window of each of their steps as in `windows`."""
        arrays, (k, t) = self._arrays, (len(columns), self.steps)
        each = np.repeat(columns, t + 1), np.tile(np.arange(t + 1), k)
        returns, discount = np.zeros((k * t, arrays["reward"].shape[2]), np.float32), np.empty(k * t, np.float32)
        ends, starts = np.empty(k * t, np.int64), (np.repeat(columns, t), np.tile(np.arange(t), k))
        _window(arrays["reward"], arrays["terminated"], arrays["truncated"], arrays["learn"], *starts, n, gamma, returns, discount, ends)
        first = np.zeros((k, t + 1), np.bool_)
        first[:, 1:] = arrays["terminated"][columns] | arrays["truncated"][columns]
        return Sequences(
            {name: _by_column(self._input(name, *each), k) for name in self._inputs},
            {name: arrays[f"legal.{name}"][columns] for name in self._masks},
            {name: arrays[f"action.{name}"][columns] for name in self._heads},
            {name: arrays[f"state.{name}"][columns] for name in self._states},
            first,
            self._learnable(columns),
            _by_column(returns, k),
            _by_column(discount, k),
            _by_column(ends, k),
            arrays["version"][columns, 0],
        )

    def save(self) -> dict[str, np.ndarray]:
        """All that it holds; views, good until the next `add`."""
        used = self._used
        state = {name: array[:used] for name, array in self._arrays.items()}
        for name, store in self._images.items():
            state |= {f"image.{name}.{key}": array for key, array in store.save(used).items()}
        counts = np.array([self._columns, self._next, self._held, self.eligible])
        return state | {"priorities": self._tree.priorities[: used * self._unit], "highest": np.array(self.highest), "counts": counts}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from `state`. Raises CheckpointError where that is of a replay of another size or of another game."""
        mine, columns = self.save(), int(state["counts"][0])
        same = state.keys() == mine.keys() and all(state[name].shape[1:] == array.shape[1:] for name, array in mine.items())
        if not same or columns != self._columns:
            raise CheckpointError(
                f"the saved replay does not fit: it has room for {columns:,} columns of {state['reward'].shape[1]} steps, "
                f"this one for {self._columns:,} of {self.steps}; leave algorithm.replay_size, algorithm.replay_samples and actor.fragment "
                "as they were, or delete the checkpoint's replay.safetensors to begin with an empty one"
            )
        _, self._next, self._held, self.eligible = state["counts"].tolist()
        self._used = len(state["reward"])
        self.highest = float(state["highest"])
        for name, array in self._arrays.items():
            array[: self._used] = state[name]
        for name, store in self._images.items():
            store.load({key: state[f"image.{name}.{key}"] for key in ("frames", "ends", "count")})
        self._tree.assign(0, state["priorities"])

    @property
    def _oldest(self) -> int:
        return (self._next - self._held) % self._columns

    def _assign(self, column: int, priorities: np.ndarray) -> None:
        start = column * self._unit
        before = self._tree.priorities[start : start + self._unit]
        self.eligible += int(np.count_nonzero(priorities)) - int(np.count_nonzero(before))
        self._tree.assign(start, priorities)

    def _learnable(self, columns: np.ndarray | int) -> np.ndarray:
        """Which steps of columns may be learned from, bool `[…, T]`."""
        arrays = self._arrays
        return arrays["learn"][columns] & (arrays["terminated"][columns] | ~arrays["truncated"][columns])

    def _input(self, name: str, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if name in self._images:
            return self._images[name].read(columns, rows)
        return self._arrays[f"inputs.{name}"][columns, rows]


def _by_column(x: np.ndarray, columns: int) -> np.ndarray:
    return x.reshape(columns, -1, *x.shape[1:])


def require_memory(size_bytes: int, setting: str) -> None:
    """Raises RecipeError where this machine has not as many bytes of memory free."""
    available = psutil.virtual_memory().available
    if size_bytes > available:
        raise RecipeError(
            f"{setting}: given {text(size_bytes)}; this machine has {text(psutil.virtual_memory().total)} of memory, "
            f"{text(available)} of it free; allowed: less than that"
        )


@njit(cache=True, nogil=True)
def _window(reward, terminated, truncated, learn, columns, steps, n, gamma, returns, discount, ends):  # type: ignore[no-untyped-def]
    for k in range(columns.size):
        c, row = columns[k], steps[k]
        factor = 1.0
        while True:
            for r in range(returns.shape[1]):
                returns[k, r] += factor * reward[c, row, r]
            factor *= gamma
            row += 1
            if terminated[c, row - 1]:
                factor = 0.0
                break
            if row == reward.shape[1] or (truncated[c, row] and not terminated[c, row]) or (row - steps[k] >= n and learn[c, row]):
                break
        discount[k] = factor
        ends[k] = row
