"""Where batches come from that nobody plays: recorded matches, cut into fragments, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lamarckian import seeding
from lamarckian.data.episodes import discounted
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import PoolStatistics
from lamarckian.errors import CheckpointError, RecipeError, RunFolderError
from lamarckian.evaluate.plan import Plan, game_recorded
from lamarckian.learner.batches import Batch, empty_batch
from lamarckian.record.recordings import Recordings, open_recordings
from lamarckian.record.signature import check_signature, differences
from lamarckian.rl.algorithm import Student

COPIED = ("inputs.", "legal.", "action.")


class Study:
    """A learner's fleet without actors: the same folder and seed give the same batches.

    The matches must fit into memory. Those for validation are drawn once; the fragments of the others in a new order each epoch, and each
    is in one batch of it. `learn` is False where a batch or a fragment has fewer steps than there is room for.

    score: of the version that was judged last, −validation loss; None once a later one has been learned.
    """

    actors = 0

    def __init__(self, plan: Plan, student: Student, state: Mapping[str, int] | None) -> None:
        settings: Any = student.settings
        recordings = open_recordings(settings.data)
        check_signature(recordings.signature, plan.role, f"the recorded matches of {recordings.folder}", "recording")
        faults = differences(game_recorded(plan.recipe), recordings.game, "in this recipe", "there")
        if faults:
            raise RecipeError(f"algorithm.data: {recordings.folder} cannot be learned from, for it holds matches of another game: {faults}")
        self.score: float | None = None
        self._student = student
        self._seed = plan.recipe.seed
        self._steps = plan.layout.steps
        kept = {name: field for name, field in plan.layout.fields.items() if name in ("reward", "learn") or name.startswith(COPIED)}
        fields = {name: replace(field, rows=self._steps) for name, field in (kept | {"return": kept["reward"]}).items()}
        self._columns = plan.recipe.learner.batch // self._steps
        self._batch = empty_batch(Layout(self._steps, self._columns, fields), 1)
        for array in self._batch.arrays.values():
            array.fill(0)
        training, validation = split(recordings, settings.validation_share, self._seed)
        self._training = Fragments(recordings, training, kept, student.gamma, self._steps)
        self._validation = Fragments(recordings, validation, kept, student.gamma, self._steps)
        self._epoch, self._position = (state["epoch"], state["position"]) if state else (0, 0)

    def get(self) -> Batch:
        """The next batch; the one before it is overwritten."""
        if self._position >= len(self._training):
            self._epoch, self._position = self._epoch + 1, 0
        order = seeding.generator(self._seed, "study", self._epoch).permutation(len(self._training))
        self._fill(self._training, order[self._position : self._position + self._columns])
        self._position += self._columns
        self.score = None
        return self._batch

    def judge(self) -> dict[str, float] | None:
        """At an epoch's end, what the validation matches say of the student; None in its middle. Call it once after each update."""
        if self._position < len(self._training):
            return None
        found = self._student.validate(self._judged())
        self.score = -found["validation.loss.policy"]
        return {"epoch": self._epoch + 1, **found}

    def recycle(self, batch: Batch) -> None:
        """Nothing to do: the next batch overwrites it."""

    def publish(self, version: int, parameters: np.ndarray) -> None:
        """Nobody plays."""

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(*[0] * len(PoolStatistics.__struct_fields__))

    def save(self) -> dict[str, int]:
        return {"epoch": self._epoch, "position": self._position}

    def close(self) -> None:
        """Holds nothing that needs to be freed."""

    def _judged(self) -> Iterator[Mapping[str, torch.Tensor]]:
        for first in range(0, len(self._validation), self._columns):
            self._fill(self._validation, np.arange(first, min(first + self._columns, len(self._validation))))
            yield self._batch.tensors

    def _fill(self, fragments: Fragments, chosen: np.ndarray) -> None:
        self._batch.arrays["learn"][...] = False
        for column, index in enumerate(chosen.tolist()):
            steps = fragments[index]
            for name, array in self._batch.arrays.items():
                array[: len(steps["learn"]), column] = steps[name]


class Fragments:
    """Matches in memory, cut into fragments of at most `steps` steps; each a dict of arrays `[T, …]`, views."""

    def __init__(self, recordings: Recordings, matches: set[int], fields: Mapping[str, Field], gamma: np.ndarray, steps: int) -> None:
        self._matches: list[dict[str, np.ndarray]] = []
        self._cuts: list[tuple[int, int]] = []
        self._steps = steps
        for entry in recordings.recorded:
            if entry.match in matches:
                arrays = recordings.read(entry)
                _check(arrays, fields, f"{recordings.folder / entry.file}")
                arrays["return"] = discounted(arrays["reward"], np.zeros(len(gamma)), gamma)
                self._cuts += [(len(self._matches), start) for start in range(0, entry.steps, steps)]
                self._matches.append(arrays)

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        match, start = self._cuts[index]
        return {name: array[start : start + self._steps] for name, array in self._matches[match].items()}


def _check(arrays: Mapping[str, np.ndarray], fields: Mapping[str, Field], where: str) -> None:
    """Raises CheckpointError where a file has not what fragments of the role have."""
    for name, field in fields.items():
        wanted = f"{field.dtype} [L, {', '.join(map(str, field.shape))}]"
        if name not in arrays:
            raise CheckpointError(f"{where} lacks the array '{name}', {wanted}")
        if arrays[name].shape[1:] != field.shape or arrays[name].dtype != field.dtype:
            raise CheckpointError(f"{where}: '{name}' must be {wanted}, not {arrays[name].dtype} {list(arrays[name].shape)}")


def split(recordings: Recordings, share: float, seed: int) -> tuple[set[int], set[int]]:
    """The numbers of the matches for training and for validation, at least one each. Raises RunFolderError where there are not two."""
    count = len(recordings.matches)
    if count < 2:
        raise RunFolderError(f"{recordings.folder} has {count} matches; to learn from one and validate by another takes two: record more")
    order = seeding.generator(seed, "validation").permutation(recordings.matches).tolist()
    size = min(max(1, round(share * count)), count - 1)
    return set(order[size:]), set(order[:size])
