"""What came of a tournament: its table as text, JSON, CSV, and a picture of who beat whom."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lamarckian.record.run import write, writing

COLOURS = "RdBu"
DARK = 0.3
"""How far from 0.5 a cell's score is when it has to be written in white."""


class Standing(msgspec.Struct, frozen=True):
    """How one player did.

    score: mean over its matches, a win being 1 and a draw 0.5. elo: its rating, give or take `elo_interval` (95%).
    nash_weight: its share of the equilibrium; nash_rating: Elo points that it gains against that, 0 at best.
    """

    rank: int
    name: str
    score: float
    elo: float
    elo_interval: float
    nash_weight: float
    nash_rating: float


class Standings(msgspec.Struct, frozen=True):
    """A tournament of N players, best first.

    payoff: `[N][N]`, mean score of the row's player against the column's; None on the diagonal. matches: of each pair.
    """

    game: str
    matches: int
    seed: int
    players: list[Standing]
    payoff: list[list[float | None]]

    @property
    def names(self) -> list[str]:
        """Of the players, best first."""
        return [player.name for player in self.players]


def table(standings: Standings) -> str:
    """The players as lines of text, best first."""
    rows = [("rank", "name", "score", "Elo", "Nash")] + [
        (str(player.rank), player.name, f"{player.score:.3f}", f"{player.elo:.0f} ± {player.elo_interval:.0f}", f"{player.nash_weight:.3f}")
        for player in standings.players
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = (False, True, False, False, False)
    lines = [[cell.ljust(w) if l else cell.rjust(w) for cell, w, l in zip(row, widths, left, strict=True)] for row in rows]  # noqa: E741
    return "\n".join("  ".join(line).rstrip() for line in lines)


def write_standings(folder: Path, standings: Standings) -> list[Path]:
    """Writes `tournament.json`, `payoff.csv` and `payoff.png` into a folder, which is made where it is not there; gives their paths.

    Raises RunFolderError where they cannot be written.
    """
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(["player", *standings.names])
    writer.writerows([name, *row] for name, row in zip(standings.names, standings.payoff, strict=True))
    contents = {
        "tournament.json": json.dumps(msgspec.to_builtins(standings), indent=1, allow_nan=False) + "\n",
        "payoff.csv": sheet.getvalue(),
    }
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write(folder / name, content)
    plot_payoff(folder / "payoff.png", standings.names, standings.payoff)
    return [folder / name for name in (*contents, "payoff.png")]


def plot_payoff(path: Path, names: Sequence[str], payoff: Sequence[Sequence[float | None]]) -> None:
    """Draws scores `[N][N]` of rows against columns as a map of colours and numbers. Raises RunFolderError where it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = max(4.0, 0.7 * len(names)) + 0.07 * max(map(len, names))
    figure = Figure(figsize=(side + 1, side), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    image = axis.imshow([[float("nan") if score is None else score for score in row] for row in payoff], COLOURS, vmin=0, vmax=1)
    for row, scores in enumerate(payoff):
        for column, score in enumerate(scores):
            if score is not None:
                colour = "white" if abs(score - 0.5) > DARK else "black"
                axis.text(column, row, f"{score:.2f}", ha="center", va="center", fontsize="small", color=colour)
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(image, label="mean score of row against column", shrink=0.8)
    with writing(path):
        figure.savefig(path)
