"""Checkpoints: what a run needs to go on exactly where it stood, written whole or not at all.

`checkpoints/<steps>/` holds `policy.safetensors`, `optimizer.safetensors`, `arrays.safetensors` and `state.json`, which
also has size and checksum of the others; `checkpoints/best.json` says which one has the best score, and of what. Nothing is pickled.
What may be too large to be kept more than once, `replay.safetensors`, is in the newest only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from lamarckian.errors import CheckpointError
from lamarckian.record.arrays import read_arrays, write_arrays
from lamarckian.record.run import Run, write, writing

FORMAT = "lamarckian checkpoint"
NUMBER = 1
PARTS = ("policy", "optimizer", "arrays")
BEST = "best.json"
REPLAY = "replay.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    steps: samples so far. version: of the policy. score: by which the best is chosen, or None.
    signature: what the policy sees and does (`lamarckian.record.signature`).
    policy: parameters by name. arrays: anything else that is arrays by name, such as random states and pending matches.
    optimizer: a tree of dicts, lists, tuples, numbers, texts and arrays, such as a torch state dict.
    state: whatever else, as JSON: counters, random states (integers of any size).
    replay: arrays by name that the newest checkpoint alone holds; left out in what is loaded, see `load_replay`.
    Tensors may be given for arrays; what is loaded are arrays.
    """

    steps: int
    version: int
    score: float | None
    signature: Mapping[str, Any]
    policy: Mapping[str, Any]
    optimizer: Any = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    replay: Mapping[str, np.ndarray] = field(default_factory=dict)


