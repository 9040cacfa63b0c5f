"""Who hands versions to whom. Pure arithmetic: a layout of n relays is a list of parents, an index each, or ROOT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

ROOT = -1

Layout = Literal["flat", "tree", "pipeline"]


def flat(n: int) -> list[int]:
    """The root hands to everyone."""
    return [ROOT] * n


def tree(n: int) -> list[int]:
    """The paper's: root, ⌊√n⌋ heads, and the rest spread evenly under them. Three layers at most, out-degrees of about √n."""
    heads = math.isqrt(n)
    return [ROOT] * heads + [leaf % heads for leaf in range(n - heads)]


def pipeline(n: int, degree: int) -> list[int]:
    """Everyone hands to `degree` others, layer by layer: a chain for 1."""
    return [ROOT if place <= degree else (place - 1) // degree - 1 for place in range(1, n + 1)]


def pipeline_degree(n: int, chunks: float) -> int:
    """1 or 2, whichever brings a version of so many chunks to all n relays sooner.

    A node of out-degree k sends k versions over its link, and each layer below it is k chunks later:
    the time is k (chunks + layers − 1), in times that a chunk takes on a link.
    """
    chain, binary = chunks + n - 1, 2 * (chunks + (n + 1).bit_length() - 2)
    return 1 if chain <= binary else 2


def parents(layout: Layout, good: Sequence[str], slow: Sequence[str], chunks: float) -> dict[str, str | None]:
    """The parent of each relay by name; None for the root. Those that are slow have no children wherever others can have them instead.

    chunks: of a version; they decide the degree of a pipeline.
    """
    if layout != "pipeline":
        names = [*good, *slow]
        shape = flat(len(names)) if layout == "flat" else tree(len(names))
        return {name: None if parent == ROOT else names[parent] for name, parent in zip(names, shape, strict=True)}
    shape = pipeline(len(good), pipeline_degree(len(good), chunks))
    found = {name: None if parent == ROOT else good[parent] for name, parent in zip(good, shape, strict=True)}
    return {**found, **{name: good[-1 - index % len(good)] if good else None for index, name in enumerate(slow)}}
