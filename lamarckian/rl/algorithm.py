"""What a learner asks of an algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from pydantic import BaseModel
from torch import Tensor

from lamarckian.nets import FlatParameters


class Algorithm(Protocol):
    """Turns fragments into the next version of a policy. Knows nothing of processes, files or games.

    A class of this kind has its settings' model at `Settings`, and is made by
    `Class(policy, role, settings, device=…, dtype=…, seed=…)`.
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
