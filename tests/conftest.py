"""Settings and fixtures for all tests."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)  # a test never times, and says the same each time
settings.load_profile("steady")


@pytest.fixture(scope="session")
def lab_module() -> ModuleType:
    """`benchmarks/lab.py`; the test is skipped where there can be no lab."""
    specification = importlib.util.spec_from_file_location("lab", Path(__file__).parents[1] / "benchmarks" / "lab.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["lab"] = module
    specification.loader.exec_module(module)
    if (lacking := module.missing()) is not None:
        pytest.skip(lacking)
    return module


@pytest.fixture
def make_lab(lab_module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Makes a lab of so many hosts and Mbit/s, which the test need not close."""
    with contextlib.ExitStack() as stack:
        yield lambda hosts, rate_mbit: stack.enter_context(lab_module.Lab(hosts, rate_mbit))
