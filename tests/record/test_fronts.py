import csv
import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure
from PIL import Image

from lamarckian.errors import RunFolderError
from lamarckian.plugins import Section
from lamarckian.recipe import Recipe
from lamarckian.record.fronts import plot_front, scaled, write_front
from lamarckian.record.metrics import Metrics
from lamarckian.record.plots import plot_progress
from lamarckian.record.run import Run, create

OBJECTIVES = np.array([[0.1, 3.0], [0.30000000000000004, 1e-300]])
GENOMES = {
    "x": np.array([[0.5, -1.0], [1 / 3, 2.0]]),
    "count": np.array([[7], [8]]),
    "kind": np.array([['say "a, b"', "plain"], ["two\nlines", "ü"]]),
    "policy": np.ones((2, 3), np.float32),
    "tour": np.arange(402).reshape(2, 201),
}
IDS = np.array([4, 19])


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, in place of their files."""
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: saved.append(figure))
    return saved


def written(run, *arguments, **settings):
    table, document = write_front(run, *arguments, **settings)
    with table.open(newline="") as file:
        return list(csv.reader(file)), json.loads(document.read_text())


def test_a_front_is_a_table_with_a_column_a_gene(run):
    assert write_front(run, ["cost", "time"], OBJECTIVES, GENOMES, IDS, minimise=True) == [
        run.folder / "front.csv",
        run.folder / "front.json",
    ]
    assert (run.folder / "front.csv").read_bytes().decode() == (
        "id,cost,time,x[0],x[1],count,kind[0],kind[1]\n"
        '4,0.1,3.0,0.5,-1.0,7,"say ""a, b""",plain\n'
        '19,0.30000000000000004,1e-300,0.3333333333333333,2.0,8,"two\nlines",ü\n'
    )


def test_the_json_says_what_the_table_leaves_out(run):
    table, document = written(run, ["cost", "time"], OBJECTIVES, GENOMES, IDS, np.array([0.0, 0.25]), minimise=False)
    assert table[0][:4] == ["id", "cost", "time", "violation"] and table[2][3] == "0.25"
    assert document["objectives"] == ["cost", "time"] and document["minimise"] is False
    assert document["not_in_csv"] == ["policy", "tour"] and document["not_in_json"] == ["policy"]
    assert document["individuals"][1] == {
        "id": 19,
        "objectives": {"cost": 0.30000000000000004, "time": 1e-300},
        "violation": 0.25,
        "genome": {"x": [1 / 3, 2.0], "count": [8], "kind": ["two\nlines", "ü"], "tour": list(range(201, 402))},
    }
    assert type(document["individuals"][0]["genome"]["count"][0]) is int


def test_a_part_of_as_many_genes_as_a_table_takes_is_in_it(run):
    table, document = written(run, ["f"], np.zeros((1, 1)), {"x": np.zeros((1, 200)), "y": np.zeros((1, 201))}, [0], minimise=True)
    assert table[0] == ["id", "f", *(f"x[{gene}]" for gene in range(200))] and document["not_in_csv"] == ["y"]


def test_an_empty_front_has_its_headers(run):
    table, document = written(run, ["f1", "f2"], np.empty((0, 2)), {"x": np.empty((0, 2)), "n": np.empty((0, 1), int)}, [], minimise=True)
    assert table == [["id", "f1", "f2", "x[0]", "x[1]", "n"]]
    assert document == {"objectives": ["f1", "f2"], "minimise": True, "not_in_csv": [], "not_in_json": [], "individuals": []}


def test_numbers_that_are_not_finite_stay_json(run):
    depth = np.array([[3], [math.inf], ["none"], [None], [True]], object)
    objectives = np.array([[1.0], [math.nan], [-math.inf], [2.0], [3.0]])
    table, document = written(run, ["f"], objectives, {"depth": depth}, np.arange(5), minimise=True)
    assert table[1:] == [["0", "1.0", "3"], ["1", "", ""], ["2", "", "none"], ["3", "2.0", ""], ["4", "3.0", "True"]]
    assert [one["objectives"]["f"] for one in document["individuals"]] == [1.0, None, None, 2.0, 3.0]
    assert [one["genome"]["depth"] for one in document["individuals"]] == [[3], [None], ["none"], [None], [True]]


