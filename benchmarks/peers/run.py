"""Measures one peer: `python run.py PEER TASK ALGORITHM [SECONDS]` or `measure(peer, task, algorithm)`. Standard library only."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("rllib", "stable_baselines3", "sample_factory")
# How many threads torch uses, each script sets itself. A thread that waits sleeps: where another process runs beside,
# spinning makes two threads many times slower than one.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}


def environment_of(peer: str) -> str:
    """The Python of the peer's own environment, which is made if it is missing."""
    made = subprocess.run([sys.executable, HERE / "environments.py", peer], check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout.split()[-1]


def measure(
    peer: str,
    task: str,
    algorithm: str,
    seconds: float = 30,
    cores: int = 2,
    timeout: float | None = None,
    more: Sequence[str] = (),
    start: Callable[..., subprocess.Popen] = subprocess.Popen,
) -> dict:
    """What `train_<peer>.py` prints, measured in the peer's own environment, which is made if it is missing.

    more: other values of the peer's own settings, KEY=JSON. start: starts the process, as `subprocess.Popen` does.
    """
    command = [environment_of(peer), str(HERE / f"train_{peer}.py"), "--task", task, "--algorithm", algorithm]
    command += ["--seconds", str(seconds), "--cores", str(cores), *(["--set", *more] if more else [])]
    # In a session of its own, so that what the peer leaves behind ends with it.
    process = start(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | ENVIRONMENT,
    )
    try:
        output, errors = process.communicate(timeout=timeout or 4 * seconds + 120)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{peer} did not finish {algorithm} on {task}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = [line for line in output.splitlines() if line.startswith('{"steps"')]
    if process.returncode or not lines:
        raise RuntimeError(f"{peer} failed with {algorithm} on {task} (exit {process.returncode}):\n{errors[-3000:]}{output[-1000:]}")
    return {"peer": peer, "task": task, "algorithm": algorithm} | json.loads(lines[-1]) | {"environment": ENVIRONMENT}


def main() -> None:
    peer, task, algorithm = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 30
    sys.stdout.write(json.dumps(measure(peer, task, algorithm, seconds)) + "\n")


if __name__ == "__main__":
    main()
