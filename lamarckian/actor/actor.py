"""An actor: one rollout, its policies, and the fragments they fill."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian.actor.batched import BatchedRollout
from lamarckian.actor.coroutines import CoroutineRollout
from lamarckian.actor.policy import ActingPolicy
from lamarckian.actor.recorder import Recorder
from lamarckian.actor.tally import Tally
from lamarckian.data.fragment import Layout
from lamarckian.data.pool import Claim, Meta, Sink


@dataclass
class Actor:
    """What plays and records; `policies` are those that act in it, the learner's first."""

    rollout: BatchedRollout | CoroutineRollout
    recorder: Recorder
    filler: SlotFiller
    policies: list[ActingPolicy]

    def start(self) -> None:
        self.rollout.start()

    def turn(self) -> None:
        """Goes on by a little; fragments are handed on as they fill."""
        self.rollout.turn()

    def close(self) -> None:
        self.rollout.close()

    def save(self) -> dict[str, Any]:
        """Everything that goes on from here exactly, as a tree of arrays and plain values."""
        return {
            "rollout": self.rollout.save(),
            "stage": {name: array.copy() for name, array in self.recorder.stage.items()},
            "cursor": self.recorder.cursor.copy(),
            "filler": self.filler.save(),
            "generators": [policy.generator.bit_generator.state for policy in self.policies],
            "states": [policy.states.save() for policy in self.policies],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of starting."""
        for policy, saved, states in zip(self.policies, state["generators"], state["states"], strict=True):
            policy.generator.bit_generator.state = saved
            policy.states.load(states)
        for name, array in self.recorder.stage.items():
            array[...] = state["stage"][name]
        self.recorder.cursor[:] = state["cursor"]
        self.filler.load(state["filler"])
        self.rollout.load(state["rollout"])


class SlotFiller:
    """Puts complete columns into slots of the pool, and submits each slot when it is full."""

    def __init__(self, layout: Layout, sink: Sink, tally: Tally) -> None:
        self._layout = layout
        self._sink = sink
        self._tally = tally
        self._claim: Claim | None = None
        self._filled = 0

    def __call__(self, stage: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Takes the columns of `lanes`."""
        while len(lanes):
            claim = self.reserve()
            slot, views = claim
            count = min(self._layout.columns - self._filled, len(lanes))
            columns = slice(self._filled, self._filled + count)
            for name, field in self._layout.fields.items():
                if count == self._layout.columns:
                    np.copyto(views[name], stage[name])
                else:
                    chosen = stage[name][:, lanes[:count]] if field.rows else stage[name][lanes[:count]]
                    self._columns(name, claim, columns)[...] = chosen
            self._filled += count
            lanes = lanes[count:]
            if self._filled == self._layout.columns:
                results, seconds = self._tally.take()
                version, learn = views["version"], views["learn"]
                self._sink.submit(slot, Meta(int(version.min()), int(version.max()), int(learn.sum()), results, seconds))
                self._claim = None

    def save(self) -> dict[str, np.ndarray]:
        """The columns of the slot that is not full yet."""
        if self._claim is None or not self._filled:
            return {}
        return {name: self._columns(name, self._claim, slice(self._filled)).copy() for name in self._layout.fields}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Puts saved columns into a slot of its own."""
        if state:
            claim = self.reserve()
            self._filled = state["version"].shape[1]
            for name, array in state.items():
                self._columns(name, claim, slice(self._filled))[...] = array

    def _columns(self, name: str, claim: Claim, columns: slice) -> np.ndarray:
        array = claim.views[name]
        return array[:, columns] if self._layout.fields[name].rows else array[columns]

    def reserve(self) -> Claim:
        """The slot to fill next; waits for one where none is free."""
        start = time.perf_counter()
        while self._claim is None:
            self._claim = self._sink.claim(timeout_s=1.0)
            self._filled = 0
        self._tally.waiting_s += time.perf_counter() - start
        return self._claim
