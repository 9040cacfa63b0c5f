"""evosax's OpenAI-ES, jitted."""

from __future__ import annotations

import os

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # Before jax starts its threads, as many as it may use CPUs.

import time  # noqa: E402
from importlib.metadata import version  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from evosax.algorithms import Open_ES  # noqa: E402
from optimiser import serve  # noqa: E402


def generations(
    parameters: int, population: int, generations: int, seed: int, warm: int = 3, x64: bool = False, partitionable: bool = False
) -> dict:
    """`ask` and `tell` alone, mirrored, with Adam and centred ranks; the fitness is drawn outside the clock.

    Threefry's stream that is not partitionable costs half of jax's default and serves one device as well.
    """
    draws = np.random.default_rng(seed)
    with jax.enable_x64(x64), jax.threefry_partitionable(partitionable):
        key = jax.random.key(seed)
        strategy = Open_ES(population, jnp.zeros(parameters), optimizer=optax.adam(1e-2), std_schedule=optax.constant_schedule(0.02))
        settings = strategy.default_params
        state = strategy.init(key, jnp.zeros(parameters), settings)
        cpu_s = 0.0
        for generation in range(warm + generations):
            fitness = jnp.asarray(draws.standard_normal(population), dtype=state.mean.dtype).block_until_ready()
            started = time.process_time()
            key, asking, telling = jax.random.split(key, 3)
            points, state = strategy.ask(asking, state, settings)
            state, _ = strategy.tell(telling, points, fitness, state, settings)
            jax.block_until_ready(state)
            if generation >= warm:
                cpu_s += time.process_time() - started
        return {"cpu_s": cpu_s, "dtype": str(points.dtype)}


if __name__ == "__main__":
    serve({"version": version("evosax"), "jax": jax.__version__}, {"generations": generations})
