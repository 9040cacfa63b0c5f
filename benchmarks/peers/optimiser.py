"""Asks optimisers of other libraries, each served in an environment of its own: `with Peer("pymoo") as peer: peer.ask(task="nsga2", ...)`.

Standard library only: `optimise_<peer>.py` imports it too, for `serve`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# jax ignores OMP_NUM_THREADS; `optimise_evosax.py` also keeps to one CPU, from which XLA sizes its pool.
ENVIRONMENT = dict.fromkeys(THREADS, "1") | {
    "JAX_PLATFORMS": "cpu",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Peer:
    """A peer's server. `about` holds its version; the environment is made first if it is missing."""

    def __init__(self, name: str, timeout_s: float = 300) -> None:
        self.name = name
        self.timeout_s = timeout_s
        made = subprocess.run([sys.executable, HERE / "environments.py", name], check=True, stdout=subprocess.PIPE, text=True)
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [made.stdout.split()[-1], HERE / f"optimise_{name}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | ENVIRONMENT,
        )
        try:
            self.about = self._answer("its start")
        except BaseException:
            self.close()
            raise

    def ask(self, **task) -> dict:
        """What the peer answers: `cpu_s`, and what else the task yields (see README.md)."""
        line = json.dumps(task)
        with contextlib.suppress(BrokenPipeError):  # It has ended, and reading says why.
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self._answer(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _answer(self, line: str) -> dict:
        late = threading.Event()
        watch = threading.Timer(self.timeout_s, lambda: (late.set(), self._process.kill()))
        watch.start()
        answer = self._process.stdout.readline()
        watch.cancel()
        if late.is_set():
            raise TimeoutError(f"{self.name} took longer than {self.timeout_s} s for {line}")
        if not answer:
            code = self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} ended (exit {code}) at {line}:\n{self._errors.read()[-3000:]}")
        result = json.loads(answer)
        if "error" in result:
            raise RuntimeError(f"{self.name} failed at {line}:\n{result['error']}")
        return result


def serve(about: dict, tasks: dict[str, Callable[..., dict]]) -> None:
    """Answers each line of standard input, `{"task": name} | its arguments`, by a line of JSON; first of all by `about`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a library prints must not stand between the answers.

    def answer(result: dict) -> None:
        answers.write(json.dumps(result) + "\n")
        answers.flush()

    answer(about)
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            answer(tasks[arguments.pop("task")](**arguments))
        except Exception:
            answer({"error": traceback.format_exc()})


def shape(problem: str) -> tuple[int, int]:
    """Variables and objectives of a ZDT or DTLZ problem, as its authors have them."""
    family, number = problem[:-1], int(problem[-1])
    if family == "zdt":
        return (30 if number <= 3 else 10), 2
    return 2 + {1: 5, 7: 20}.get(number, 10), 3


def main() -> None:
    name, task = sys.argv[1:3]
    with Peer(name) as peer:
        sys.stdout.write(json.dumps(peer.ask(**json.loads(task))) + "\n")


if __name__ == "__main__":
    main()
