"""Recorded matches: a folder with a file for each role of each match, and `dataset.json`, which says whose they are.

A file is safetensors: `inputs.<name>`, `legal.<head>`, `action.<head>` `[L, …]`, `reward` `[L, R]`, and `terminated`, `truncated`, `learn`
`[L]`, for the L decisions of a role. Files are written whole or not at all, and count from when `dataset.json` names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from lamarckian.errors import CheckpointError, RunFolderError
from lamarckian.record.run import write, writing
from lamarckian.record.signature import differences

FORMAT = "lamarckian recordings"
NUMBER = 2
HEADER = "dataset.json"


class Recorded(msgspec.Struct, frozen=True):
    """What one role did in one match, which has this `match` number and seed. agents: who played, by role."""

    file: str
    match: int
    seed: int
    role: str
    agents: dict[str, str]
    steps: int
    score: float
    outcome: str | None


class Header(msgspec.Struct):
    """What is in `dataset.json`. game: what of the recipe changes what a player sees or gets, by key, such as `game.rounds`."""

    game: dict[str, Any]
    signature: dict[str, Any]
    recorded: list[Recorded]
    format: str = FORMAT
    number: int = NUMBER


class Recordings:
    """A folder of recorded matches; made by `open_recordings` and `begin_recordings`."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self._header = header

    @property
    def signature(self) -> Mapping[str, Any]:
        """Of every role that is in here, see `lamarckian.record.signature`."""
        return self._header.signature

    @property
    def game(self) -> Mapping[str, Any]:
        return self._header.game

    @property
    def recorded(self) -> list[Recorded]:
        """In the order in which they were added."""
        return self._header.recorded

    @property
    def matches(self) -> list[int]:
        """The numbers of the matches, ascending."""
        return sorted({entry.match for entry in self.recorded})

    @property
    def digest(self) -> str:
        """Of what `dataset.json` says of the files: tells these from any others."""
        return hashlib.sha256(msgspec.json.encode(self.recorded)).hexdigest()

    def first(self, files: int) -> Recordings:
        """The same folder before more than so many files were added."""
        return Recordings(self.folder, msgspec.structs.replace(self._header, recorded=self.recorded[:files]))

    def add(self, parts: Mapping[str, Mapping[str, np.ndarray]], entries: list[Recorded]) -> None:
        """Adds a match: the arrays of each role's file, and what `dataset.json` is to say of each.

        Raises RunFolderError where the disk is full or the folder cannot be written to.
        """
        with writing(self.folder):
            for entry in entries:
                write(self.folder / entry.file, to_safetensors({name: np.ascontiguousarray(x) for name, x in parts[entry.role].items()}))
            self._header.recorded += entries
            write(self.folder / HEADER, msgspec.json.format(msgspec.json.encode(self._header), indent=1))

    def read(self, entry: Recorded) -> dict[str, np.ndarray]:
        """The arrays of a file. Raises CheckpointError where it is missing or damaged."""
        path = self.folder / entry.file
        try:
            arrays = from_safetensors(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged: {error}") from None
        wrong = [f"{name} has {len(x)}" for name, x in arrays.items() if len(x) != entry.steps]
        if wrong:
            raise CheckpointError(f"{path} should have {entry.steps} steps; {', '.join(wrong)}")
        return arrays


def open_recordings(folder: str | Path) -> Recordings:
    """Opens recorded matches. Raises RunFolderError where there are none, CheckpointError where they are foreign or damaged."""
    path = Path(folder) / HEADER
    try:
        header = msgspec.json.decode(path.read_bytes(), type=Header)
    except OSError:
        what = f"has no {HEADER}" if Path(folder).is_dir() else "is not there"
        raise RunFolderError(f"{folder} {what}; `lamarckian record` writes matches to learn from") from None
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is damaged, or not of recorded matches: {error}") from None
    if (header.format, header.number) != (FORMAT, NUMBER):
        raise CheckpointError(f"{path} is '{header.format}' number {header.number}; this version of Lamarckian reads '{FORMAT}' {NUMBER}")
    return Recordings(Path(folder), header)


def begin_recordings(folder: str | Path, game: Mapping[str, Any], signature: Mapping[str, Any]) -> Recordings:
    """Opens a folder to add matches of `game` to; a new one is made.

    Raises RunFolderError where it holds anything else, or matches of another game or of roles with other spaces.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; choose another folder with --out")
    if not (folder / HEADER).exists():
        if folder.exists() and any(folder.iterdir()):
            raise RunFolderError(f"{folder} holds files that are not recorded matches; choose another folder with --out")
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return Recordings(folder, Header(dict(game), dict(signature), []))
    there = open_recordings(folder)
    faults = differences(there.game, game, "there", "now")
    if faults or there.signature != signature:
        reason = faults or "the roles see or do something else"
        raise RunFolderError(f"{folder} holds matches of another game: {reason}; choose another folder with --out")
    return there
