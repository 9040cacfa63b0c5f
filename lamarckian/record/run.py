"""The folder of a run: what lies where, who may write to it, and what it was made with."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import lamarckian
from lamarckian.errors import RecipeError, RunFolderError
from lamarckian.recipe import AnyRecipe, Recipe, load, load_any
from lamarckian.recipe.document import parse

PACKAGES = ("lamarckian", "numpy", "torch", "onnxruntime", "gymnasium", "ale-py", "pettingzoo", "numba", "pyzmq", "ray")
WRITTEN = (
    "recipe.yaml", "versions.json", "metrics.jsonl", "changes.jsonl", "checkpoints", "curve.png", "match.gif", "report.html",
    "failures.jsonl", "front.csv", "front.json", "front.png", "league", "league.json", "status.json",
)  # fmt: skip
LOCK = ".lock"


class Run:
    """A run's folder; made by `create`, `resume` and `open_run`. As a context manager it gives its lock back."""

    def __init__(self, folder: Path, lock: int | None = None) -> None:
        self.folder = folder
        self._lock = lock
        self._before: dict[Path, str] = {}

    @property
    def recipe_path(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def versions_path(self) -> Path:
        return self.folder / "versions.json"

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def changes_path(self) -> Path:
        return self.folder / "changes.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def league_path(self) -> Path:
        return self.folder / "league"

    @property
    def standings_path(self) -> Path:
        return self.folder / "league.json"

    @property
    def status_path(self) -> Path:
        return self.folder / "status.json"

    @property
    def failures_path(self) -> Path:
        return self.folder / "failures.jsonl"

    @property
    def curve_path(self) -> Path:
        return self.folder / "curve.png"

    @property
    def video_path(self) -> Path:
        return self.folder / "match.gif"

    def recipe(self, overrides: tuple[str, ...] | list[str] = ()) -> Recipe:
        """The recipe of a run of training. Raises RecipeError where it no longer holds, say after a change of a plug-in."""
        return load(self.recipe_path, overrides)

    def at_work(self) -> bool:
        """Whether a process trains in this folder now."""
        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def undo_resume(self) -> None:
        """Takes back what `resume` changed, where the training then refuses to go on with it."""
        for path, content in self._before.items():
            with writing(path):
                write(path, content)

    def keep_resume(self) -> None:
        """What `resume` changed stays from now on: the training goes on by it."""
        self._before = {}

    def close(self) -> None:
        """Lets other processes train here. Harmless when repeated."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def create(folder: str | Path, recipe: AnyRecipe, overwrite: bool = False) -> Run:
    """Starts a run in `folder`, locked for this process.

    Raises RunFolderError where the folder holds something (a run that was refused before its first update gives way, any
    run does with `overwrite`, other files never do), where another process trains in it, or where it cannot be written to.
    """
    folder = Path(folder)
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(f"{folder} is a file; choose another folder with --run")
        folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder, _lock(folder))
    try:
        _make_way(run, overwrite)
        with writing(folder):
            write(run.versions_path, json.dumps({"seed": recipe.seed, **_versions()}, indent=1))
            run.checkpoints_path.mkdir()
            write(run.recipe_path, recipe.dump())
    except BaseException:
        run.close()
        raise
    return run


def resume(folder: str | Path, overrides: tuple[str, ...] | list[str] = ()) -> tuple[Run, AnyRecipe]:
    """Opens a run to train on, locked for this process; changed settings are written back to its recipe.

    Raises RunFolderError where there is no run, another process trains in it, or it cannot be written to; RecipeError
    where the recipe with the overrides does not hold, or begins from another run than this one has begun from.
    """
    folder = open_run(folder).folder
    run = Run(folder, _lock(folder))
    try:
        recipe = load_any(run.recipe_path, overrides)
        run._before = {path: path.read_text() for path in (run.recipe_path, run.versions_path) if path.exists()}
        _refuse_another_start(parse(run.recipe_path.read_text()).get("start"), getattr(recipe, "start", None))
        versions = json.loads(run._before.get(run.versions_path, "{}"))
        versions["resumed"] = [*versions.get("resumed", ()), {"overrides": list(overrides), **_versions()}]
        with writing(folder):
            write(run.versions_path, json.dumps(versions, indent=1))
            write(run.recipe_path, recipe.dump())
    except BaseException:
        run.close()
        raise
    return run, recipe


def _refuse_another_start(begun: str | None, start: str | None) -> None:
    if start != (None if begun is None else str(Path(begun).resolve())):
        raise RecipeError(
            f"start: given {start or 'null'}; a run that goes on has parameters already, and began from {begun or 'no other run'}: "
            "leave start out, or begin a new run with it, by `lamarckian train`"
        )


def open_run(folder: str | Path) -> Run:
    """Opens a run to read from. Raises RunFolderError where there is none."""
    folder = Path(folder)
    if not (folder / "recipe.yaml").is_file():
        what = "has no recipe.yaml, so it is no run" if folder.is_dir() else "is not there"
        raise RunFolderError(f"run {folder} {what}; runs lie in the folder that `lamarckian train` named, by default under runs/")
    return Run(folder)


def open_training(folder: str | Path) -> Run:
    """Opens a run whose agent is to play. Raises as `open_run`, and where the run is an evolution."""
    run = open_run(folder)
    if "problem" in parse(run.recipe_path.read_text()):
        raise RunFolderError(f"run {folder} is an evolution, which has no agent that plays; what it found is in {run.folder / 'front.csv'}")
    return run


def default_folder(recipe: str) -> Path:
    """`runs/<recipe>-<time>` for a recipe's name or path."""
    name = recipe if "/" in recipe and not recipe.endswith((".yaml", ".yml")) else Path(recipe).stem
    return Path("runs") / f"{name.strip('./').replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure to write within the block into a RunFolderError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunFolderError(
                f"{path}: the disk is full; what was saved before is intact. Free some space, then `lamarckian resume`"
            ) from error
        raise RunFolderError(f"cannot write to {path}: {error.strerror or error}; choose another folder") from error


def write(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all, to the disk."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _lock(folder: Path) -> int:
    with writing(folder):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode() or "unknown"
        os.close(descriptor)
        raise RunFolderError(
            f"another process (pid {holder}) is at work in {folder}; wait for it, stop it, or choose another folder with --run"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _make_way(run: Run, overwrite: bool) -> None:
    present = [entry for entry in run.folder.iterdir() if entry.name != LOCK]
    if not present:
        return
    if not run.recipe_path.exists():
        raise RunFolderError(f"{run.folder} holds files that are not a run; choose another folder with --run")
    if not overwrite and (list(run.checkpoints_path.glob("*")) or (run.metrics_path.exists() and run.metrics_path.stat().st_size)):
        raise RunFolderError(
            f"{run.folder} holds a run already: go on with it by `lamarckian resume {run.folder}`, choose another folder with --run, "
            "or give --overwrite to delete it"
        )
    with writing(run.folder):
        for entry in present:
            if entry.name in WRITTEN or entry.name.startswith("events.out.tfevents"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _versions() -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
        },
    }


def _version(package: str) -> str | None:
    try:
        return lamarckian.__version__ if package == "lamarckian" else metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of a checkout that the package runs from; ends in -dirty where files were changed."""
    package = Path(lamarckian.__file__).parent
    try:
        git = ["git", "-C", str(package)]
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], check=True, capture_output=True, timeout=10)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], check=True, capture_output=True, timeout=10
        )
        return described.stdout.decode().strip()
    except (OSError, subprocess.SubprocessError):
        return None
