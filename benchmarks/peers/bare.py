"""Bare Gymnasium: how many Pendulum-v1 steps a second one core makes with random actions and nothing else."""

import argparse
import json
import sys
import time

import gymnasium as gym
import numpy as np


def measure(seconds: float = 5, envs: int = 64, seed: int = 0) -> dict:
    """Steps `envs` environments round-robin for `seconds`; their actions are drawn beforehand."""
    rng = np.random.default_rng(seed)
    actions = list(rng.uniform(-2, 2, (256, envs, 1)).astype(np.float32))
    running = [gym.make("Pendulum-v1") for _ in range(envs)]
    for i, env in enumerate(running):
        env.reset(seed=seed + i)
    steps = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for env, action in zip(running, actions[steps // envs % len(actions)], strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        steps += envs
    return {
        "steps": steps,
        "seconds": round(elapsed, 3),
        "steps_per_second": round(steps / elapsed, 1),
        "settings": {"env": "Pendulum-v1", "envs": envs, "gymnasium": gym.__version__},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--envs", type=int, default=64)
    args = parser.parse_args()
    sys.stdout.write(json.dumps(measure(args.seconds, args.envs)) + "\n")


if __name__ == "__main__":
    main()
