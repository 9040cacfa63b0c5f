"""EvoX's OpenAI-ES on torch."""

from __future__ import annotations

import time
from importlib.metadata import version

import torch
import torch._inductor.config
from evox.algorithms import OpenES
from optimiser import serve


class Given(OpenES):
    """Whose fitness is given: `evaluate` has the whole population made, as for an evaluation outside torch, and reads none of it."""

    fitness: torch.Tensor

    @torch.compiler.disable
    def evaluate(self, population: torch.Tensor) -> torch.Tensor:
        return self.fitness


def generations(parameters: int, population: int, generations: int, seed: int, warm: int = 3, compiled: bool = True) -> dict:
    """`step` alone, mirrored, with Adam, float32. EvoX does not shape the fitness: it weighs the noise by it as it comes."""
    torch.manual_seed(seed)
    algorithm = Given(population, torch.zeros(parameters), learning_rate=1e-2, noise_stdev=0.02, optimizer="adam")
    step = torch.compile(algorithm.step) if compiled else algorithm.step
    draws = torch.Generator().manual_seed(seed)
    cpu_s = 0.0
    with torch.inference_mode():
        for generation in range(warm + generations):
            algorithm.fitness = torch.randn(population, generator=draws)
            started = time.process_time()
            step()
            if generation >= warm:
                cpu_s += time.process_time() - started
    return {"cpu_s": cpu_s, "dtype": str(algorithm.center.dtype)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch._inductor.config.fallback_random = True  # Inductor's own generator takes four times as long as torch's on a CPU.
    serve({"version": version("evox"), "torch": torch.__version__}, {"generations": generations})
