"""How benchmarks print what they measured: one JSON line a figure."""

from __future__ import annotations

import json
from statistics import median

COLORS = {"flat": "#c23b3b", "tree": "#d9772b", "pipeline": "#2f6fdb"}
"""Of the layouts of a broadcast, in pictures."""


def figure(
    name: str,
    values: list[float],
    unit: str,
    reference: str | None = None,
    reference_values: list[float] | None = None,
    digits: int = 1,
) -> None:
    """Prints the median of `values`, and its ratio to the median of a reference that was measured in the same run, in turn."""
    value = median(values)
    against = median(reference_values) if reference_values else None
    line = {
        "name": name,
        "value": round(value, digits),
        "unit": unit,
        "reference": reference,
        "reference_value": None if against is None else round(against, digits),
        "ratio": None if against is None else round(value / against, 3),
        "runs": len(values),
    }
    print(json.dumps(line), flush=True)
