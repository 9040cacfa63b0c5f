"""The front of an evolution: its individuals as CSV and JSON, and a picture of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from lamarckian.record.plots import BLUE, GRID, tidy
from lamarckian.record.run import Run, write, writing

MOST_COLUMNS = 200
MOST_LINES = 300
GREY = "#9a9a9a"


def write_front(
    run: Run,
    names: Sequence[str],
    objectives: np.ndarray,
    genomes: Mapping[str, np.ndarray],
    ids: np.ndarray,
    violation: np.ndarray | None = None,
    *,
    minimise: bool,
) -> list[Path]:
    """Writes a front into the run's `front.csv` and `front.json`, each whole or not at all; gives their paths.

    names: of the M objectives. objectives: `[n, M]`, as the problem states them. genomes: part → `[n, L]`, the values that genes stand for.
    ids: `[n]`. violation: of the constraints, `[n]`, where there are any. minimise: whether objectives are to be minimised.

    A gene is a column of the CSV: `part[0]`, `part[1]` …, or `part` where it has but one. Networks, which are known by float32, are in
    neither file, since they lie in checkpoints; parts of more than 200 genes are in the JSON only. Its `not_in_csv` and `not_in_json`
    name both. Numbers that are not finite are empty in the CSV, null in the JSON. Raises RunFolderError where a file cannot be written.
    """
    networks = [name for name, rows in genomes.items() if rows.dtype == np.float32]
    listed = {name: rows for name, rows in genomes.items() if name not in networks}
    tabled = {name: rows for name, rows in listed.items() if rows.shape[1] <= MOST_COLUMNS}
    measures = {"violation": violation} if violation is not None else {}
    individuals: list[dict[str, Any]] = [
        {
            "id": int(ids[row]),
            "objectives": dict(zip(names, _plain(objectives[row]), strict=True)),
            **{name: _plain(values[row]) for name, values in measures.items()},
            "genome": {name: _plain(rows[row]) for name, rows in listed.items()},
        }
        for row in range(len(objectives))
    ]
    document = {
        "objectives": list(names),
        "minimise": minimise,
        "not_in_csv": [name for name in genomes if name not in tabled],
        "not_in_json": networks,
        "individuals": individuals,
    }
    columns = [name if rows.shape[1] == 1 else f"{name}[{gene}]" for name, rows in tabled.items() for gene in range(rows.shape[1])]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["id", *names, *measures, *columns])
    for individual in individuals:
        genes = [value for name in tabled for value in individual["genome"][name]]
        writer.writerow([individual["id"], *individual["objectives"].values(), *(individual[name] for name in measures), *genes])
    contents = {"front.csv": table.getvalue(), "front.json": json.dumps(document, allow_nan=False) + "\n"}
    with writing(run.folder):
        for name, content in contents.items():
            write(run.folder / name, content)
    return [run.folder / name for name in contents]


def plot_front(run: Run, names: Sequence[str], objectives: np.ndarray, true_front: np.ndarray | None, minimise: bool) -> Path | None:
    """Draws a front `[n, M]` into the run's `front.png`; gives its path, or None where there are no individuals, or M is 1.

    Two objectives make a plane, three a space, more of them parallel coordinates, coloured by the first one and each scaled to its range.
    true_front: `[P, M]` points of the best front that there can be. minimise: whether objectives are to be minimised; arrows say so.
    Raises RunFolderError where the picture cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count, dimensions = objectives.shape
    if count == 0 or dimensions == 1:
        return None
    labels = [f"{name}\N{NO-BREAK SPACE}{'↓' if minimise else '↑'}" for name in names]
    true_front = np.empty((0, dimensions)) if true_front is None else true_front
    width = max(6.4, 1.5 * dimensions) if dimensions > 3 else 6.4
    figure = Figure(figsize=(width, 4.8 if dimensions != 3 else 5.6), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    if dimensions > 3:
        _draw_parallel(figure, labels, objectives, true_front)
    else:
        _draw_points(figure, labels, objectives, true_front)
    figure.suptitle(run.folder.name, fontweight="bold")
    path = run.folder / "front.png"
    with writing(path):
        figure.savefig(path)
    return path


def _draw_points(figure: Any, labels: list[str], objectives: np.ndarray, true_front: np.ndarray) -> None:
    axis = _space(figure, labels) if len(labels) == 3 else figure.add_subplot()
    flat = {"depthshade": False} if len(labels) == 3 else {}
    if len(true_front):
        axis.scatter(*true_front.T, s=4, color=GREY, alpha=0.6, linewidths=0, label="true front", **flat)
    axis.scatter(*objectives.T, s=20, color=BLUE, alpha=0.9, linewidths=0, label="found", **flat)
    if len(labels) == 2:
        axis.set_xlabel(labels[0])
        axis.set_ylabel(labels[1])
        tidy(axis)
    if len(true_front):
        _legend(figure)


def _space(figure: Any, labels: list[str]) -> Any:
    """Three axes, seen from where all objectives are large: the front faces the viewer."""
    from matplotlib import rc_context

    with rc_context({"grid.color": GRID}):
        axis = figure.add_subplot(projection="3d", elev=28.0, azim=45.0)
    axis.set_box_aspect(None, zoom=0.9)
    for side, label in zip((axis.xaxis, axis.yaxis, axis.zaxis), labels, strict=True):
        side.set_pane_color("white")
        side.set_label_text(label)
        side.labelpad = 10
    return axis


def _draw_parallel(figure: Any, labels: list[str], objectives: np.ndarray, true_front: np.ndarray) -> None:
    from matplotlib.collections import LineCollection

    everything = np.concatenate([objectives, true_front])
    low, high = everything.min(axis=0), everything.max(axis=0)
    axis = figure.add_subplot()
    if len(true_front):
        thinned = true_front[np.linspace(0, len(true_front) - 1, min(len(true_front), MOST_LINES)).round().astype(int)]
        axis.add_collection(LineCollection(_lines(scaled(thinned, low, high)), colors=GREY, alpha=0.3, linewidths=0.8, label="true front"))
    found = LineCollection(_lines(scaled(objectives, low, high)), cmap="viridis", array=objectives[:, 0], alpha=0.7, linewidths=1.1)
    axis.add_collection(found)
    position = np.arange(len(labels))
    axis.vlines(position, 0, 1, color="#555555", linewidth=0.8)
    for ends, height, away, side in ((high, 1, 4, "bottom"), (low, 0, -4, "top")):
        for at, value in zip(position, ends, strict=True):
            axis.annotate(f"{value:.4g}", (at, height), (0, away), textcoords="offset points", ha="center", va=side, fontsize="small")
    axis.set_xticks(position, [fill(label, 16) for label in labels])
    axis.tick_params(length=0, pad=16)
    axis.set_yticks([])
    axis.set_xlim(-0.4, len(labels) - 0.6)
    axis.set_ylim(-0.01, 1.01)
    axis.spines[:].set_visible(False)
    if len(true_front):
        _legend(figure)


def _lines(heights: np.ndarray) -> list[np.ndarray]:
    """`[n, M]` → n lines of M points; axes stand one apart."""
    return [np.column_stack([np.arange(len(row)), row]) for row in heights]


def _legend(figure: Any) -> None:
    for handle in figure.legend(loc="outside lower center", ncols=2, frameon=False, markerscale=1.5).legend_handles:
        handle.set_alpha(1.0)


def scaled(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Values `[n, M]` as shares of the way from `low` to `high`, `[M]`; halfway where these are the same."""
    span = high - low
    return np.where(span > 0, (values - low) / np.where(span > 0, span, 1), 0.5)


def _plain(value: Any) -> Any:
    """The same in plain JSON; numbers that are not finite become None, and things that JSON has no word for their text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
