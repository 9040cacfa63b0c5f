"""Curves of a run's metrics as PNG: of learning, and of an evolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.errors import RunFolderError
from lamarckian.record.metrics import read
from lamarckian.record.run import Run, writing

SMOOTHING_LINES = 15
LOGARITHMIC_FROM = 1e3
SECONDS_BELOW = 2.0
"""Minutes below which the clock's axis shows seconds."""
BLUE, ORANGE, GRID = "#2f6fdb", "#d9772b", "#e4e4e4"
LEARNING = {"score": BLUE, "return": ORANGE}
EVOLUTION = {"hypervolume": BLUE, "best": ORANGE}


def plot_curve(run: Run, title: str | None = None) -> Path:
    """Draws score and return against steps and against minutes into the run's `curve.png`; gives its path.

    Raises RunFolderError where there are no metrics yet, or the picture cannot be written.
    """
    return _plot(run, LEARNING, "steps", "finished match", title, smoothed=True)


def plot_progress(run: Run) -> Path:
    """Draws hypervolume and best objective, as far as they are there, against evaluations and against minutes into the
    run's `curve.png`; gives its path. The axis of `best` is logarithmic where its values, none below 0, span more than three decades.

    Raises RunFolderError where there are no metrics yet, or the picture cannot be written.
    """
    return _plot(run, EVOLUTION, "evaluations", "hypervolume or best objective", None, smoothed=False)


def _plot(run: Run, colors: dict[str, str], unit: str, wanted: str, title: str | None, smoothed: bool) -> Path:
    """Draws measures, a row each; a line's `steps` are called `unit`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    lines = read(run)
    measures = [name for name in colors if any(line.get(name) is not None for line in lines)]
    if not measures:
        raise RunFolderError(f"{run.folder} has no {wanted} in its metrics yet, so there is no curve to draw")
    figure = Figure(figsize=(11, 3.6 * len(measures)), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    latest = max((line["minutes"] for line in lines if line.get("minutes") is not None), default=0.0)
    clock, scale = ("seconds", 60.0) if latest < SECONDS_BELOW else ("minutes", 1.0)
    axes = figure.subplots(len(measures), 2, sharey="row", squeeze=False)
    for row, measure in zip(axes, measures, strict=True):
        for axis, key, label, factor in zip(row, ("steps", "minutes"), (unit, clock), (1.0, scale), strict=True):
            points = [(line[key] * factor, line[measure]) for line in lines if line.get(measure) is not None and line.get(key) is not None]
            if points:
                x, y = np.array(points, float).T
                axis.plot(x, y, color=colors[measure], alpha=0.25 if smoothed else 1.0, linewidth=1 if smoothed else 2)
                if smoothed:
                    axis.plot(x, smooth(y), color=colors[measure], linewidth=2)
                if measure == "best":
                    _scale(axis, y)
            tidy(axis)
            axis.set_xlabel(label)
        row[0].set_ylabel(measure)
        row[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.suptitle(title or run.folder.name, fontweight="bold")
    with writing(run.curve_path):
        figure.savefig(run.curve_path)
    return run.curve_path


def tidy(axis: Any) -> None:
    """Gives axes the look of all pictures of a run."""
    axis.grid(color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _scale(axis: Any, values: np.ndarray) -> None:
    """Makes the upright axis logarithmic where that shows more; with a stretch for 0 where a value is 0."""
    positive = values[values > 0]
    if values.min() < 0 or not len(positive) or positive.max() <= LOGARITHMIC_FROM * positive.min():
        return
    if len(positive) == len(values):
        axis.set_yscale("log")
    else:
        axis.set_yscale("symlog", linthresh=positive.min())


def smooth(values: np.ndarray, span: int = SMOOTHING_LINES) -> np.ndarray:
    """The mean over a centred window of up to `span` values; shorter towards both ends, so that nothing is shifted."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    half = np.minimum(np.minimum(index, len(values) - 1 - index), span // 2)
    return (sums[index + half + 1] - sums[index - half]) / (2 * half + 1)
