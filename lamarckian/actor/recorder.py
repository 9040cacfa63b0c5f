"""Turns decisions and their outcomes into fragments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from lamarckian.actor.policy import Decision
from lamarckian.data.fragment import OUTCOMES, Layout

Emit: TypeAlias = Callable[[dict[str, np.ndarray], np.ndarray], None]
"""Takes the arrays of a stage and the lanes whose columns are complete in it; copies what it needs."""


class Recorder:
    """Stages the steps of L lanes; each lane fills its own column at its own pace, and hands it on when it is full.

    A lane is one learning seat of one of the actor's matches. A column is complete when the decision after its last
    step is known, since that decision's value is what the last step leads to; the same decision opens the next column.
    names: int `[L]`, of the lanes, as their columns will tell.
    """

    def __init__(self, layout: Layout, emit: Emit, names: np.ndarray) -> None:
        self.stage = layout.empty()
        self.stage["lane"][:], self.stage["column"][:] = names, 0
        self.cursor = np.zeros(layout.columns, np.int64)
        self._steps = layout.steps
        self._emit = emit
        self._inputs = [name for name in layout.fields if name.startswith("inputs.")]
        self._legal = [name for name in layout.fields if name.startswith("legal.")]
        self._states = [name for name in layout.fields if name.startswith("state.")]
        self._heads = [name.removeprefix("action.") for name in layout.fields if name.startswith("action.")]

    def outcome(
        self, lanes: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, missed: np.ndarray | int
    ) -> None:
        """Records what came of the last decisions of `lanes`, int `[K]`: reward `[K, R]`, the rest `[K]`."""
        at = self._at(lanes)
        self.stage["reward"][at] = reward
        self.stage["terminated"][at] = terminated
        self.stage["truncated"][at] = truncated
        self.stage["outcome"][at] = 0
        self.stage["bootstrap"][at] = 0.0
        self.stage["missed"][at] = missed
        if len(lanes) == len(self.cursor):
            self.cursor += 1
        else:
            self.cursor[lanes] += 1

    def end(self, lane: int, outcome: str | None) -> None:
        """Records how the match went that ended with the last outcome of `lane`."""
        self.stage["outcome"][self.cursor[lane] - 1, lane] = OUTCOMES.index(outcome)

    def bootstrap(self, lanes: np.ndarray, value: np.ndarray) -> None:
        """Records the value `[K, R]` of the final observation of lanes whose last outcome was a truncation."""
        self.stage["bootstrap"][self.cursor[lanes] - 1, lanes] = value

    def decision(
        self,
        lanes: np.ndarray,
        inputs: Mapping[str, np.ndarray],
        legal: Mapping[str, np.ndarray],
        learn: np.ndarray | bool,
        decision: Decision,
        version: int,
        rows: np.ndarray | None = None,
    ) -> None:
        """Records what `version` decided for each of `lanes`, int `[K]`: `rows` of every array but `learn`, by default the first K."""
        chosen = slice(len(lanes)) if rows is None else rows
        if (self.cursor == self._steps).any() and (done := self.cursor[lanes] == self._steps).any():
            full = lanes[done]
            self._observe(self._at(full), np.arange(len(decision.value))[chosen][done], inputs, legal, decision.value)
            self._emit(self.stage, full)
            self.cursor[full] = 0
            self.stage["column"][full] += 1
        at = self._at(lanes)
        if self._states:
            opened = self.cursor[lanes] == 0
            for name in self._states:
                self.stage[name][lanes[opened]] = decision.state[name][chosen][opened]
        self._observe(at, chosen, inputs, legal, decision.value)
        for name in self._heads:
            self.stage[f"action.{name}"][at] = decision.actions[name][chosen]
            self.stage[f"log_prob.{name}"][at] = decision.log_probs[name][chosen]
        self.stage["learn"][at] = learn
        self.stage["version"][at] = version

    def _observe(
        self, at: tuple, rows: np.ndarray | slice, inputs: Mapping[str, np.ndarray], legal: Mapping[str, np.ndarray], value: np.ndarray
    ) -> None:
        for name in self._inputs:
            self.stage[name][at] = inputs[name.removeprefix("inputs.")][rows]
        for name in self._legal:
            self.stage[name][at] = legal[name.removeprefix("legal.")][rows]
        self.stage["value"][at] = value[rows]

    def _at(self, lanes: np.ndarray) -> tuple:
        cursor = self.cursor
        if len(lanes) == len(cursor) and (cursor == cursor[0]).all():
            return (int(cursor[0]),)  # lanes come in order, so a whole row is written at once
        return cursor[lanes], lanes
