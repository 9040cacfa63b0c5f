"""Sizes of memory, as people write and read them."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_size(given: str) -> int:
    """Bytes of a size such as `500MB` or `1.5GB`; K, M, G, T by 1024. Raises ValueError for anything else."""
    number, unit = given.strip()[:-2], given.strip()[-2:].upper()
    try:
        size = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        size = 0.0
    if not (0 < size < math.inf):
        raise ValueError(f"a size such as 500MB or 1.5GB ({', '.join(UNITS)})")
    return int(size)


def text(size_bytes: float) -> str:
    """A size as people read it, such as 1.5 GB."""
    unit = next((unit for unit in reversed(UNITS) if size_bytes >= UNITS[unit]), "KB")
    return f"{size_bytes / UNITS[unit]:.3g} {unit}"


def _checked(given: str) -> str:
    parse_size(given)
    return given


Size: TypeAlias = Annotated[str, AfterValidator(_checked)]
"""A setting that is a size."""
