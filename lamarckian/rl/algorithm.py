"""What a learner asks of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pydantic import BaseModel
from torch import Tensor

from lamarckian.nets import FlatParameters


class Algorithm(Protocol):
    """Turns fragments into the next version of a policy. Knows nothing of processes, files or games.

    A class of this kind has its settings' model at `Settings`, and is made by
    `Class(policy, role, settings, device=…, dtype=…, seed=…)`. Where it learns another kind of network than `policy`, it says which in its
    attribute `network`: the `kind` of that class, and what a recipe gets that names none.

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
