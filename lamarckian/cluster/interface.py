"""Starting processes, and learning of their ends. Where they run is the implementation's affair."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from traceback import extract_tb
from typing import Any, Protocol

import msgspec

from lamarckian import errors
from lamarckian.errors import LamarckianError, ProcessError


class Process(msgspec.Struct, frozen=True):
    """A process that was started. `attempt` is 0 at first and grows with each restart; `pid` is on its own machine."""

    name: str
    attempt: int
    pid: int


class Machine(msgspec.Struct, frozen=True):
    """A machine that processes can be started on. address: by which the others reach it. gpus: how many it has to give."""

    name: str
    address: str
    cores: int
    gpus: int = 0


class Failure(msgspec.Struct, frozen=True):
    """An exception that ended a process. `kind` is a class of `lamarckian.errors`, or "" for what nobody foresaw."""

    kind: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException, traceback: str) -> Failure:
        """What is to be told of `error`; a subclass that `lamarckian.errors` does not know counts as its base.

        Of what nobody foresaw, the message says where it was raised.
        """
        known = [base.__name__ for base in type(error).__mro__ if getattr(errors, base.__name__, None) is base]
        if known:
            return cls(known[0], str(error), traceback)
        place = extract_tb(error.__traceback__)[-1]
        return cls("", f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})", traceback)


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: by itself, with `code`, or by the number of a `signal`.

    failure: the exception that ended it, when it could still tell. tail: the last that it wrote to stdout and stderr.
    """

    name: str
    attempt: int
    code: int | None
    signal: int | None
    failure: Failure | None
    tail: str

    @property
    def outside(self) -> bool:
        """Whether somebody else ended it: by SIGKILL or SIGTERM, as the system does when memory runs out, or together with its machine."""
        return self.code is None and self.signal in (None, signal.SIGKILL, signal.SIGTERM)

    def describe(self) -> str:
        """The end in a line, with its last words."""
        if self.failure is not None:
            return f"{self.name} failed: {self.failure.message}"
        if self.signal is None:
            how = f"ended with exit code {self.code}"
        else:
            hint = ", perhaps because memory ran out" if self.signal == signal.SIGKILL else ""
            how = f"was ended by {signal.Signals(self.signal).name}{hint}"
        words = self.tail.strip()
        return f"{self.name} {how}" + (f"; its last words: {words}" if words else "")

    def check(self) -> None:
        """Raises the process's own error, where it could tell one: another start would only meet it again."""
        if self.failure is not None and self.failure.kind:
            raise self.error()

    def error(self) -> LamarckianError:
        """What to raise when the run cannot go on: the process's own error by its type and message, else a ProcessError."""
        if self.failure is not None and self.failure.kind:
            return getattr(errors, self.failure.kind)(self.failure.message)
        return ProcessError(self.describe())


class Cluster(Protocol):
    """Starts processes and watches them. A process is known by its name, of which there is one at a time."""

    def machines(self) -> list[Machine]:
        """The machines that are there now, this process's own first."""
        ...

    def start(
        self,
        name: str,
        target: str,
        config: Mapping[str, Any],
        fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        machine: str | None = None,
    ) -> Process:
        """Runs `target`, "module:function", on `config` in a process of its own.

        machine: on which of the machines, by name; None for this process's own. Raises ProcessError when it is not there.

        config: plain data that msgpack can say; the process also finds its `attempt` in it.
        fds: descriptors that it inherits under the same numbers. They mean something on this machine only.
        environment: variables to set in it.
        Raises ValueError when a process of this name is there.
        """
        ...

    def poll(self) -> list[Exit]:
        """The processes that ended by themselves since the last call, each told once. Does not wait."""
        ...

    def restart(self, name: str) -> Process:
        """Starts a process that `poll` told the end of anew, as it was started first, with the next `attempt`.

        Raises ProcessError when it died too often in too short a time, or its machine is not there any more.
        """
        ...

    def stop(self, name: str) -> None:
        """Ends a process, which `poll` then does not tell; harmless when it ended before."""
        ...

    def close(self) -> None:
        """Ends all processes; harmless when repeated."""
        ...
