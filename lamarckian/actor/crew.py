"""The actors of one machine: as many processes as were asked for, each replaced when it dies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamarckian.actor.process import Wiring
from lamarckian.cluster.interface import Cluster, Exit, Process

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Crew:
    """`count` actors, which run `target` on `config`, as `lamarckian.actor.process.main` does; they belong to `cluster`.

    config: what all of them are told. pool, board: the descriptors that they inherit, and the address of the pool.
    first: the index of the first of them; no two actors of a run have the same.
    processes: those that are there, by name.
    """

    def __init__(
        self, cluster: Cluster, target: str, config: Mapping[str, Any], pool: tuple[str, int], board: int, count: int, first: int = 0
    ) -> None:
        self.processes: dict[str, Process] = {}
        self._cluster = cluster
        self._target = target
        self._config = msgspec.to_builtins(config, builtin_types=(bytes,))
        self._fds = (pool[1], board)
        self._indices = range(first, first + count)
        self._address = pool[0]

    def start(self, life: Sequence[int]) -> None:
        """Starts all of them. life: what tells them from those of the same index before."""
        for index in self._indices:
            wiring = Wiring(f"actor-{index}", self._address, *self._fds)
            config = {**self._config, "wiring": msgspec.to_builtins(wiring), "index": index, "life": list(life)}
            self.processes[wiring.name] = self._cluster.start(wiring.name, self._target, config, fds=self._fds, environment=ONE_THREAD)

    def replace(self, end: Exit) -> None:
        """Starts one anew whose end the cluster told. Raises what ended it, where it is nothing that another would not meet, too."""
        del self.processes[end.name]
        end.check()
        self.processes[end.name] = self._cluster.restart(end.name)

    def stop(self) -> None:
        """Ends all of them."""
        for name in self.processes:
            self._cluster.stop(name)
        self.processes.clear()
