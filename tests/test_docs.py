"""The documentation keeps its word: its code is the code that is there, and its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHORT = ["stop.steps=null", "stop.score=null", "stop.minutes=0.05", "learner.threads=1"]
SHORT_EVOLUTION = ["stop.target=null", "stop.hypervolume=null", "stop.minutes=null"]
MADE_ELSEWHERE = ("make ", "pip install", "python benchmarks/")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    found = [line.strip() for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return list(dict.fromkeys(line for line in found if line and not line.startswith("#")))


def python_blocks() -> list[pytest.param]:
    return [pytest.param(block, id=f"{page.name}-{index}") for page in PAGES for index, block in enumerate(blocks(page, "python"))]


def shortened(command: str, folder: Path) -> str:
    """The command, as run in `folder`, but a training ends after a few seconds, and an evolution after a few generations."""
    found = re.match(r"lamarckian (train|evolve|resume) (\S+)", command)
    if found is None:
        return command
    verb, what = found.groups()
    if verb == "evolve":
        return f"{command} {' '.join(SHORT_EVOLUTION)} stop.evaluations=100"
    if verb == "resume" and "problem:" in (folder / what / "recipe.yaml").read_text():
        return f"{command} {' '.join(SHORT_EVOLUTION)} stop.evaluations=200"
    return f"{command} {' '.join(SHORT)} {'' if films(command) else '--no-video'}"


def films(command: str) -> bool:
    """Whether a training ends with a film in this test, too: a few do, films take time, and `video` makes one."""
    return "--run runs/cartpole" in command


def test_every_command_of_the_documentation_runs(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = 0
    for command in commands():
        if command.startswith(MADE_ELSEWHERE) or "atari" in command:
            continue
        done = subprocess.run(
            shortened(command, tmp_path),
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        ran += 1
    assert ran > 8


def test_targets_and_scripts_of_the_documentation_are_there():
    makefile = (ROOT / "Makefile").read_text()
    for command in commands():
        for target in re.findall(r"^make ([\w-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), command
        for script in re.findall(r"python ((?:benchmarks|examples)/\S+\.py)", command):
            assert (ROOT / script).is_file(), command


@pytest.mark.parametrize("block", python_blocks())
def test_every_python_block_of_the_documentation_runs(block, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "block.py").write_text(block)
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("page", "example"), [("README.md", "duel.py"), ("docs/evolution.md", "team.py")])
def test_an_example_in_the_documentation_is_the_example(page, example):
    assert (ROOT / "examples" / example).read_text() in blocks(ROOT / page, "python")


def test_the_recipe_of_a_program_in_the_documentation_is_the_example():
    _, _, *lines = (ROOT / "examples" / "knapsack.yaml").read_text().splitlines(keepends=True)
    assert "".join(lines) in blocks(ROOT / "docs" / "evolution.md", "yaml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"(?:\]\(|src=\")([^)\"#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_demo_of_the_readme_runs_from_a_fresh_clone(tmp_path):
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    done = subprocess.run(["make", "demo"], cwd=tmp_path / "clone", capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("curve.png", "match.gif"):
        assert (tmp_path / "clone" / "runs" / "demo" / name).is_file()
