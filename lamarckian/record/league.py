"""A league on disk: what past versions hold, and who is to be met how often.

The folder `league/` of a run has `v<version>.safetensors` of each past version, written once, and `index.json`, which the learner replaces
whole whenever a share changes and actors read whenever they draw an opponent.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from lamarckian.errors import CheckpointError
from lamarckian.record.run import write, writing

INDEX = "index.json"
SELF = "self"
"""The opponent that is the newest version itself."""


class Opponent(msgspec.Struct, frozen=True):
    """Who may be met in a `share` of the matches. version: of a past version; None for all others."""

    name: str
    share: float
    version: int | None = None


def file_name(version: int) -> str:
    """Of the parameters of a past version."""
    return f"v{version}.safetensors"


class LeagueFolder:
    """Both sides of a league's folder: the learner stores, publishes and removes, actors read."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def publish(self, opponents: list[Opponent]) -> None:
        """Replaces the index. It need not outlive a power cut: a resumed run makes it anew from its checkpoint."""
        part = self._folder / f".{INDEX}.part"
        with writing(self._folder):
            part.write_bytes(msgspec.json.encode(opponents))
            part.replace(self._folder / INDEX)

    def opponents(self) -> list[Opponent]:
        """Whoever may be met now. Raises CheckpointError where the index cannot be read."""
        path = self._folder / INDEX
        try:
            return msgspec.json.decode(path.read_bytes(), type=list[Opponent])
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointError(f"cannot read {path}, which the run writes before its actors start: {error}") from error

    def store(self, version: int, parameters: np.ndarray) -> None:
        """Writes the flat float32 parameters of a version to the disk, whole or not at all."""
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)
            write(self._folder / file_name(version), to_safetensors({"parameters": parameters}))

    def parameters(self, version: int) -> np.ndarray:
        """The flat parameters of a past version. Raises CheckpointError where they are missing or damaged."""
        path = self._folder / file_name(version)
        try:
            return from_safetensors(path.read_bytes())["parameters"]
        except (OSError, SafetensorError, KeyError) as error:
            raise CheckpointError(f"cannot read {path}, a past version of the league: {error}") from error

    def keep(self, versions: Collection[int], others: Collection[int] = ()) -> None:
        """Removes all parameters but those of `versions`, and of `others` as far as they are there; also what a killed run began to write.

        Raises CheckpointError where one of `versions` is not there.
        """
        wanted = {file_name(version) for version in versions}
        found = {path.name: path for path in self._folder.glob("v*.safetensors")}
        missing = sorted(wanted - found.keys())
        if missing:
            raise CheckpointError(f"{self._folder} lacks {', '.join(missing)}, past versions that the checkpoint names")
        with writing(self._folder):
            for name in found.keys() - wanted - {file_name(version) for version in others}:
                found[name].unlink()
            for part in self._folder.glob(".v*.part"):
                part.unlink()
