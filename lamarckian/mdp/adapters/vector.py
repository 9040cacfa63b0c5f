"""Matches of a Gymnasium vector environment, in step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from lamarckian.mdp.adapters.solo import PLAYER, env_seed
from lamarckian.mdp.batched import Observations, Steps
from lamarckian.mdp.interface import Result
from lamarckian.seeding import match_seed

Restart: TypeAlias = Callable[[np.ndarray, Sequence[int]], Any]
"""Restarts the lanes of a mask, bool `[B]`, each from its seed of `[B]`; gives the observations of all lanes."""


class VectorEnvironment(Protocol):
    """What is used of a `gymnasium.vector.VectorEnv`. Its autoreset mode is `NEXT_STEP` or `DISABLED`."""

    def reset(self, *, seed: Any, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]: ...

    def close(self) -> None: ...


class VectorMatches:
    """`lamarckian.mdp.Batched` over a vector environment.

    see: the inputs of a batch of observations. act: the environment's actions of ours. clip: whether rewards are clipped
    to [-1, 1]; the results' scores are sums of what came before clipping.
    restart: what restarts single lanes, or None for an environment that restarts its lanes itself, one step late and from
    its own random stream. There a lane waits after the end: its observation is the last of the ended match once more, and
    its next step takes no action.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        size: int,
        seed: int,
        see: Callable[[Any], Mapping[str, np.ndarray]],
        act: Callable[[Mapping[str, np.ndarray]], Any],
        restart: Restart | None,
        clip: bool = False,
    ) -> None:
        self.size = size
        self._envs = envs
        self._seed = seed
        self._see = see
        self._act = act
        self._restart = restart
        self._clip = clip
        self._game = np.zeros(size, np.int64)
        self._return = np.zeros(size, np.float64)

    def reset(self) -> Mapping[str, Observations]:
        self._game[:] = 0
        self._return[:] = 0
        if self._restart is None:
            observations, _ = self._envs.reset(seed=env_seed(match_seed(self._seed, 0, 0)))
        else:
            observations = self._restart(np.ones(self.size, np.bool_), self._seeds())
        return {PLAYER: Observations(self._see(observations))}

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, Steps]:
        raw, reward, terminated, truncated, _ = self._envs.step(self._act(actions[PLAYER]))
        inputs = self._see(raw)
        self._return += reward
        ended = terminated | truncated
        waiting, final, results = None, None, []
        if ended.any():
            lanes = ended.nonzero()[0]
            results = [(b, Result(float(self._return[b]))) for b in lanes.tolist()]
            self._return[lanes] = 0
            if truncated.any():
                final = Observations({name: array[truncated] for name, array in inputs.items()})
            if self._restart is None:
                waiting = ended
            else:
                self._game[lanes] += 1
                inputs = self._see(self._restart(ended, self._seeds()))
        reward = np.asarray(reward, np.float32)[:, None]
        if self._clip:
            reward = np.clip(reward, -1, 1)
        return {PLAYER: Steps(Observations(inputs), reward, terminated, truncated, final, None, results, waiting)}

    def close(self) -> None:
        self._envs.close()

    def _seeds(self) -> list[int]:
        return [env_seed(match_seed(self._seed, b, k)) for b, k in enumerate(self._game.tolist())]
