"""What a learner asks of an algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import BaseModel
from torch import Tensor

from lamarckian.nets import FlatParameters


class Peers(Protocol):
    """The learners that learn together, each from a batch of its own, by one gradient. Every one of them makes the same calls in turn."""

    size: int

    def add(self, numbers: Tensor) -> None:
        """Replaces `numbers`, of the same shape and dtype at all, by their sum over all learners; the same at all to the last bit."""
        ...


class Alone:
    """A learner without peers."""

    size = 1

    def add(self, numbers: Tensor) -> None:
        """Nothing to add."""


class Algorithm(Protocol):
    """Turns fragments into the next version of a policy. Knows nothing of processes, files or games.

    A class of this kind has its settings' model at `Settings`, and is made by
    `Class(policy, role, settings, device=…, dtype=…, seed=…)`. Where it learns another kind of network than `policy`, it says which in its
    attribute `network`: the `kind` of that class, and what a recipe gets that names none.

    Where versions that go on learning play otherwise than they shall as opponents, such as with more exploration, its attribute `opponents`
    says how: by the name of a parameter the setting whose value all of it has in an opponent.

    One whose settings depend on the run's shape has `prepare(steps, endless)`, called before anything starts: how long fragments are, and
    whether nothing in the recipe says when the run ends. It raises RecipeError where they do not fit.

    One that may learn together with others has the attribute `peers`, set before the first update: their updates are as one on all their
    batches, and end in the same parameters. All of them are made alike, with batches of one layout. Where all fragments of a lane must
    come to one of them, it has the attribute `consecutive`, which is True.

    One with a replay has besides `save_replay()`, which gives it as arrays by name (views, good until the next update), and
    `load_replay(arrays)`, called after `load_state_dict`; the newest checkpoint alone holds it, so it must do without, too.
    """

    @property
    def settings(self) -> BaseModel: ...

    @property
    def parameters(self) -> FlatParameters:
        """The policy's parameters; between two updates, what is to be published."""
        ...

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        """One update, in place of the parameters.

        batch: the arrays of a fragment, as `lamarckian.data.fragment.Layout` lists them; nothing in it is written to.
        version: the parameters' version now. progress: how much of the run is done, in [0, 1].
        Returns the metrics by name. Raises `NumericsError`, and leaves the parameters finite, if a loss is not.
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that an exact resume needs; tensors only, copies."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from `state`. Raises `CheckpointError` if it is another algorithm's or another network's."""
        ...


class GradientAlgorithm(Algorithm, Protocol):
    """An algorithm whose actors compute gradients, each on its own fragments with an object of its own; the learner applies them."""

    from_gradients: ClassVar[Literal[True]]

    def publication(self) -> np.ndarray:
        """A version as actors get it, float32: the parameters, and behind them whatever else their gradients depend on."""
        ...

    def adopt(self, publication: np.ndarray) -> None:
        """At an actor: takes the learner's publication. What it writes to is its own."""
        ...

    def gradient(self, batch: Mapping[str, Tensor], version: int) -> dict[str, float]:
        """At an actor: puts the loss's gradient by the adopted `version` into `parameters.gradient`.

        batch: a fragment, as of `Algorithm.update`. Returns the metrics; of these `samples` says how many steps were learned
        from: with 0 there is no gradient. Raises NumericsError, by the name of what is not finite.
        """
        ...

    def update(self, batch: Mapping[str, Tensor], version: int, progress: float) -> dict[str, float]:
        """At the learner: one step, as `Algorithm.update`, by what `lamarckian.data.fragment.gradient_layout` lists."""
        ...


def from_gradients(algorithm: object) -> bool:
    """Whether an algorithm, or its class, is a `GradientAlgorithm`."""
    return getattr(algorithm, "from_gradients", False)


def learns_together(algorithm: object) -> bool:
    """Whether an algorithm, or its class, may have `peers`: not where actors compute the gradients, nor where one learner alone judges
    by recorded matches how it goes on.
    """
    return hasattr(algorithm, "peers") and not from_gradients(algorithm) and not hasattr(algorithm, "validate")


def publication(algorithm: Algorithm | GradientAlgorithm) -> np.ndarray:
    """A version as actors get it, flat, float32; it may be a view, which changes with the parameters."""
    return algorithm.publication() if from_gradients(algorithm) else algorithm.parameters.array()  # type: ignore[union-attr]


def opponent_values(algorithm: object, settings: Mapping[str, Any]) -> dict[str, float]:
    """By the name of a parameter, what all of it is in an opponent by an algorithm, or its class, with these settings."""
    return {name: settings[setting] for name, setting in getattr(algorithm, "opponents", {}).items()}


def opponent(algorithm: Algorithm) -> np.ndarray:
    """The version now as others meet it in a league, flat, float32; it may be a view, which changes with the parameters."""
    flat, given = algorithm.parameters.array(), opponent_values(algorithm, algorithm.settings.model_dump())
    if given:
        flat = flat.copy()
    for entry in algorithm.parameters.manifest:
        if entry.name in given:
            flat[entry.offset : entry.offset + math.prod(entry.shape)] = given[entry.name]
    return flat


class Student(Algorithm, Protocol):
    """An algorithm that learns from recorded matches instead of playing: it has a method `validate`.

    Its settings have `data`, the folder of the matches, and `validation_share`, how much of them is for `validate` alone.
    """

    @property
    def gamma(self) -> np.ndarray:
        """Discounts of the returns that its batches are to have, `[R]`."""
        ...

    def validate(self, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
        """What it thinks of the validation matches, after an epoch, as metrics; among them `validation.loss.policy`, and
        `validation.since_best`: epochs since that was lowest.
        """
        ...
