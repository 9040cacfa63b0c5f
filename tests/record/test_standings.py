import csv
import json

import pytest
from matplotlib.figure import Figure
from PIL import Image

from lamarckian.errors import RunFolderError
from lamarckian.record.standings import Standing, Standings, plot_payoff, table, write_standings

STANDINGS = Standings(
    game="pong",
    matches=4,
    seed=7,
    players=[Standing(1, "runs/a, b", 0.875, 1595.4, 139.0, 1.0, 0.0), Standing(2, "stay", 0.125, 1404.6, 139.0, 0.0, -190.8)],
    payoff=[[None, 0.875], [0.125, None]],
)


def test_a_table_has_a_line_for_each_player():
    assert table(STANDINGS).splitlines() == [
        "rank  name       score         Elo   Nash",
        "   1  runs/a, b  0.875  1595 ± 139  1.000",
        "   2  stay       0.125  1405 ± 139  0.000",
    ]


def test_the_files_say_the_same(tmp_path):
    paths = write_standings(tmp_path / "new" / "folder", STANDINGS)
    assert [path.name for path in paths] == ["tournament.json", "payoff.csv", "payoff.png"]
    document = json.loads(paths[0].read_text())
    assert (document["game"], document["matches"], document["seed"]) == ("pong", 4, 7)
    assert document["payoff"] == [[None, 0.875], [0.125, None]]
    assert document["players"][1] == {
        "rank": 2,
        "name": "stay",
        "score": 0.125,
        "elo": 1404.6,
        "elo_interval": 139.0,
        "nash_weight": 0.0,
        "nash_rating": -190.8,
    }
    with paths[1].open(newline="") as file:
        assert list(csv.reader(file)) == [["player", "runs/a, b", "stay"], ["runs/a, b", "", "0.875"], ["stay", "0.125", ""]]
    with Image.open(paths[2]) as picture:
        assert picture.width > 300
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


def test_the_map_has_names_and_numbers_in_the_order_of_the_table(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: figures.append(figure))
    plot_payoff(tmp_path / "payoff.png", ["x", "y", "z"], [[None, 0.5, 1.0], [0.5, None, 0.75], [0.0, 0.25, None]])
    axis = figures[0].axes[0]
    assert (
        [label.get_text() for label in axis.get_xticklabels()] == [label.get_text() for label in axis.get_yticklabels()] == ["x", "y", "z"]
    )
    cells = {(text.get_position()[1], text.get_position()[0]): (text.get_text(), text.get_color()) for text in axis.texts}
    assert cells == {
        (0, 1): ("0.50", "black"),
        (0, 2): ("1.00", "white"),
        (1, 0): ("0.50", "black"),
        (1, 2): ("0.75", "black"),
        (2, 0): ("0.00", "white"),
        (2, 1): ("0.25", "black"),
    }


def test_a_folder_that_cannot_be_written_to_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        write_standings(tmp_path / "file" / "folder", STANDINGS)
