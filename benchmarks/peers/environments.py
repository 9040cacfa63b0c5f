"""Makes the peers' virtual environments under `peers/` at the repository's root: `python environments.py [peer ...]`.

Each is pinned whole by `requirements-<peer>.txt` and installed without resolving: Sample Factory asks for packages that it does
not need here (wandb, pyglet, a windowed OpenCV), and nothing may bring another torch in. A second call does nothing.
The repository is on their path, for our vector Pong; of what it imports, NumPy, numba and pydantic are pinned with those that play it.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent / "peers"
TRAINING = ("rllib", "stable_baselines3", "sample_factory")
OPTIMISING = ("pymoo", "pygmo", "cma", "evox", "evosax")
PEERS = TRAINING + OPTIMISING


def make(peer: str) -> Path:
    """The Python of `peer`'s environment, made first if it is missing or its requirements have changed."""
    folder = ROOT / peer
    python = folder / "bin" / "python"
    requirements = HERE / f"requirements-{peer}.txt"
    constraints = HERE / "constraints.txt"
    digest = hashlib.sha256(requirements.read_bytes() + constraints.read_bytes()).hexdigest()
    done = folder / "installed"
    if done.exists() and done.read_text() == digest:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    subprocess.run([*pip, "-c", constraints, "-r", requirements], check=True, stdout=sys.stderr)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    Path(packages, "lamarckian.pth").write_text(f"{HERE.parent.parent}\n")
    done.write_text(digest)
    return python


def main() -> None:
    for peer in sys.argv[1:] or PEERS:
        sys.stdout.write(f"{make(peer)}\n")


if __name__ == "__main__":
    main()