def save(run: Run, checkpoint: Checkpoint, keep: int, measure: str = "score") -> Path:
    """Writes a checkpoint, keeps the `keep` newest and the best, and deletes the rest; gives its folder.

    One that is there already, whole, with the same steps and version, stays as it is.
    measure: what the score is; scores of another are not compared with it, and the best by that stays until there is one by this.
    Raises RunFolderError where the disk is full or the folder cannot be written to; earlier checkpoints stay intact.
    """
    folder = run.checkpoints_path / str(checkpoint.steps)
    part = run.checkpoints_path / f".{checkpoint.steps}.part"
    if _holds(folder, checkpoint.version):
        return folder
    with writing(run.checkpoints_path):
        run.checkpoints_path.mkdir(exist_ok=True)
        for left in run.checkpoints_path.glob(".*.part"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            part.mkdir()
            _fill(part, checkpoint)
            if folder.exists():
                _remove(folder)
            part.rename(folder)
            _sync(run.checkpoints_path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        for steps in saved(run):
            if steps != checkpoint.steps:
                (run.checkpoints_path / str(steps) / REPLAY).unlink(missing_ok=True)
        best = _best(run)
        rival = best if best is not None and best.get("measure") == measure else None
        if checkpoint.score is not None and (rival is None or checkpoint.score >= rival["score"]):
            best = {"steps": checkpoint.steps, "score": checkpoint.score, "measure": measure}
            write(run.checkpoints_path / BEST, json.dumps(best))
        for steps in saved(run)[:-keep]:
            if best is None or steps != best["steps"]:
                _remove(run.checkpoints_path / str(steps))
    return folder


def saved(run: Run) -> list[int]:
    """The steps of a run's checkpoints, oldest first."""
    if not run.checkpoints_path.is_dir():
        return []
    return sorted(int(entry.name) for entry in run.checkpoints_path.iterdir() if entry.name.isdecimal())


def load(run: Run, which: str | int = "last") -> Checkpoint:
    """Reads a checkpoint: `last`, `best` (the last where no score was ever known), or the one at so many steps.

    Raises CheckpointError where there is none, or it is damaged, foreign or of a newer format.
    """
    steps = saved(run)
    if not steps:
        raise CheckpointError(f"{run.folder} has no checkpoint yet")
    if which == "last":
        chosen = steps[-1]
    elif which == "best":
        best = _best(run)
        chosen = best["steps"] if best is not None else steps[-1]
    elif str(which).isdecimal():
        chosen = int(which)
    else:
        raise CheckpointError(f"checkpoint: given {which!r}; allowed: last, best, or the steps of one: {', '.join(map(str, steps))}")
    if chosen not in steps:
        raise CheckpointError(f"{run.folder} has no checkpoint at {chosen} steps; there are: {', '.join(map(str, steps))}")
    try:
        return read(run.checkpoints_path / str(chosen))
    except CheckpointError as error:
        others = [str(other) for other in steps if other != chosen]
        hint = (
            f"; others are there: {', '.join(others)}. To go on from the last of them, delete {run.checkpoints_path / str(chosen)}"
            if others
            else ""
        )
        raise CheckpointError(f"{error}{hint}") from error.__cause__


def load_replay(run: Run, steps: int) -> dict[str, np.ndarray] | None:
    """The replay of the checkpoint at so many steps: views of its file, none where it was saved without; None where it has lost it.

    Raises CheckpointError where it is damaged.
    """
    folder = run.checkpoints_path / str(steps)
    written = _state(folder / "state.json")["files"].get("replay")
    if written is None:
        return {}
    return read_arrays(folder / REPLAY, **written) if (folder / REPLAY).exists() else None


def read(folder: Path) -> Checkpoint:
    """Reads the checkpoint in `folder`. Raises CheckpointError that names the file and its fault."""
    path = folder / "state.json"
    state = _state(path)
    try:
        parts = {name: _read_part(folder / f"{name}.safetensors", **state["files"][name]) for name in PARTS}
        return Checkpoint(
            steps=state["steps"],
            version=state["version"],
            score=state["score"],
            signature=state["signature"],
            policy=parts["policy"],
            optimizer=unpack(parts["optimizer"], state["optimizer"]),
            arrays=parts["arrays"],
            state=state["state"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__} {error}") from error


def _state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(_bytes(path))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not of a checkpoint of Lamarckian")
    if state.get("number") != NUMBER:
        raise CheckpointError(f"{path} has format number {state.get('number')}; this version of Lamarckian reads number {NUMBER}")
    return state


def pack(tree: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Splits a tree of dicts, lists, tuples, numbers, texts and arrays or tensors into arrays by name and plain JSON.

    Raises TypeError for anything else.
    """
    arrays: dict[str, np.ndarray] = {}

    def form(node: Any, name: str) -> Any:
        if isinstance(node, bool | int | float | str | None):
            return node
        if isinstance(node, Mapping):
            if not all(isinstance(key, str | int) for key in node):
                raise TypeError(f"keys of a tree are texts or integers, not {list(node)!r}")
            return {"dict": [[key, form(inner, f"{name}.{key}")] for key, inner in node.items()]}
        if isinstance(node, list | tuple):
            return {"tuple" if isinstance(node, tuple) else "list": [form(inner, f"{name}.{index}") for index, inner in enumerate(node)]}
        name = name.removeprefix(".")
        while name in arrays:
            name += "'"
        arrays[name] = _array(node)
        return {"array": name}

    plain = form(tree, "")
    return arrays, plain


def unpack(arrays: Mapping[str, np.ndarray], form: Any) -> Any:
    """The tree that `pack` split; tensors come back as arrays."""
    if not isinstance(form, dict):
        return form
    [(kind, content)] = form.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: unpack(arrays, inner) for key, inner in content}
    branches = [unpack(arrays, inner) for inner in content]
    return tuple(branches) if kind == "tuple" else branches


def as_tensors(tree: Any) -> Any:
    """The same tree with every array as a torch tensor, as `load_state_dict` wants it."""
    import torch

    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, Mapping):
        return {key: as_tensors(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(as_tensors(value) for value in tree)
    return tree


def _array(value: Any) -> np.ndarray:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf":
        raise TypeError(f"a checkpoint holds arrays and plain values, not {type(value).__name__}: {value!r}")
    return np.asarray(value, order="C")


def _fill(folder: Path, checkpoint: Checkpoint) -> None:
    optimizer, form = pack(checkpoint.optimizer)
    parts = {
        "policy": {name: _array(value) for name, value in checkpoint.policy.items()},
        "optimizer": optimizer,
        "arrays": {name: _array(value) for name, value in checkpoint.arrays.items()},
    }
    files = {}
    for name, arrays in parts.items():
        content = to_safetensors(arrays)
        write(folder / f"{name}.safetensors", content)
        files[name] = {"size_bytes": len(content), "crc32": zlib.crc32(content)}
    if checkpoint.replay:
        files["replay"] = write_arrays(folder / REPLAY, checkpoint.replay)
    state = {
        "format": FORMAT,
        "number": NUMBER,
        "steps": checkpoint.steps,
        "version": checkpoint.version,
        "score": checkpoint.score,
        "signature": checkpoint.signature,
        "files": files,
        "optimizer": form,
        "state": checkpoint.state,
    }
    write(folder / "state.json", json.dumps(state))
    _sync(folder)


def _read_part(path: Path, size_bytes: int, crc32: int) -> dict[str, np.ndarray]:
    content = _bytes(path)
    if len(content) != size_bytes:
        raise CheckpointError(f"{path} is cut off: it has {len(content)} bytes of {size_bytes}")
    if zlib.crc32(content) != crc32:
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    try:
        return from_safetensors(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def _holds(folder: Path, version: int) -> bool:
    try:
        return folder.exists() and read(folder).version == version
    except CheckpointError:
        return False


def _best(run: Run) -> dict[str, Any] | None:
    """The marker of the best checkpoint, where it can be read and that checkpoint is still there."""
    try:
        best = json.loads((run.checkpoints_path / BEST).read_bytes())
        return best if (run.checkpoints_path / str(best["steps"])).is_dir() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(folder: Path) -> None:
    """Takes a checkpoint away at one stroke, so that no half of it is ever taken for a whole."""
    part = folder.with_name(f".{folder.name}.old.part")
    folder.rename(part)
    shutil.rmtree(part)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
