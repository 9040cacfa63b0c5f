"""Live progress of a run: a panel in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

PLAIN_EVERY_S = 10.0
SHARES = ("time", "actor", "utilisation", "reward_share")
LIMITS = {"steps": "steps", "updates": "updates", "minutes": "minutes", "evaluations": "steps", "generations": "generation"}

Unit: TypeAlias = Literal["steps", "evaluations"]
"""What a run counts as `steps`: samples of a training, or evaluations of an evolution."""


class Display(Protocol):
    """Who shows how a run goes on."""

    def update(self, values: Mapping[str, Any]) -> None:
        """Takes a line of metrics, as often as there is one."""
        ...

    def note(self, message: str) -> None:
        """Says something that should not scroll away unseen, such as the death of an actor."""
        ...


class Progress:
    """Shows the newest metrics (see `lamarckian.record.metrics`); to standard error, so that results stay apart."""

    def __init__(self, title: str, stop: BaseModel, quiet: bool = False, console: Console | None = None, unit: Unit = "steps") -> None:
        self._title = title
        self._stop = stop
        self._quiet = quiet
        self._console = console or Console(stderr=True)
        self._unit = unit
        self._live: Live | None = None
        self._printed_s = -PLAIN_EVERY_S
        self._first: tuple[float, float] | None = None

    def __enter__(self) -> Progress:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, values: Mapping[str, Any]) -> None:
        """Takes a line of metrics, as often as there is one."""
        if self._quiet:
            return
        done = fraction(self._stop, values)
        eta_s = self._eta_s(done)
        if self._live is not None:
            self._live.update(_panel(self._title, values, done, eta_s, self._unit))
        elif time.monotonic() - self._printed_s >= PLAIN_EVERY_S:
            self._printed_s = time.monotonic()
            self._console.print(plain(values, eta_s, self._unit), highlight=False, soft_wrap=True)

    def note(self, message: str) -> None:
        """Says something that should not scroll away unseen, such as the death of an actor."""
        if not self._quiet:
            self._console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _eta_s(self, done: float | None) -> float | None:
        """Seconds left, by the pace since the first line that this display saw (a resumed run starts in the middle)."""
        if done is None:
            return None
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        since, start = self._first
        return (now - since) * (1 - done) / (done - start) if done > start else None


def fraction(stop: BaseModel, values: Mapping[str, Any]) -> float | None:
    """How much of the run is done, in [0, 1], by whichever limit of `stop` is nearest; None where there is none.

    stop: has some of the limits in `LIMITS`, each with the name of what it limits in a line of metrics.
    """
    limits = [(values.get(name), getattr(stop, limit, None)) for limit, name in LIMITS.items()]
    shares = [value / limit for value, limit in limits if value is not None and limit is not None]
    return min(max(shares), 1.0) if shares else None


def plain(values: Mapping[str, Any], eta_s: float | None, unit: Unit = "steps") -> str:
    """One line of text for a line of metrics."""
    parts = [f"{label} {_text(name, values[name])}" for name, label in _head(unit).items() if values.get(name) is not None]
    if eta_s is not None:
        parts.append(f"eta {_duration(eta_s)}")
    parts += [
        f"{name.removeprefix('loss/')} {_number(value)}" for name, value in values.items() if name.startswith("loss/") and value is not None
    ]
    return "  ".join(parts)


def _head(unit: Unit) -> dict[str, str]:
    """The labels of what is shown first, in order."""
    return {
        "steps": unit,
        "generation": "generation",
        "updates": "updates",
        "rate_hz": f"{unit}/s",
        "score": "score",
        "return": "return",
        "hypervolume": "hypervolume",
        "best": "best",
        "feasible": "feasible",
        "failed": "failed",
        "utilisation": "utilisation",
        "staleness": "staleness",
        "actors": "actors",
    }


def _panel(title: str, values: Mapping[str, Any], done: float | None, eta_s: float | None, unit: Unit) -> Panel:
    head = _head(unit)
    table = Table.grid(padding=(0, 3), expand=True)
    for _ in range(4):
        table.add_column(ratio=1)
    cells = [f"[dim]{label}[/] [bold]{_text(name, values[name])}[/]" for name, label in head.items() if values.get(name) is not None]
    if values.get("minutes") is not None:
        cells.append(f"[dim]elapsed[/] [bold]{_duration(values['minutes'] * 60)}[/]")
    if eta_s is not None:
        cells.append(f"[dim]left[/] [bold]{_duration(eta_s)}[/]")
    _rows(table, cells)
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        if name in head or name == "minutes" or value is None:
            continue
        group, _, member = name.partition("/") if "/" in name else ("update", "", name)
        groups.setdefault(group, []).append(f"[dim]{member}[/] {_text(name, value)}")
    for group, cells in groups.items():
        table.add_row(f"[cyan]{group}[/]")
        _rows(table, cells)
    if done is None:
        return Panel(table, title=title, border_style="blue")
    whole = Table.grid(expand=True)
    whole.add_row(table)
    whole.add_row(ProgressBar(total=1.0, completed=done))
    return Panel(whole, title=title, border_style="blue")


def _rows(table: Table, cells: list[str]) -> None:
    for start in range(0, len(cells), 4):
        table.add_row(*cells[start : start + 4])


def _text(name: str, value: Any) -> str:
    return f"{value:.0%}" if name.partition("/")[0] in SHARES else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, int) or (isinstance(value, float) and abs(value) >= 10_000):
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
