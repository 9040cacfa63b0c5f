"""What the processes of a training on many machines are told, and what they tell.

A supervisor, in the process of the command line, places a learner or several, and on each machine a station, which has the machine's
relay, dispatch and actors. Stations tell the first learner how they are; it writes down how the run stands, and tells the supervisor what
to show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from lamarckian.learner.ring import Ring
from lamarckian.plugins import validate
from lamarckian.recipe import Recipe
from lamarckian.transport.channel import Outbox, host_port, is_local

HEARD_S = 10.0
SILENCE_S = 600.0
"""How long a learner may be busy with an update, or a checkpoint, before the others take it for hung; of its end they hear at once."""


class Addresses(msgspec.Struct, frozen=True):
    """Where they find each other: all but `pools`, of which there is one beside each learner, are with the first learner.

    desk: for stations and other learners. root, children: for relays. ring: for learners. relay_port: of each machine; 0: any.
    """

    desk: str
    root: str
    children: str
    ring: str
    pools: list[str]
    relay_port: int

    @property
    def network(self) -> bool:
        """Whether others than this machine are reached."""
        return not is_local(self.desk)


class Post(msgspec.Struct, frozen=True):
    """What a learner's process is told.

    rank: its place among the learners; the first, 0, publishes, records and saves. recipe: in its plain form.
    folder: of the run, and `told`, where the supervisor listens: for the first alone.
    resume: go on from the newest checkpoint. taken: as `lamarckian.evaluate.training.train` has it.
    gpu: which of those that its machine has to give; None: it learns on the CPU, or on what the recipe says where it is alone.
    """

    rank: int
    recipe: dict[str, Any]
    addresses: Addresses
    gpu: int | None = None
    folder: str = ""
    told: str = ""
    resume: bool = False
    taken: int | None = None

    def resolved(self) -> Recipe:
        """The recipe, which was checked where it came from; files that it names need not be on this machine."""
        return validate(Recipe, self.recipe)

    def show_gpu(self) -> None:
        """Lets this process see its own GPU alone; before CUDA is used. What Ray or a person hid stays hidden."""
        if self.gpu is not None:
            shown = os.environ.get("CUDA_VISIBLE_DEVICES")
            os.environ["CUDA_VISIBLE_DEVICES"] = shown.split(",")[self.gpu] if shown else str(self.gpu)

    @contextmanager
    def join(self, device: str) -> Iterator[Ring | None]:
        """The ring of the learners while the block lasts; None where there is one learner. device: on which it learns."""
        size = len(self.addresses.pools)
        if size == 1:
            yield None
            return
        ring = Ring(self.rank, size, *host_port(self.addresses.ring), SILENCE_S, device)
        try:
            yield ring
        finally:
            ring.close()


class Line(msgspec.Struct, frozen=True, tag=True):
    """A line of metrics."""

    values: dict[str, Any]


class Note(msgspec.Struct, frozen=True, tag=True):
    """Something that should not scroll away unseen."""

    text: str


class Summary(msgspec.Struct, frozen=True, tag=True):
    """How a training ended; a learner tells its supervisor, too.

    scored: what the score is of, a match, or an epoch where nobody plays; None where none has finished. checkpoint: the last one's folder.
    """

    interrupted: bool
    steps: int
    version: int
    score: float | None
    scored: str
    minutes: float
    checkpoint: str


class Heard(msgspec.Struct, frozen=True, tag=True):
    """Supervisor to learner: it knows that the training is over."""


class Teller:
    """A learner's display: tells the supervisor, who shows it."""

    def __init__(self, address: str) -> None:
        self._outbox = Outbox((Heard,), address, "learner")

    def update(self, values: Mapping[str, Any]) -> None:
        """A line of metrics."""
        self._outbox.send(Line(dict(values)))

    def note(self, message: str) -> None:
        """As `lamarckian.record.progress.Progress.note`."""
        self._outbox.send(Note(message))

    def end(self, summary: Summary) -> None:
        """Says that the training is over, and waits until that was heard, lest it be lost with this process."""
        self._outbox.send(summary)
        self._outbox.receive(HEARD_S)
        self._outbox.close()
