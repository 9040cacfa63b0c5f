"""Learning curves as PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lamarckian.errors import RunFolderError
from lamarckian.record.metrics import read
from lamarckian.record.run import Run, writing

SMOOTHING_LINES = 15
COLORS = {"score": "#2f6fdb", "return": "#d9772b"}


def plot_curve(run: Run, title: str | None = None) -> Path:
    """Draws score and return against steps and against minutes into the run's `curve.png`; gives its path.

    Raises RunFolderError where there are no metrics yet, or the picture cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    lines = read(run)
    measures = [name for name in COLORS if any(line.get(name) is not None for line in lines)]
    if not measures:
        raise RunFolderError(f"{run.folder} has no finished match in its metrics yet, so there is no curve to draw")
    figure = Figure(figsize=(11, 3.6 * len(measures)), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(measures), 2, sharey="row", squeeze=False)
    for row, measure in zip(axes, measures, strict=True):
        for axis, unit in zip(row, ("steps", "minutes"), strict=True):
            points = [(line[unit], line[measure]) for line in lines if line.get(measure) is not None and line.get(unit) is not None]
            if points:
                x, y = np.array(points, float).T
                axis.plot(x, y, color=COLORS[measure], alpha=0.25, linewidth=1)
                axis.plot(x, smooth(y), color=COLORS[measure], linewidth=2)
            axis.grid(color="#e4e4e4", linewidth=0.8)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_xlabel(unit)
        row[0].set_ylabel(measure)
        row[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.suptitle(title or run.folder.name, fontweight="bold")
    with writing(run.curve_path):
        figure.savefig(run.curve_path)
    return run.curve_path


def smooth(values: np.ndarray, span: int = SMOOTHING_LINES) -> np.ndarray:
    """The mean over a centred window of up to `span` values; shorter towards both ends, so that nothing is shifted."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    half = np.minimum(np.minimum(index, len(values) - 1 - index), span // 2)
    return (sums[index + half + 1] - sums[index - half]) / (2 * half + 1)