@given(arrays(np.float64, (3, 2), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_reads_back_exactly(tmp_path_factory, values):
    run = Run(tmp_path_factory.mktemp("run"))
    table, document = written(run, ["a", "b"], values, {"x": values}, np.arange(3), minimise=True)
    assert np.array_equal(np.array(table[1:], float)[:, 1:], np.hstack([values, values]))
    assert np.array_equal([one["genome"]["x"] for one in document["individuals"]], values)


def test_a_full_disk_leaves_the_front_that_was_there(run, monkeypatch):
    paths = write_front(run, ["cost", "time"], OBJECTIVES, GENOMES, IDS, minimise=True)
    before = [path.read_bytes() for path in paths]

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="disk is full"):
        write_front(run, ["cost", "time"], 2 * OBJECTIVES, GENOMES, IDS, minimise=True)
    assert [path.read_bytes() for path in paths] == before and sorted(run.folder.iterdir()) == paths


def test_a_front_gives_way_to_another_run(tmp_path):
    recipe = Recipe(game=Section(name="pong"))
    with create(tmp_path, recipe) as run:
        (run.checkpoints_path / "1").mkdir()
        paths = write_front(run, ["f1", "f2"], OBJECTIVES, {}, IDS, minimise=True)
        paths.append(plot_front(run, ["f1", "f2"], OBJECTIVES, None, minimise=True))
    assert all(path.exists() for path in paths)
    create(tmp_path, recipe, overwrite=True).close()
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize("dimensions", [2, 3, 4, 7])
@pytest.mark.parametrize("known", [False, True])
def test_a_front_is_drawn(run, dimensions, known):
    points = np.random.default_rng(0).random((9, dimensions))
    names = [f"objective number {index}" for index in range(dimensions)]
    path = plot_front(run, names, points, points / 2 if known else None, minimise=True)
    assert path == run.folder / "front.png"
    with Image.open(path) as picture:
        assert picture.width >= 760


def test_without_a_trade_off_there_is_no_picture(run):
    assert plot_front(run, ["f1", "f2"], np.empty((0, 2)), np.ones((5, 2)), minimise=True) is None
    assert plot_front(run, ["f"], np.ones((3, 1)), None, minimise=True) is None
    assert list(run.folder.iterdir()) == []


def test_two_objectives_are_a_plane(run, figures):
    known = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    plot_front(run, ["cost", "time"], OBJECTIVES, known, minimise=False)
    [axis] = figures[0].axes
    grey, found = axis.collections
    assert np.array_equal(grey.get_offsets(), known) and np.array_equal(found.get_offsets(), OBJECTIVES)
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("cost\xa0↑", "time\xa0↑")
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["true front", "found"]


def test_three_objectives_are_a_space(run, figures):
    points = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    plot_front(run, ["a", "b", "c"], points, None, minimise=True)
    [axis] = figures[0].axes
    [found] = axis.collections
    assert np.array_equal(np.array(found._offsets3d).T, points)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_zlabel()) == ("a\xa0↓", "b\xa0↓", "c\xa0↓")


def test_more_objectives_are_lines_across_axes_of_their_own_range(run, figures):
    points = np.array([[0.0, 10.0, -1.0, 5.0], [2.0, 20.0, 1.0, 5.0]])
    known = np.array([[4.0, 15.0, 0.0, 5.0]])
    plot_front(run, list("abcd"), points, known, minimise=True)
    [axis] = figures[0].axes
    grey, found = axis.collections[:2]
    assert [line[:, 1].tolist() for line in found.get_segments()] == [[0, 0, 0, 0.5], [0.5, 1, 1, 0.5]]
    assert [line.tolist() for line in grey.get_segments()] == [[[0, 1], [1, 0.5], [2, 0.5], [3, 0.5]]]
    assert [text.get_text() for text in axis.texts] == ["4", "20", "1", "5", "0", "10", "-1", "5"]


def test_a_long_true_front_is_thinned_evenly(run, figures):
    known = np.tile(np.linspace(0, 1, 2991)[:, None], 4)
    plot_front(run, list("abcd"), known[[0, -1]], known, minimise=True)
    heights = [line[0, 1] for line in figures[0].axes[0].collections[0].get_segments()]
    assert np.allclose(heights, np.linspace(0, 1, 300))


def test_values_are_scaled_to_their_range():
    values = np.array([[1.0, -2.0, 3.0], [3.0, 2.0, 3.0], [2.0, -1.0, 3.0]])
    assert np.array_equal(scaled(values, values.min(axis=0), values.max(axis=0)), [[0, 0, 0.5], [1, 1, 0.5], [0.5, 0.25, 0.5]])


def evolve(run, minutes=1.0, **measures):
    with Metrics(run) as metrics:
        for generation, values in enumerate(zip(*measures.values(), strict=True), 1):
            metrics.write({"steps": 50 * generation, "minutes": generation * minutes, **dict(zip(measures, values, strict=True))})


def test_the_progress_of_an_evolution_is_drawn_as_it_was(run, figures):
    evolve(run, hypervolume=[None, 0.25, 0.75], best=[None, 8.0, 2.0])
    assert plot_progress(run) == run.folder / "curve.png"
    axes = figures[0].axes
    assert [axis.get_xlabel() for axis in axes] == ["evaluations", "minutes"] * 2
    assert [axis.get_ylabel() for axis in axes] == ["hypervolume", "", "best", ""]
    [volume], [value] = axes[0].lines, axes[3].lines
    assert volume.get_xydata().tolist() == [[100, 0.25], [150, 0.75]]
    assert value.get_xydata().tolist() == [[2.0, 8.0], [3.0, 2.0]]


def test_the_clock_of_a_short_run_shows_seconds(run, figures):
    evolve(run, minutes=0.5, best=[None, 8.0, 2.0])
    plot_progress(run)
    axis = figures[0].axes[1]
    assert axis.get_xlabel() == "seconds" and axis.lines[0].get_xdata().tolist() == [60.0, 90.0]


@pytest.mark.parametrize(
    ("best", "scale"),
    [
        ([1000.0, 1.0], "linear"),
        ([1001.0, 1.0], "log"),
        ([1.0, 1e-9], "log"),
        ([1e4, 1.0, 0.0], "symlog"),
        ([5.0, 1.0, 0.0], "linear"),
        ([0.0, 0.0], "linear"),
        ([1e4, 1.0, -1.0], "linear"),
    ],
)
def test_what_falls_by_decades_has_a_logarithmic_axis(run, figures, best, scale):
    evolve(run, best=best)
    plot_progress(run)
    assert [axis.get_yscale() for axis in figures[0].axes] == [scale, scale]


def test_hypervolume_keeps_a_plain_axis(run, figures):
    evolve(run, hypervolume=[1e-9, 1.0])
    plot_progress(run)
    assert figures[0].axes[0].get_yscale() == "linear"


def test_without_a_measure_there_is_no_progress_to_draw(run):
    evolve(run, hypervolume=[None, None])
    with pytest.raises(RunFolderError, match="no hypervolume or best objective"):
        plot_progress(run)
