"""Evaluators that are programs, in any language: a command started for each candidate, or a game that runs already and watches a folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np

from lamarckian.ec.description import Description, genome_from
from lamarckian.ec.evaluator import finish
from lamarckian.ec.genome import Categorical, Genes, Genome, Network
from lamarckian.ec.population import Evaluation, Fault
from lamarckian.errors import MisuseError

CANDIDATE = "LAMARCKIAN_CANDIDATE"
"""The environment variable in which a command finds its candidate's id."""
_PLACEHOLDER = re.compile(r"\{(id|input|output)\}")
# `read` fails when the other end of the pipe is closed, as it is by a process that dies.
_GUARD = 'read -r over || { kill -s KILL -- "-$0"; rm -rf -- "$@"; }'
_TAIL_BYTES = 4096


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    objectives: list[float] | dict[str, float]
    violation: float = 0.0
    genome: dict[str, Any] = {}


class _Failed(Exception):
    def __init__(self, message: str, kind: Literal["raised", "timeout"] = "raised") -> None:
        super().__init__(message)
        self.kind = kind


class Program:
    """What the evaluators of this file have in common: JSON goes out, JSON comes back, one candidate after another.

    What goes out is {"id": 7, "genome": {part: [values]}}; in place of a network's values stands the path of a .npy file, float32 `[L]`.
    What comes back is a list of M numbers, or {"objectives": a list, or {name: number}, "violation": number, "genome": {part: values}}, of
    which only the first key must be there. Named objectives may be more than are asked for. `genome` has the parts that were changed, with
    what they are now, to be inherited; a network's may be the path of a .npy file, where a relative one begins at the folder of the file
    that went out. Other candidates of the same call are encoded anew then, which may round reals of logarithmic scale.
    A candidate fails alone, whatever its program does: see `Fault`.
    """

    singly = True

    def __init__(
        self, genome: Description | Mapping[str, Any], objectives: list[str], minimise: bool = True, timeout_s: float | None = None
    ) -> None:
        if isinstance(objectives, str) or not objectives or len(set(objectives)) < len(objectives):
            raise MisuseError(f"objectives must be a list of at least one name, each once, not {objectives!r}")
        if timeout_s is not None and not 0 < timeout_s < np.inf:
            raise MisuseError(f"timeout_s must be above 0, or none, not {timeout_s}")
        self.minimise = minimise
        self.names = tuple(objectives)
        self.objectives: int | None = len(self.names)
        self._timeout_s = timeout_s
        self._genome = genome_from(genome)
        self._networks = [name for name, part in self._genome.parts.items() if isinstance(part, Network)]

    def describe(self) -> Genome:
        """As `Evaluator.describe`."""
        return self._genome

    def initialize(self, count: int, generator: np.random.Generator) -> Genes | None:
        """As `Evaluator.initialize`."""
        return None

    def evaluate(self, ids: np.ndarray, values: Genes) -> Evaluation:
        """As `Evaluator.evaluate`."""
        raw, violation = np.full((len(ids), len(self.names)), np.nan), np.zeros(len(ids))
        faults: dict[int, Fault] = {}
        changed: dict[int, Genes] = {}
        for row, id in enumerate(ids.tolist()):
            try:
                raw[row], violation[row], changed[row] = self._judge(id, {name: array[row] for name, array in values.items()})
            except _Failed as failed:
                faults[row] = Fault(failed.kind, f"candidate {id}: {failed}")
            except OSError as error:
                faults[row] = Fault("raised", f"candidate {id}: {error}")
        evaluation = finish(raw, np.maximum(violation, 0.0), faults)
        if any(changed.values()):
            evaluation.genes = {name: array.copy() for name, array in self._genome.encode(values).items()}
            for row, genes in changed.items():
                for name, array in genes.items():
                    evaluation.genes[name][row] = array[0]
        return evaluation

    @abstractmethod
    def _judge(self, id: int, values: Genes) -> tuple[list[float], float, Genes]:
        """Objectives, violation and changed genes, part → `[1, L]`, of a candidate with `values`, part → `[L]`. Raises _Failed."""

    def _network_paths(self, prefix: str) -> dict[str, str]:
        return {name: f"{prefix}{quote(name, safe='')}.npy" for name in self._networks}

    def _question(self, id: int, values: Genes, prefix: str) -> str:
        """What goes out; saves networks in files that begin with `prefix`."""
        paths = self._network_paths(prefix)
        for name, path in paths.items():
            np.save(path, values[name])
        return json.dumps({"id": id, "genome": {name: paths.get(name) or array.tolist() for name, array in values.items()}})

    def _answer(self, found: Any, folder: Path) -> tuple[list[float], float, Genes]:
        """What came back, as `_judge` gives it; relative paths in it begin at `folder`."""
        wanted = f"{len(self.names)} objectives ({', '.join(self.names)})"
        try:
            answer = msgspec.convert({"objectives": found} if isinstance(found, list) else found, _Answer)
        except (msgspec.ValidationError, OverflowError) as error:
            form = 'a list of numbers, or {"objectives": [numbers] or {name: number}, "violation": number, "genome": {part: values}}'
            raise _Failed(f"expected {wanted} as {form}, not {json.dumps(found):.200} ({error})") from None
        objectives = answer.objectives
        if isinstance(objectives, dict):
            missing = [name for name in self.names if name not in objectives]
            if missing:
                raise _Failed(f"expected {wanted}; {', '.join(missing)} is missing in {json.dumps(objectives):.200}")
            objectives = [objectives[name] for name in self.names]
        if len(objectives) != len(self.names):
            raise _Failed(f"expected {wanted}, not {len(objectives)}: {json.dumps(objectives):.200}")
        return objectives, answer.violation, {name: self._encode(name, given, folder) for name, given in answer.genome.items()}

    def _encode(self, name: str, given: Any, folder: Path) -> np.ndarray:
        """Genes `[1, L]` of a part that was changed."""
        part = self._genome.parts.get(name)
        if part is None:
            raise _Failed(f"changed genes came of a part '{name}'; the genome has {', '.join(self._genome.parts)}")
        try:
            with np.errstate(all="ignore"):
                genes = part.encode(_values(part, given, folder)[None])
            return Genome({name: part}).check({name: genes}, "changed genes")[name]
        except (MisuseError, TypeError, ValueError, OverflowError, OSError, EOFError) as error:
            raise _Failed(f"changed genes of part '{name}' do not fit: {error}; they are {json.dumps(given):.200}") from None


