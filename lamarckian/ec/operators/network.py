"""Crossover and mutation of networks' parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamarckian.ec.compiled import njit
from lamarckian.ec.genome import Network
from lamarckian.ec.operators.interface import check_positive, check_share
from lamarckian.ec.stream import STATE_WORDS, open_stream, uniform
from lamarckian.seeding import generator


@dataclass(frozen=True)
class Best:
    """The child takes all of the fitter parent."""

    name: Literal["best"] = "best"
    parts = (Network,)

    def cross(self, part: Network, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        return a.copy()


@dataclass(frozen=True)
class LayerCrossover:
    """Every layer from either parent, with even odds."""

    name: Literal["layer"] = "layer"
    parts = (Network,)

    def cross(self, part: Network, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        _blocks(a, b, child, part.offsets, seed, ids)
        return child


@dataclass(frozen=True)
class ChannelCrossover:
    """Every channel, an entry of its layer's first axis, from either parent, with even odds. In a vector each number is a channel."""

    name: Literal["channel"] = "channel"
    parts = (Network,)

    def cross(self, part: Network, a: np.ndarray, b: np.ndarray, seed: int, ids: np.ndarray) -> np.ndarray:
        child = np.empty_like(a)
        channels = [shape[0] if shape else 1 for _, shape in part.layers]
        widths = np.repeat(np.diff(part.offsets) // channels, channels)
        _blocks(a, b, child, np.concatenate([[0], np.cumsum(widths)]), seed, ids)
        return child


@dataclass(frozen=True)
class NetworkGaussian:
    """Adds normal numbers. deviation: of these; if `relative`, as a share of the layer's root mean square.

    A layer of zeros goes by the root mean square of the whole network, and a network of zeros by 1. gene_probability: of a parameter to
    be mutated.
    """

    deviation: float = 0.02
    relative: bool = False
    gene_probability: float = 1.0
    name: Literal["network_gaussian"] = "network_gaussian"
    parts = (Network,)

    def __post_init__(self) -> None:
        check_positive("network_gaussian: deviation", self.deviation)
        check_share("network_gaussian: gene_probability", self.gene_probability)

    def mutate(self, part: Network, genes: np.ndarray, seed: int, ids: np.ndarray) -> None:
        for row, id in zip(genes, ids, strict=True):
            random = generator(seed, int(id))
            change = random.standard_normal(part.length, np.float32)
            if self.gene_probability < 1.0:
                change *= random.random(part.length, np.float32) < self.gene_probability
            change *= self.deviation * _scales(part, row) if self.relative else np.float32(self.deviation)
            row += change


def _scales(part: Network, row: np.ndarray) -> np.ndarray:
    """The root mean square of every parameter's layer, float32 `[L]`."""
    sizes = np.diff(part.offsets)
    sums = np.add.reduceat(np.square(row, dtype=np.float64), part.offsets[:-1])
    means = np.where(sums > 0.0, sums / sizes, sums.sum() / part.length or 1.0)
    return np.repeat(np.sqrt(means).astype(np.float32), sizes)


@njit
def _blocks(a: np.ndarray, b: np.ndarray, child: np.ndarray, edges: np.ndarray, seed: int, ids: np.ndarray) -> None:
    """Every block from either parent; block i lies between edges i and i + 1."""
    state = np.empty(STATE_WORDS, np.uint64)
    for row in range(len(ids)):
        open_stream(state, seed, ids[row])
        for block in range(len(edges) - 1):
            source = a if uniform(state) < 0.5 else b
            for gene in range(edges[block], edges[block + 1]):
                child[row, gene] = source[row, gene]
