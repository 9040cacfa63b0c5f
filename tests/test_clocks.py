"""What data passes through measures time by clocks that never jump."""

import ast
from pathlib import Path

import pytest

import lamarckian

ROOMS = ["transport", "data", "actor", "cluster", "learner", "evaluate"]
WALL = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "datetime.now", "datetime.utcnow", "datetime.today"}


def calls(path: Path) -> set[str]:
    """The names, with their modules or classes, of all that a file calls."""
    found = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {".".join(ast.unparse(function).split(".")[-2:]) for function in found}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_on_the_way_of_data_asks_what_time_it_is(room):
    files = sorted((Path(lamarckian.__file__).parent / room).glob("**/*.py"))
    assert files and {path.name: calls(path) & WALL for path in files if calls(path) & WALL} == {}
    assert not [path.name for path in files if "from time import" in path.read_text()]


def test_a_call_that_asks_is_found(tmp_path):
    (tmp_path / "file.py").write_text("import time, datetime\nlater = time.time() + 1\nnow = datetime.datetime.now()\n")
    assert calls(tmp_path / "file.py") == {"time.time", "datetime.now"}
