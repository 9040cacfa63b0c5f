"""Metrics of a run: one JSON object a line in `metrics.jsonl`, and the same numbers as TensorBoard events.

A line of a training has `steps`, and of these what applies: `updates`, `minutes`, `score` (mean over the recipe's window), `return`,
`rate_hz` (steps per second), `staleness` (mean), `actors` (alive), the algorithm's own (see its class), and groups by prefix:
`loss/…`, `time/…` and `actor/…` (shares of the learner's and the actors' time), `pool/…`; where there are several rewards, of each
`reward/…` (mean a step), `reward_share/…` (of the sum of absolute weighted rewards), `value_loss/…` (of the critic that acted) and
`weight/…`; where recorded matches are learned from, `validation/…` at the end of an epoch, and `score` is by that; where there is a
league, `league/…`.

A line of an evolution has `steps` (evaluations so far), `generation`, `minutes`, `rate_hz` (evaluations per second), `hypervolume` or
`best`, `front` (individuals in it), `feasible` (share of the population), `failed` (so far), `utilisation` (share of the workers' time).

Numbers that are not finite become null.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamarckian.errors import RunFolderError
from lamarckian.record.run import Run, write, writing


class Metrics:
    """Appends to a run's metrics; a line outlives the process as soon as `write` returns.

    resume_steps: on resume, the checkpoint's steps. Lines beyond it, and a line that was cut off, are removed, and
    TensorBoard is told to forget events beyond it, so that no step is there twice.
    """

    def __init__(self, run: Run, resume_steps: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        with writing(run.metrics_path):
            if resume_steps is not None and run.metrics_path.exists():
                kept = [line for line in read(run) if line["steps"] <= resume_steps]
                write(run.metrics_path, "".join(json.dumps(line) + "\n" for line in kept))
            self._path = run.metrics_path
            self._file = run.metrics_path.open("ab", buffering=0)
            self._events = RecordWriter(_events_path(run, str(os.getpid())).open("wb", buffering=0))
            self._events.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            if resume_steps is not None:
                start = SessionLog(status=SessionLog.START)
                self._events.write(Event(wall_time=time.time(), step=resume_steps + 1, session_log=start).SerializeToString())

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends one line; `values` has `steps`, and numbers, texts or None beside it.

        Raises RunFolderError where the disk is full or the folder cannot be written to.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        line = {name: _plain(value) for name, value in values.items()}
        scalars = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in line.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "steps"
        ]
        event = Event(wall_time=time.time(), step=line["steps"], summary=Summary(value=scalars))
        with writing(self._path):
            self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            self._events.write(event.SerializeToString())

    def close(self) -> None:
        """Closes the files. Harmless when repeated."""
        self._file.close()
        if not self._events.closed:
            self._events.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def show(run: Run, pictures: Mapping[str, Path], steps: int) -> None:
    """Puts pictures (PNG), by name, into the run's TensorBoard events. Raises RunFolderError where they cannot be written."""
    from PIL import Image
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    if not pictures:
        return
    shown = []
    for name, path in pictures.items():
        with Image.open(path) as picture:
            image = Summary.Image(width=picture.width, height=picture.height, colorspace=3, encoded_image_string=path.read_bytes())
        shown.append(Summary.Value(tag=name, image=image))
    with writing(run.folder), _events_path(run, "pictures").open("wb") as file:
        events = RecordWriter(file)
        events.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        events.write(Event(wall_time=time.time(), step=steps, summary=Summary(value=shown)).SerializeToString())


def read(run: Run) -> list[dict[str, Any]]:
    """The lines of a run's metrics, without a last one that was cut off.

    Raises RunFolderError where another line is no metrics.
    """
    lines = run.metrics_path.read_text().splitlines() if run.metrics_path.exists() else []
    values = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            value["steps"] + 0
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break
            raise RunFolderError(f"{run.metrics_path}, line {number}: not a line of metrics") from None
        values.append(value)
    return values


def _events_path(run: Run, suffix: str) -> Path:
    return run.folder / f"events.out.tfevents.{time.time():.6f}.{platform.node()}.{suffix}"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
