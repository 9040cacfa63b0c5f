"""What a version of a million parameters costs on one machine: the learner to publish it, beside a plain copy of as many; and an actor to
adopt it, beside a step of its matches.

Two actors play vector Pong meanwhile, 128 matches each, and ask for a newer version before each decision, as they do in training. The
learner publishes as `Learner` does, right behind a step of its optimiser, every 100 ms.

    python benchmarks/versions.py [--runs 3] [--seconds 10]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import torch
from figures import figure
from processes import interruptible

from lamarckian import plugins
from lamarckian.actor.crew import ONE_THREAD
from lamarckian.actor.inference import Model
from lamarckian.actor.policy import ActingPolicy
from lamarckian.cluster.local import LocalCluster
from lamarckian.evaluate.plan import build_policy, export
from lamarckian.games.pong import Pong
from lamarckian.nets import FlatParameters
from lamarckian.recipe import load
from lamarckian.transport.channel import Inbox, Outbox, local_address
from lamarckian.transport.versions import VersionBoard

NETWORK = ("network.hidden=[1000,1000]", "learner.batch=8192")  # 1,015,004 parameters
MATCHES = 128
ACTORS = 2
EVERY_S = 0.1
WARM_S = 3.0


class Played(msgspec.Struct, frozen=True, tag=True):
    """Actor to learner: milliseconds of each adoption, of steps without one, and of those with one, in the last second."""

    adoptions: list[float]
    steps: list[float]
    adopting: list[float]


def play(config: dict) -> None:
    """An actor's matches, step by step."""
    model = msgspec.convert(config["model"], Model)
    board = VersionBoard.attach(config["fd"], model.size)
    outbox = Outbox((), config["address"], config["name"])
    role = Pong().roles["left"]
    policy = ActingPolicy(model, role, np.random.default_rng(0), versions=board)
    matches, tracker, seats = Pong().start_many(MATCHES, seed=0), Pong.bots["tracker"](), np.arange(MATCHES)
    now = matches.reset()
    tracker.start(seats, [0] * MATCHES)
    while True:
        played, until = Played([], [], []), time.perf_counter() + 1.0
        while time.perf_counter() < until:
            started, version = time.perf_counter(), policy.version
            policy.adopt()
            adopted = time.perf_counter()
            decision = policy.decide(now["left"].inputs, now["left"].legal, seats, MATCHES)
            steps = matches.step({"left": decision.played, "right": tracker.act(now["right"])})
            now = {name: step.observations for name, step in steps.items()}
            if (ended := steps["left"].terminated.nonzero()[0]).size:
                tracker.start(ended, [0] * len(ended))
            stepped = time.perf_counter()
            if policy.version > version:
                played.adoptions.append((adopted - started) * 1e3)
            (played.adopting if policy.version > version else played.steps).append((stepped - started) * 1e3)
        outbox.send(played)


def run(seconds: float) -> dict[str, float]:
    """Milliseconds, medians of a run."""
    recipe = load("pong/ppo", NETWORK)
    policy = build_policy(recipe, plugins.build("game", recipe.game).roles["left"])
    model, parameters = export(policy), FlatParameters(policy)
    board, inbox = VersionBoard.create(model.size), Inbox((Played,), local_address())
    with LocalCluster() as cluster:
        plain = msgspec.to_builtins({"model": model, "fd": board.fd, "address": inbox.address}, builtin_types=(bytes,))
        for index in range(ACTORS):
            name = f"actor-{index}"
            cluster.start(name, f"{Path(__file__).stem}:play", {**plain, "name": name}, [board.fd], ONE_THREAD)
        into = np.zeros(model.size, np.float32)
        published, copied, told = [], [], []
        version, warm_s, end_s = 0, float("inf"), float("inf")
        while (now := time.monotonic()) < end_s:
            version += 1
            with torch.no_grad():
                parameters.parameter.mul_(1 - 1e-6)
            spent = _milliseconds(lambda version=version: board.publish(version, parameters.array()))
            copy = _milliseconds(lambda: np.copyto(into, parameters.array()))
            while (received := inbox.receive(0.0)) is not None:
                if end_s == float("inf"):
                    warm_s, end_s = now + WARM_S, now + WARM_S + seconds
                if now > warm_s:
                    told.append(received[1])
            if now > warm_s:
                published.append(spent)
                copied.append(copy)
            time.sleep(EVERY_S)
    inbox.close()
    board.close()
    acted = {name: [value for played in told for value in getattr(played, name)] for name in Played.__struct_fields__}
    return {"published": median(published), "copied": median(copied), "longest": max(published)} | {
        name: median(values) for name, values in acted.items()
    }


def _milliseconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    interruptible()
    torch.set_num_threads(1)
    runs = [run(arguments.seconds) for _ in range(arguments.runs)]
    of = {name: [one[name] for one in runs] for name in runs[0]}
    figure("versions.publish", of["published"], "ms", "numpy copy", of["copied"], digits=3)
    figure("versions.publish.longest", of["longest"], "ms", digits=3)
    figure("versions.adopt", of["adoptions"], "ms", "a step of 128 matches", of["steps"], digits=3)
    figure("versions.step_with_adoption", of["adopting"], "ms", "a step of 128 matches", of["steps"], digits=3)


if __name__ == "__main__":
    main()