class Command(Program):
    """Starts a command of its own for each candidate, without a shell.

    command: the program and its arguments, as a list, or a text that is split as a shell would. In the arguments, `{id}` stands for the
        candidate's id, `{input}` for a JSON file with its genes, and `{output}` for a JSON file that the command writes. Without
        `{output}`, the last line that it prints must be that JSON; whatever it prints before is free. See `Program` for both.
    genome: in plain form, see `genome_from`. objectives: their names. timeout_s: after which a command is killed; None: never.
    environment: variables besides those of this process and LAMARCKIAN_CANDIDATE, the id.
    folder: keeps each candidate's files in `folder/<id>/`: input.json, output.json, stdout.txt, stderr.txt. None: nothing is kept.

    The command runs in the current folder, in a session of its own. When it ends, is killed, or this process dies, whatever of its process
    group still runs is killed too. (A guard sees to the last: the kernel's death signal would reach the command, but not its children.)
    Raises MisuseError where there is no such program.
    """

    def __init__(
        self,
        command: str | list[str],
        genome: Description,
        objectives: list[str],
        minimise: bool = True,
        timeout_s: float | None = None,
        environment: Mapping[str, str] = {},
        folder: str | None = None,
    ) -> None:
        super().__init__(genome, objectives, minimise, timeout_s)
        self._command = _split(command)
        _find(self._command[0], environment.get("PATH"))
        if not any("{input}" in argument for argument in self._command[1:]):
            raise MisuseError("the command gets no genes: write {input} where it takes the name of the file that holds them")
        self._writes = any("{output}" in argument for argument in self._command[1:])
        self._environment = dict(environment)
        self._folder = None if folder is None else Path(folder).resolve()
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise MisuseError(f"folder: {error}") from None

    def _judge(self, id: int, values: Genes) -> tuple[list[float], float, Genes]:
        with self._place(id) as place:
            files = {"id": str(id), "input": f"{place}/input.json", "output": f"{place}/output.json"}
            Path(files["output"]).unlink(missing_ok=True)
            Path(files["input"]).write_text(self._question(id, values, f"{place}/"))
            arguments = [_PLACEHOLDER.sub(lambda match: files[match[1]], argument) for argument in self._command]
            self._run(arguments, id, Path(place))
            return self._answer(self._result(Path(place)), Path(place))

    def _place(self, id: int) -> Any:
        if self._folder is None:
            return tempfile.TemporaryDirectory(prefix=f"lamarckian-{id}-", ignore_cleanup_errors=True)
        place = self._folder / str(id)
        place.mkdir(exist_ok=True)
        return nullcontext(str(place))

    def _run(self, arguments: list[str], id: int, place: Path) -> None:
        environment = {**os.environ, **self._environment, CANDIDATE: str(id)}
        stdout, stderr = place / "stdout.txt", place / "stderr.txt"
        temporary = [str(place)] if self._folder is None else []
        with stdout.open("wb") as out, stderr.open("wb") as err, _session(arguments, environment, out, err, temporary) as process:
            try:
                code = process.wait(self._timeout_s)
            except subprocess.TimeoutExpired:
                raise _Failed(f"took more than {self._timeout_s:g} s and was killed{_last_words(stderr, stdout)}", "timeout") from None
        if code:
            ended = f"exit code {code}" if code > 0 else f"ended by signal {-code} ({signal.strsignal(-code)})"
            raise _Failed(f"{ended}{_last_words(stderr, stdout)}")

    def _result(self, place: Path) -> Any:
        if self._writes:
            try:
                text, what = (place / "output.json").read_bytes(), "its output file"
            except FileNotFoundError:
                raise _Failed(f"wrote no output file{_last_words(place / 'stderr.txt', place / 'stdout.txt')}") from None
        else:
            text, what = _last_line(place / "stdout.txt"), "the last line that it printed"
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Failed(f"expected JSON in {what}, not {text[:200].decode(errors='replace')!r} ({error})") from None


