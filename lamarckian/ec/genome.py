"""What evolution varies: a genome of named parts. Individuals are rows of arrays, one array a part, never objects.

Genes are kept as they are varied; `Genome.express` turns them into what a problem gets: a logarithmic real as its exponential, a category's
number as the category. Array dtypes: reals float64, whole numbers int64, networks float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from lamarckian.errors import MisuseError

Genes: TypeAlias = dict[str, np.ndarray]
"""Part → `[N, L]`: a row an individual."""


class Part(Protocol):
    """A part of a genome. length: its genes L. dtype: of its array."""

    length: int
    dtype: type

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """`count` rows of random genes."""
        ...

    def fault(self, genes: np.ndarray) -> str | None:
        """What is wrong with genes `[N, L]` of this part, if anything."""
        ...

    def express(self, genes: np.ndarray) -> np.ndarray:
        """The values that the genes stand for; may be the same array."""
        ...

    def encode(self, values: Any) -> np.ndarray:
        """The genes that stand for `values`; undoes `express`."""
        ...


def _array(values: Any, what: str, dtype: type) -> np.ndarray:
    try:
        given = np.asarray(values)
        with np.errstate(invalid="ignore", over="ignore"):
            array: np.ndarray = np.ascontiguousarray(given, dtype)
    except (TypeError, ValueError, OverflowError):
        raise MisuseError(f"{what} must be numbers, not {values!r}") from None
    if dtype is np.int64 and (array != given).any():
        raise MisuseError(f"{what} must be whole numbers, not {values!r}")
    return array


def _vector(value: Any, name: str, dtype: type) -> np.ndarray:
    vector = _array(value, name, dtype)
    if vector.ndim != 1 or not len(vector):
        raise MisuseError(f"{name} must be a list of at least one number, not of shape {vector.shape}")
    return _frozen(vector.copy())


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _bounds(low: Any, high: Any, dtype: type, what: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = _vector(low, f"{what}: low", dtype), _vector(high, f"{what}: high", dtype)
    if len(low) != len(high):
        raise MisuseError(f"{what}: low has {len(low)} genes, high has {len(high)}; give one bound of each kind a gene")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise MisuseError(f"{what}: bounds must be finite")
    if (low > high).any():
        gene = int(np.argmax(low > high))
        raise MisuseError(f"{what}: gene {gene} has low {low[gene]:g} above high {high[gene]:g}; swap them")
    widest = 2.0**52 if dtype is np.int64 else 1e300
    if (0.5 * high - 0.5 * low > 0.5 * widest).any():
        raise MisuseError(f"{what}: bounds may be {widest:g} apart at most")
    return low, high


class _Plain:
    """A part whose values are its genes."""

    dtype: type = np.int64

    def express(self, genes: np.ndarray) -> np.ndarray:
        return genes

    def encode(self, values: Any) -> np.ndarray:
        return np.asarray(values, self.dtype)


class Real:
    """Real numbers between bounds.

    low, high: one number a gene, or one number and a `length`. scale: `log` varies the logarithm; then low must be above 0.
    """

    dtype = np.float64

    def __init__(self, low: Any, high: Any, length: int | None = None, scale: Literal["linear", "log"] = "linear") -> None:
        if scale not in ("linear", "log"):
            raise MisuseError(f"a real part's scale is 'linear' or 'log', not {scale!r}")
        low, high = _bounds(_spread(low, length), _spread(high, length), np.float64, "a real part")
        if scale == "log" and (low <= 0).any():
            raise MisuseError(f"a real part of logarithmic scale has bounds above 0, not low {low.min():g}")
        self.scale = scale
        self._bounds = low, high
        self.low: np.ndarray = _frozen(np.log(low)) if scale == "log" else low
        self.high: np.ndarray = _frozen(np.log(high)) if scale == "log" else high
        self.length = len(low)

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return self.low + (self.high - self.low) * generator.random((count, self.length))

    def fault(self, genes: np.ndarray) -> str | None:
        outside = ~((genes >= self.low) & (genes <= self.high))
        if not outside.any():
            return None
        row, gene = np.argwhere(outside)[0]
        value = np.exp(genes[row, gene]) if self.scale == "log" else genes[row, gene]
        return f"gene {gene} is {value:g}, outside [{self._bounds[0][gene]:g}, {self._bounds[1][gene]:g}]"

    def express(self, genes: np.ndarray) -> np.ndarray:
        return np.clip(np.exp(genes), *self._bounds) if self.scale == "log" else genes  # rounding must not lead out of the bounds

    def encode(self, values: Any) -> np.ndarray:
        values = np.asarray(values, np.float64)
        if self.scale == "linear":
            return values
        genes = np.log(values)
        inside = np.clip(genes, self.low, self.high)
        return np.where(np.isclose(genes, inside, rtol=1e-12, atol=1e-12), inside, genes)  # rounding must not lead out of the bounds


class Integer(_Plain):
    """Whole numbers between bounds, both included. low, high: one number a gene, or one number and a `length`."""

    def __init__(self, low: Any, high: Any, length: int | None = None) -> None:
        self.low, self.high = _bounds(_spread(low, length), _spread(high, length), np.int64, "an integer part")
        self.length = len(self.low)

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(self.low, self.high, (count, self.length), endpoint=True)

    def fault(self, genes: np.ndarray) -> str | None:
        outside = (genes < self.low) | (genes > self.high)
        if not outside.any():
            return None
        row, gene = np.argwhere(outside)[0]
        return f"gene {gene} is {genes[row, gene]}, outside [{self.low[gene]}, {self.high[gene]}]"


class Categorical(Integer):
    """One category a gene, without any order.

    categories: a list of categories and a `length`, or a list of such lists, one a gene; these may differ in length.
    Problems get the categories themselves.
    """

    def __init__(self, categories: Sequence[Any], length: int | None = None) -> None:
        nested = bool(len(categories)) and all(isinstance(entry, list | tuple) for entry in categories)
        if nested and length not in (None, len(categories)):
            raise MisuseError(f"a categorical part lists the categories of {len(categories)} genes, but its length is {length}")
        self.categories = (
            tuple(tuple(entry) for entry in categories) if nested else (tuple(categories),) * (1 if length is None else length)
        )
        for gene, entry in enumerate(self.categories):
            if not entry or len(set(entry)) < len(entry):
                raise MisuseError(f"a categorical part: gene {gene} needs at least one category, each once, not {list(entry)!r}")
        super().__init__([0] * len(self.categories), [len(entry) - 1 for entry in self.categories])
        kinds = {type(category) for entry in self.categories for category in entry}
        table = np.empty((self.length, max(map(len, self.categories))), object)
        for gene, number in np.ndindex(table.shape):
            entry = self.categories[gene]
            table[gene, number] = entry[number % len(entry)]
        self._table = table.astype(kinds.pop()) if len(kinds) == 1 and kinds <= {bool, int, float, str} else table

    def express(self, genes: np.ndarray) -> np.ndarray:
        return self._table[np.arange(self.length), genes]

    def encode(self, values: Any) -> np.ndarray:
        rows = values.tolist() if isinstance(values, np.ndarray) else values
        try:
            genes = [[entry.index(value) for entry, value in zip(self.categories, row, strict=True)] for row in rows]
        except (TypeError, ValueError):
            raise MisuseError(f"a categorical part of {self.length} genes: {rows!r} are not rows of its categories") from None
        return np.array(genes, np.int64).reshape(-1, self.length)


class Permutation(_Plain):
    """An order of `items` things, numbered from 0."""

    def __init__(self, items: int) -> None:
        if items < 2:
            raise MisuseError(f"a permutation has at least 2 items, not {items}")
        self.items = self.length = items

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return generator.permuted(np.tile(np.arange(self.items), (count, 1)), axis=1)

    def fault(self, genes: np.ndarray) -> str | None:
        wrong = (np.sort(genes, axis=1) != np.arange(self.items)).any(axis=1)
        return f"{genes[np.argmax(wrong)].tolist()} is no permutation of 0 to {self.items - 1}" if wrong.any() else None


class Subset(_Plain):
    """`size` of `items` things, numbered from 0, without repetition and without order: a line-up. Genes are sorted."""

    def __init__(self, items: int, size: int) -> None:
        if not 1 <= size <= items:
            raise MisuseError(f"a subset has between 1 and all of its {items} items, not {size}")
        self.items, self.length = items, size

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        rows = [generator.choice(self.items, self.length, replace=False, shuffle=False) for _ in range(count)]
        return np.sort(np.array(rows, np.int64).reshape(count, self.length), axis=1)

    def fault(self, genes: np.ndarray) -> str | None:
        wrong = (genes < 0).any(axis=1) | (genes >= self.items).any(axis=1) | (np.diff(genes, axis=1) <= 0).any(axis=1)
        if not wrong.any():
            return None
        return f"{genes[np.argmax(wrong)].tolist()} is not {self.length} different items of 0 to {self.items - 1} in rising order"

    def encode(self, values: Any) -> np.ndarray:
        return np.sort(super().encode(values), axis=-1)


class Network(_Plain):
    """A network's parameters, flat. Its `layers` say which stretch of the vector belongs to which array.

    layers: (name, shape) in the order in which they lie; a shape's first axis counts as the channels of its layer.
    deviation: of the normal numbers that a fresh network is made of, where the evaluator does not initialise it.
    offsets: where layer i begins, int64 `[layers + 1]`; the last is the length.
    """

    dtype = np.float32

    def __init__(self, layers: Sequence[tuple[str, Sequence[int]]], deviation: float = 0.1) -> None:
        self.layers = tuple((name, tuple(shape)) for name, shape in layers)
        if not self.layers or any(size < 1 for _, shape in self.layers for size in shape):
            raise MisuseError(f"a network part has at least one layer, and no empty one, not {list(layers)!r}")
        self.deviation = deviation
        self.offsets = np.cumsum([0, *(int(np.prod(shape)) for _, shape in self.layers)])
        self.length = int(self.offsets[-1])

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return generator.standard_normal((count, self.length), np.float32) * np.float32(self.deviation)

    def fault(self, genes: np.ndarray) -> str | None:
        finite = np.isfinite(genes)
        return None if finite.all() else f"parameter {int(np.argwhere(~finite)[0][1])} is not finite"


class Genome:
    """Named parts. `parts`: name → part, in order."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        if not parts:
            raise MisuseError("a genome has at least one part, such as Genome({'x': Real(0, 1, length=30)})")
        for name, part in parts.items():
            if not all(hasattr(part, needed) for needed in ("length", "dtype", "sample", "express")):
                raise MisuseError(f"genome part '{name}' must be Real, Integer, Categorical, Permutation, Subset or Network, not {part!r}")
        self.parts: dict[str, Any] = dict(parts)

    @property
    def length(self) -> int:
        """Genes of all parts."""
        return sum(part.length for part in self.parts.values())

    def sample(self, count: int, generator: np.random.Generator) -> Genes:
        """`count` random individuals."""
        return {name: part.sample(count, generator) for name, part in self.parts.items()}

    def express(self, genes: Genes) -> Genes:
        """The values that genes stand for, as problems get them."""
        return {name: part.express(genes[name]) for name, part in self.parts.items()}

    def encode(self, values: Mapping[str, Any]) -> Genes:
        """The genes that stand for `values`."""
        return {name: part.encode(values[name]) for name, part in self.parts.items()}

    def check(self, genes: Mapping[str, Any], what: str) -> Genes:
        """`genes` as arrays of the right types. Raises MisuseError, which begins with `what`, where they do not fit."""
        if set(genes) != set(self.parts):
            raise MisuseError(f"{what}: expected genes of the parts {', '.join(self.parts)}, not {', '.join(genes) or 'none'}")
        rows = None
        checked = {}
        for name, part in self.parts.items():
            array = _array(genes[name], f"{what}: part '{name}'", part.dtype)
            if array.ndim != 2 or array.shape[1] != part.length or rows not in (None, len(array)):
                raise MisuseError(
                    f"{what}: part '{name}' must be of shape [{'N' if rows is None else rows}, {part.length}], not {list(array.shape)}"
                )
            fault = part.fault(array)
            if fault is not None:
                raise MisuseError(f"{what}: part '{name}': {fault}")
            rows, checked[name] = len(array), array
        return checked

    def box(self, who: str) -> tuple[np.ndarray, np.ndarray]:
        """Bounds `[L]` of a genome that is nothing but reals and networks, its parts one behind the other; a network's are infinite.

        Raises MisuseError, which names `who` asks, where another kind of part is there.
        """
        low, high = [], []
        for name, part in self.parts.items():
            if isinstance(part, Real):
                low.append(part.low)
                high.append(part.high)
            elif isinstance(part, Network):
                low.append(np.full(part.length, -np.inf))
                high.append(np.full(part.length, np.inf))
            else:
                raise MisuseError(f"{who} moves in real numbers only; part '{name}' is {type(part).__name__}: use GA or NSGA2")
        return np.concatenate(low), np.concatenate(high)

    def join(self, genes: Genes) -> np.ndarray:
        """The parts one behind the other, float64 `[N, L]`; what `box` describes."""
        if len(self.parts) == 1:
            return np.asarray(next(iter(genes.values())), np.float64)
        return np.concatenate([genes[name] for name in self.parts], axis=1, dtype=np.float64)

    def split(self, flat: np.ndarray) -> Genes:
        """Undoes `join`."""
        genes, start = {}, 0
        for name, part in self.parts.items():
            genes[name] = flat[:, start : start + part.length].astype(part.dtype, copy=False)
            start += part.length
        return genes

    def individual(self, values: Sequence[float], what: str) -> Genes:
        """The genes, `[1, L]` a part, of one individual whose values stand one behind the other.

        Raises MisuseError, which begins with `what`, where they do not fit.
        """
        if len(values) != self.length:
            raise MisuseError(f"{what} must have {self.length} numbers, one a gene, not {len(values)}")
        with np.errstate(invalid="ignore", divide="ignore"):  # of logarithms, which `check` finds
            return self.check(self.encode(self.split(np.array([values], np.float64))), what)

    def signature(self) -> dict[str, Any]:
        """The genome in plain JSON: a checkpoint of another one is refused by it."""
        return {name: {"kind": type(part).__name__, **_plain(part)} for name, part in self.parts.items()}


def _spread(bound: Any, length: int | None) -> Any:
    if length is None or np.ndim(bound) > 0:
        if length is not None and len(bound) != length:
            raise MisuseError(f"{len(bound)} bounds are given for {length} genes")
        return bound
    if length < 1:
        raise MisuseError(f"a part has at least one gene, not {length}")
    return [bound] * length


def _plain(part: Any) -> dict[str, Any]:
    values = {
        name: value for name, value in vars(part).items() if not name.startswith("_") and name not in ("dtype", "offsets", "deviation")
    }
    return {name: _listed(value) for name, value in values.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_listed(entry) for entry in value] if isinstance(value, list | tuple) else value
