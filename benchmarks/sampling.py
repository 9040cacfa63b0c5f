"""Sampling Pendulum through controllers, everything recorded, against the bare environment, on one core in turn."""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import time
from collections import Counter

import gymnasium
import numpy as np
from figures import figure

from lamarckian import plugins
from lamarckian.actor.actor import Actor
from lamarckian.actor.process import build_actor, build_mdp, fragment_layout
from lamarckian.data.pool import LocalPool
from lamarckian.evaluate.plan import build_policy, describe, export
from lamarckian.nets.parameters import flatten
from lamarckian.recipe import load
from lamarckian.transport.versions import VersionBoard

MATCHES, STEPS = 64, 64


def sampled(actor: Actor, pool: LocalPool, samples: int, seconds: float) -> tuple[float, Counter[str]]:
    """An actor plays into a pool of its own, with so many samples a fragment: steps/s, and the seconds that it spent on what."""
    steps, start = 0, time.perf_counter()
    spending: Counter[str] = Counter()
    while (spent := time.perf_counter() - start) < seconds:
        while (filled := pool.get(0.0)) is None:
            actor.turn()
        spending.update(filled.meta.statistics)
        pool.release(filled.slot)
        steps += samples
    return steps / spent, spending


class Bare:
    """64 environments stepped one after another with actions drawn beforehand."""

    def __init__(self) -> None:
        self.envs = [gymnasium.make("Pendulum-v1", disable_env_checker=True) for _ in range(MATCHES)]
        for seed, env in enumerate(self.envs):
            env.reset(seed=seed)
        self.actions = np.random.default_rng(0).uniform(-2, 2, (MATCHES, 1)).astype(np.float32)

    def rate(self, seconds: float) -> float:
        steps, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            for env, action in zip(self.envs, self.actions, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += MATCHES
        return steps / spent


class Ours:
    """One actor as in training: controllers, one inference call a round, fragments handed on."""

    def __init__(self) -> None:
        recipe = load(
            "pendulum/ppo", ["network.hidden=[256,128]", f"actor.matches={MATCHES}", f"actor.fragment={STEPS}", "learner.batch=4096"]
        )
        description = describe(recipe, plugins.build("game", recipe.game), None, MATCHES, 0)  # type: ignore[arg-type]
        mdp = build_mdp(description)
        policy = build_policy(recipe, mdp.roles["player"])
        description.model = export(policy)
        self.pool = LocalPool(fragment_layout(description, mdp), 2)
        board = VersionBoard.create(description.model.size)
        board.publish(0, flatten(policy))
        self.actor: Actor = build_actor(description, mdp, self.pool, board)
        self.actor.start()
        self.spending: Counter[str] = Counter()

    def rate(self, seconds: float) -> float:
        rate, spending = sampled(self.actor, self.pool, MATCHES * STEPS, seconds)
        self.spending.update(spending)
        return rate

    def shares(self) -> dict[str, float]:
        return {name.removesuffix("_s"): spent / self.spending.total() for name, spent in self.spending.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    bare, ours = Bare(), Ours()
    bare.rate(0.5), ours.rate(0.5)
    ours.spending.clear()
    rates = [(bare.rate(arguments.seconds), ours.rate(arguments.seconds)) for _ in range(arguments.runs)]
    bares, recorded = [list(column) for column in zip(*rates, strict=True)]
    figure("pendulum.sampling", recorded, "steps/s", "bare environment, same core", bares)
    for name, share in ours.shares().items():
        figure(f"pendulum.sampling.{name}", [share], "share of the actor's time", digits=3)


if __name__ == "__main__":
    main()