class Folder(Program):
    """Asks a game that runs already, by files: writes `folder/<id>.json`, waits for `folder/<id>.result.json`, and removes both.

    folder: must be there. The game should write its result aside and rename it; one that is not yet valid JSON is looked at again. Files of
        these names from earlier runs are removed first; what a slow game writes after its time is over can meet the same id again.
    genome: in plain form, see `genome_from`. objectives: their names. timeout_s: after which a candidate fails; None: never.
    poll_s: between two looks. See `Program` for what is in the files. Raises MisuseError where there is no such folder.
    """

    def __init__(
        self,
        folder: str,
        genome: Description,
        objectives: list[str],
        minimise: bool = True,
        timeout_s: float | None = None,
        poll_s: float = 0.05,
    ) -> None:
        super().__init__(genome, objectives, minimise, timeout_s)
        if not 0 < poll_s < np.inf:
            raise MisuseError(f"poll_s must be above 0, not {poll_s}")
        self._folder = Path(folder).resolve()
        if not (self._folder.is_dir() and os.access(self._folder, os.W_OK)):
            raise MisuseError(f"folder: there is no folder {self._folder} to write to; make it, and let the game watch it")
        self._poll_s = poll_s

    def _judge(self, id: int, values: Genes) -> tuple[list[float], float, Genes]:
        question, aside, result = (self._folder / f"{id}{ending}" for ending in (".json", ".json.part", ".result.json"))
        prefix = f"{self._folder}/{id}."
        files = [question, aside, result, *map(Path, self._network_paths(prefix).values())]
        _remove(files)
        try:
            aside.write_text(self._question(id, values, prefix))
            aside.rename(question)
            return self._answer(self._wait(result), self._folder)
        finally:
            _remove(files)

    def _wait(self, result: Path) -> Any:
        deadline = np.inf if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            try:
                return json.loads(result.read_bytes())
            except FileNotFoundError:
                fault = f"no {result.name} came"
            except (ValueError, RecursionError) as error:
                fault = f"{result.name} did not become valid JSON ({error})"
            if time.monotonic() >= deadline:
                raise _Failed(f"{fault} within {self._timeout_s:g} s", "timeout")
            time.sleep(self._poll_s)


def _split(command: str | list[str]) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise MisuseError(f"command: {command!r} cannot be split into words: {error}") from None
    if not words:
        raise MisuseError("command: it is empty; write the program and its arguments")
    return words


def _find(program: str, path: str | None) -> None:
    if shutil.which(program, path=path) is not None:
        return
    if os.sep not in program:
        raise MisuseError(f"command: there is no program '{program}' in {os.environ.get('PATH') if path is None else path}")
    if Path(program).is_file():
        raise MisuseError(f"command: {Path(program).resolve()} is no program; make it one (chmod +x), or name its interpreter before it")
    raise MisuseError(f"command: there is no program {Path(program).resolve()}")


@contextmanager
def _session(
    arguments: list[str], environment: dict[str, str], out: Any, err: Any, temporary: list[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command in a session of its own, which does not outlast the block, nor this process; nor do `temporary` folders the latter."""
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
    try:
        nothing = subprocess.DEVNULL
        guard = ["/bin/sh", "-c", _GUARD, str(process.pid), *temporary]
        with subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True) as guarding:
            try:
                yield process
            finally:
                guarding.communicate(b"over\n")
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _values(part: Any, given: Any, folder: Path) -> np.ndarray:
    if isinstance(part, Categorical):
        return np.array(given, object)
    array = np.load(folder / given, allow_pickle=False) if isinstance(part, Network) and isinstance(given, str) else np.asarray(given)
    if array.dtype.kind not in ("i" if part.dtype is np.int64 else "if"):
        raise ValueError("whole numbers are expected" if part.dtype is np.int64 else "numbers are expected")
    return array


def _last_line(path: Path) -> bytes:
    last = b""
    with path.open("rb") as file:
        for line in file:
            last = line.strip() or last
    return last


def _last_words(*paths: Path) -> str:
    """The last lines of the first of these files that has some."""
    for path in paths:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return f"; its last words: {' / '.join(lines[-3:])[-500:]}"
    return ""


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
