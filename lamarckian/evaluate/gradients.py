"""Actors that compute gradients: each is an actor and half a learner, so that this stands above both.

What walks is what walks between other actors and their learner: versions one way, slots of a pool the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import torch

from lamarckian import plugins
from lamarckian.actor.actor import Actor
from lamarckian.actor.policy import Versions
from lamarckian.actor.process import Description, Wiring, build_actor, build_mdp, fragment_layout, learners
from lamarckian.data.fragment import gradient_layout
from lamarckian.data.pool import Claim, LocalPool, Meta, PoolClient, Sink
from lamarckian.mdp import MDP
from lamarckian.rl.algorithm import GradientAlgorithm
from lamarckian.transport.versions import VersionBoard


class Learning(msgspec.Struct):
    """What such an actor needs to know besides its `Description`: sections of the recipe. Plain data, that travels to any machine."""

    network: dict[str, Any]
    algorithm: dict[str, Any]
    dtype: str


class HeldVersion:
    """The version that an actor plays and learns with, from one fragment to the next; its policy takes it from here."""

    def __init__(self, versions: Versions, size: int) -> None:
        self.version = -1
        self.publication = np.empty(size, np.float32)
        self._versions = versions

    def renew(self) -> bool:
        """Takes the newest version; whether it is another than before."""
        version = self._versions.take(self.publication, self.version)
        if version is not None:
            self.version = version
        return version is not None

    def take(self, into: np.ndarray, held: int) -> int | None:
        """As `Versions.take`: the parameters, without what follows them in a publication."""
        if self.version == held:
            return None
        into[:] = self.publication[: len(into)]
        return self.version


class GradientActor:
    """Plays a fragment, computes its gradient by the version that played it, hands that on. To its fleet it is like an `Actor`.

    Only the first step of a fragment was decided by the version before: the decision that ends a fragment begins the next.
    fragments: where its actor puts them. sink: where gradients go.
    """

    def __init__(self, algorithm: GradientAlgorithm, actor: Actor, fragments: LocalPool, held: HeldVersion, sink: Sink) -> None:
        self._algorithm = algorithm
        self._actor = actor
        self._fragments = fragments
        self._held = held
        self._sink = sink

    def start(self) -> None:
        self._actor.start()

    def turn(self) -> None:
        """One gradient. Raises NumericsError where it is not finite."""
        began = time.perf_counter()
        claim = self._claim()  # before new steps, not behind them: so the newest version acts in them
        waited_s = time.perf_counter() - began
        if self._held.renew():
            self._algorithm.adopt(self._held.publication)
        while (filled := self._fragments.get(0.0)) is None:
            self._actor.turn()

        began = time.perf_counter()
        version, meta = self._held.version, filled.meta
        metrics = self._algorithm.gradient({name: torch.from_numpy(array) for name, array in filled.views.items()}, version)
        samples = int(metrics["samples"])
        claim.views["gradient"][0] = self._algorithm.parameters.gradient.numpy()
        claim.views["reward"][0] = filled.views["reward"]
        claim.views["version"][0], claim.views["samples"][0] = version, samples
        self._fragments.release(filled.slot)
        seconds = {**meta.statistics, "waiting_s": waited_s, "learning_s": time.perf_counter() - began}
        self._sink.submit(claim.slot, Meta(version, version, samples, meta.results, seconds, metrics))

    def close(self) -> None:
        self._actor.close()

    def save(self) -> dict[str, Any]:
        """Everything that goes on from here exactly; the version it held is of no use any more."""
        return self._actor.save()

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state` instead of starting."""
        self._actor.load(state)

    def _claim(self) -> Claim:
        while (claim := self._sink.claim(timeout_s=1.0)) is None:
            pass
        return claim


def build_algorithm(description: Description, mdp: MDP, learning: Learning) -> GradientAlgorithm:
    """An actor's own algorithm, on the CPU, and of no version yet."""
    role = mdp.roles[learners(description)[0]]
    policy = plugins.build("network", plugins.Section(**learning.network), role)
    section = plugins.Section(**learning.algorithm)
    return plugins.build("algorithm", section, policy, role, device="cpu", dtype=learning.dtype, seed=0)  # type: ignore[no-any-return]


def build_gradient_actor(
    description: Description,
    mdp: MDP,
    algorithm: GradientAlgorithm,
    sink: Sink,
    versions: Versions,
    index: int = 0,
    life: tuple[int, ...] = (),
    taped: bool = False,
) -> GradientActor:
    """As `build_actor`, with an algorithm of its own."""
    held = HeldVersion(versions, len(algorithm.publication()))
    fragments = LocalPool(fragment_layout(description, mdp), 2)  # the one to learn from, and one that late columns begin
    actor = build_actor(description, mdp, fragments, held, index, life, taped)
    return GradientActor(algorithm, actor, fragments, held, sink)


def main(config: dict[str, Any]) -> None:
    """Runs such an actor until the process is ended."""
    torch.set_num_threads(1)
    description = msgspec.convert(config["description"], Description)
    wiring = msgspec.convert(config["wiring"], Wiring)
    mdp = build_mdp(description)
    algorithm = build_algorithm(description, mdp, msgspec.convert(config["learning"], Learning))
    board = VersionBoard.attach(wiring.board_fd, len(algorithm.publication()))
    shape = gradient_layout(fragment_layout(description, mdp), description.model.size)
    client = PoolClient(wiring.pool_fd, shape, wiring.address, wiring.name)
    actor = build_gradient_actor(description, mdp, algorithm, client, board, config["index"], (*config["life"], config["attempt"]))
    actor.start()
    while True:
        actor.turn()
