"""Where batches come from that nobody plays: recorded matches, cut into fragments, epoch by epoch."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lamarckian import seeding
from lamarckian.cluster.machine import cores
from lamarckian.data.episodes import discounted
from lamarckian.data.fragment import Field, Layout
from lamarckian.data.pool import PoolStatistics
from lamarckian.errors import CheckpointError, RecipeError, RunFolderError
from lamarckian.evaluate.plan import Plan, game_recorded
from lamarckian.learner.batches import Batch, empty_batch
from lamarckian.mdp import Discrete, Role
from lamarckian.record.recordings import Recordings, open_recordings
from lamarckian.record.signature import check_signature, differences
from lamarckian.record.status import MachineStatus, Processes
from lamarckian.rl.algorithm import Student

COPIED = ("inputs.", "legal.", "action.")


class Study:
    """A learner's fleet without actors: the same folder and seed give the same batches.

    The matches must fit into memory. Those for validation are drawn once; the fragments of the others in a new order each epoch, and each
    is in one batch of it. `learn` is False where a batch or a fragment has fewer steps than there is room for. A resumed run goes on with
    those that it began with, also where the folder has got more.

    score: of the version that was judged last, −validation loss; None once a later one has been learned.
    """

    actors = 0

    def __init__(self, plan: Plan, student: Student, state: Mapping[str, Any] | None) -> None:
        settings: Any = student.settings
        recordings = open_recordings(settings.data)
        if state is not None:
            recordings = _as_begun(recordings, state["files"], state["digest"])
        self._begun = {"files": len(recordings.recorded), "digest": recordings.digest}
        check_signature(recordings.signature, plan.role, f"the recorded matches of {recordings.folder}", "recording")
        faults = differences(game_recorded(plan.recipe), recordings.game, "in this recipe", "there")
        if faults:
            raise RecipeError(f"algorithm.data: {recordings.folder} cannot be learned from, for it holds matches of another game: {faults}")
        self.score: float | None = None
        self._processes = Processes()
        self._student = student
        self._seed = plan.recipe.seed
        self._steps = plan.layout.steps
        kept = {name: field for name, field in plan.layout.fields.items() if name in ("reward", "learn") or name.startswith(COPIED)}
        fields = {name: replace(field, rows=self._steps) for name, field in (kept | {"return": kept["reward"]}).items()}
        self._columns = plan.recipe.learner.batch // self._steps
        self._batch = empty_batch(Layout(self._steps, self._columns, fields), 1)
        self._batch.filled = self._filled = np.zeros((self._steps, self._columns), np.bool_)
        for array in self._batch.arrays.values():
            array.fill(0)
        training, validation = split(recordings, settings.validation_share, self._seed)
        self._training = Fragments(recordings, training, plan.role, kept, student.gamma, self._steps)
        self._validation = Fragments(recordings, validation, plan.role, kept, student.gamma, self._steps)
        for what, fragments in (("training", self._training), ("validation", self._validation)):
            if not fragments.learnable:
                raise RunFolderError(
                    f"{recordings.folder}: the matches for {what} have no step to learn from, `learn` is false in all of them; "
                    "record more, or change algorithm.validation_share or the seed"
                )
        self._epoch: int = state["epoch"] if state else 0
        self._position: int = state["position"] if state else 0

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

    def metrics(self) -> dict[str, float]:
        return {}

    def machines(self, version: int) -> list[MachineStatus]:
        return [self._processes.machine("learner", platform.node(), cores(), {"learner": (os.getpid(), 0)}, version, 0)]

    def save(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "position": self._position, **self._begun}

    def close(self) -> None:
        """Holds nothing that needs to be freed."""

    def _judged(self) -> Iterator[Mapping[str, torch.Tensor]]:
        for first in range(0, len(self._validation), self._columns):
            self._fill(self._validation, np.arange(first, min(first + self._columns, len(self._validation))))
            yield self._batch.tensors

    def _fill(self, fragments: Fragments, chosen: np.ndarray) -> None:
        self._batch.arrays["learn"][...] = self._filled[...] = False
        for column, index in enumerate(chosen.tolist()):
            steps = fragments[index]
            for name, array in self._batch.arrays.items():
                array[: len(steps["learn"]), column] = steps[name]
            self._filled[: len(steps["learn"]), column] = True


class Fragments:
    """Matches in memory, cut into fragments of at most `steps` steps; each a dict of arrays `[T, …]`, views.

    learnable: how many steps there are to learn from.
    """

    def __init__(
        self, recordings: Recordings, matches: set[int], role: Role, fields: Mapping[str, Field], gamma: np.ndarray, steps: int
    ) -> None:
        self._matches: list[dict[str, np.ndarray]] = []
        self._cuts: list[tuple[int, int]] = []
        self._steps = steps
        self.learnable = 0
        for entry in recordings.recorded:
            if entry.match in matches:
                arrays = recordings.read(entry)
                _check(arrays, fields, f"{recordings.folder / entry.file}")
                _check_actions(role, arrays, f"{recordings.folder / entry.file}")
                self.learnable += int(arrays["learn"].sum())
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


def _check_actions(role: Role, arrays: Mapping[str, np.ndarray], where: str) -> None:
    """Raises CheckpointError where a step to learn from has an action out of its range, or one that matters and its mask forbids."""
    steps = arrays["learn"].nonzero()[0]
    lanes, everywhere = np.arange(len(steps)), np.ones(len(steps), np.bool_)
    actions = {name: arrays[f"action.{name}"][steps] for name in role.heads}
    active: dict[str, np.ndarray] = {}
    for name, head in role.heads.items():
        action, what = actions[name], f"{where}: action.{name}"
        low, high = (0, head.n - 1) if isinstance(head, Discrete) else head.bounds()
        inside: Any = ((action >= low) & (action <= high)).all(axis=tuple(range(1, action.ndim)))
        _refuse_action(~inside, steps, action, what, f"allowed: {low} to {high}")
        if head.given is not None and head.active is not None:
            active[name] = np.array(head.active)[actions[head.given]] & active.get(head.given, everywhere)
        if f"legal.{name}" in arrays:
            legal = arrays[f"legal.{name}"][steps]
            row = legal if head.given is None else legal[lanes, actions[head.given]]
            _refuse_action(~row[lanes, action] & active.get(name, everywhere), steps, action, what, f"which legal.{name} forbids there")


def _refuse_action(wrong: np.ndarray, steps: np.ndarray, action: np.ndarray, where: str, why: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise CheckpointError(f"{where} is {action[first]} at step {steps[first]}, {why}")


def _as_begun(recordings: Recordings, files: int, digest: str) -> Recordings:
    """The recordings that a run began with. Raises RunFolderError where the folder no longer begins with them."""
    begun = recordings.first(files)
    if begun.digest != digest:
        raise RunFolderError(
            f"{recordings.folder} does not hold the {files} files that this run began with, or others before them: put them back, for a "
            "resumed run goes on with the same matches; to learn from others, begin a new run with start=RUN"
        )
    return begun


def split(recordings: Recordings, share: float, seed: int) -> tuple[set[int], set[int]]:
    """The numbers of the matches for training and for validation, at least one each. Raises RunFolderError where there are not two."""
    count = len(recordings.matches)
    if count < 2:
        raise RunFolderError(f"{recordings.folder} has {count} matches; to learn from one and validate by another takes two: record more")
    order = seeding.generator(seed, "validation").permutation(recordings.matches).tolist()
    size = min(max(1, round(share * count)), count - 1)
    return set(order[size:]), set(order[:size])
