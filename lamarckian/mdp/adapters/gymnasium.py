"""Gymnasium's environments as games of one role."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from pydantic import Field, WithJsonSchema

from lamarckian.errors import GameError
from lamarckian.mdp.adapters.pool import Pool
from lamarckian.mdp.adapters.solo import PLAYER, Legal, SoloMatch
from lamarckian.mdp.adapters.spaces import doing, seeing, some_legal
from lamarckian.mdp.adapters.vector import VectorMatches
from lamarckian.mdp.spaces import Discrete, Role


class Gymnasium:
    """Any Gymnasium environment, registered or your own; the role is `player`, the reward `score`.

    `lamarckian.mdp.adapters.spaces` says what becomes of its spaces. A result's score is the sum of the match's rewards.

    By the batched way it plays what has a vector implementation of its own with the same spaces (`batchable`), such as
    CartPole. `exact` says whether that plays the very matches that `start` plays: for this the implementation must restart
    single lanes from seeds of their own (`reset` with seeds and the option `reset_mask`). Gymnasium's own do not: their
    lanes share one random stream, and every match but a lane's first begins one step late.

    Raises GameError for an unknown id, a missing dependency, or a space that has no counterpart.
    """

    def __init__(
        self,
        id: Annotated[
            str | Callable[..., gymnasium.Env],
            WithJsonSchema({"type": "string"}),
            Field(description="a registered id, or module:callable that makes the environment"),
        ],
        kwargs: Annotated[dict[str, Any] | None, Field(description="arguments of the environment's constructor")] = None,
        max_episode_steps: Annotated[int | None, Field(ge=1, description="steps after which a match is truncated")] = None,
        action_mask: Annotated[bool, Field(description="whether the environment's info gives the legal actions as `action_mask`")] = False,
    ) -> None:
        self._settings: dict[str, Any] = {"id": id, "kwargs": kwargs, "max_episode_steps": max_episode_steps, "action_mask": action_mask}
        self._name = id if isinstance(id, str) else getattr(id, "__qualname__", repr(id))
        self._make = partial(_make, id, kwargs or {}, max_episode_steps)
        self._pool: Pool[gymnasium.Env] = Pool(self._make)
        env = self._pool.take()
        self._seeing = seeing(env.observation_space, self._name)
        self._doing = doing(env.action_space, self._name)
        heads = self._doing.heads
        self._legal: Legal | None = None
        if action_mask:
            head = self._doing.heads.get("action")
            if not isinstance(head, Discrete) or "action_mask" not in env.reset(seed=0)[1]:
                raise GameError(
                    f"{self._name}: action_mask needs one Discrete action, and an entry 'action_mask' in the environment's info"
                )
            heads = {"action": replace(head, masked=True)}
            self._legal = _legal
        self.roles: Mapping[str, Role] = {PLAYER: Role(self._seeing.inputs, heads)}
        self._pool.give(env)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Gymnasium, **self._settings), ()

    def start(self, seed: int) -> SoloMatch:
        """Starts a match; its environment is used again once it is closed."""
        return self._match(self._pool.take(), seed, self._pool.give)

    def start_rendered(self, seed: int) -> SoloMatch:
        """Starts a match that can be looked at by its `render()`, in an environment of its own."""
        env = self._make(render_mode="rgb_array")
        if env.render_mode != "rgb_array":
            raise GameError(f"{self._name} cannot be drawn: it has no render mode 'rgb_array'")
        return self._match(env, seed, lambda env: env.close())

    def _match(self, env: gymnasium.Env, seed: int, release: Callable[[gymnasium.Env], None]) -> SoloMatch:
        return SoloMatch(env, self.roles[PLAYER], self._seeing.observe, self._doing.act, self._legal, seed, release)

    @property
    def batchable(self) -> bool:
        """Whether `start_many` plays this game."""
        return self._lanes is not None

    @property
    def exact(self) -> bool:
        """Whether `start_many` plays the same matches as `start`."""
        return self._lanes == "exact"

    def start_many(self, size: int, seed: int) -> VectorMatches:
        """`size` matches in step; where `exact`, match b's k-th game starts from `match_seed(seed, b, k)`."""
        if not self.batchable:
            raise GameError(f"{self._name} has no vector implementation with the same spaces; play it by coroutines")
        envs = self._make_many(size)
        restart = partial(_restart, envs) if self.exact else None
        return VectorMatches(envs, size, seed, self._seeing.observe_batch, self._doing.act_batch, restart)

    @cached_property
    def _lanes(self) -> str | None:
        """How lanes start anew: 'exact', each from its seed; 'late', by themselves; None where the batched way does not fit."""
        spec = gymnasium.registry.get(self._name)
        if spec is None or spec.vector_entry_point is None or self._settings["action_mask"]:
            return None
        try:
            envs = self._make_many(2)
        except (ImportError, gymnasium.error.Error, TypeError, ValueError):
            return None
        env = self._pool.take()
        with closing(envs):
            same = envs.single_observation_space == env.observation_space and envs.single_action_space == env.action_space
            mode = envs.metadata.get("autoreset_mode")
            exact = same and mode != AutoresetMode.SAME_STEP and self._restarts(env, envs)
        self._pool.give(env)
        return "exact" if exact else "late" if same and mode == AutoresetMode.NEXT_STEP else None

    def _make_many(self, size: int) -> VectorEnv:
        settings = dict(self._settings["kwargs"] or {})
        if self._settings["max_episode_steps"]:
            settings["max_episode_steps"] = self._settings["max_episode_steps"]
        make = partial(gymnasium.make_vec, self._name, size, "vector_entry_point", **settings)
        with suppress(TypeError, ValueError):
            return make(autoreset_mode=AutoresetMode.DISABLED)
        return make()

    def _restarts(self, env: gymnasium.Env, envs: VectorEnv) -> bool:
        """Tries whether one of two lanes restarts alone, and as a single environment does from that seed."""
        see = self._seeing.observe_batch
        try:
            first = see(_restart(envs, np.ones(2, np.bool_), [1, 2]))
            second = see(envs.step(envs.action_space.sample())[0])
            third = see(_restart(envs, np.array([True, False]), [1, 2]))
        except (gymnasium.error.Error, TypeError, ValueError):
            return False
        alone = self._seeing.observe(env.reset(seed=1)[0])
        return all(
            np.array_equal(third[name], [alone[name], second[name][1]]) and np.array_equal(first[name][0], alone[name]) for name in alone
        )


def _restart(envs: VectorEnv, lanes: np.ndarray, seeds: Sequence[int]) -> Any:
    return envs.reset(seed=list(seeds), options={"reset_mask": lanes})[0]  # type: ignore[arg-type]


def _legal(info: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {"action": some_legal(info["action_mask"])}


def _make(id: Any, kwargs: dict[str, Any], max_episode_steps: int | None, **more: Any) -> gymnasium.Env:
    try:
        factory = id if callable(id) else _factory(id)
        if factory is None:
            spec = replace(gymnasium.spec(id), order_enforce=False)  # a controller keeps the order by itself
            return gymnasium.make(spec, max_episode_steps, disable_env_checker=True, **kwargs, **more)
        env = factory(**kwargs, **more)
        return env if max_episode_steps is None else gymnasium.wrappers.TimeLimit(env, max_episode_steps)
    except gymnasium.error.UnregisteredEnv as error:
        raise GameError(f"there is no Gymnasium environment '{id}'{_advice(id)}") from error
    except (ImportError, gymnasium.error.Error) as error:
        raise GameError(f"Gymnasium environment '{id}' cannot be made: {error}") from error
    except TypeError as error:
        raise GameError(f"Gymnasium environment '{id}' cannot be made with the arguments {kwargs | more}: {error}") from error


def _factory(id: str) -> Callable[..., gymnasium.Env] | None:
    """What `module:callable` names; None for an id of Gymnasium's registry."""
    if ":" not in id:
        if id not in gymnasium.registry:
            with suppress(ImportError):
                importlib.import_module("ale_py")  # registers its ids
        return None
    module, _, name = id.partition(":")
    return getattr(importlib.import_module(module), name, None)


def _advice(id: str) -> str:
    if id.startswith("ALE/") and not any(known.startswith("ALE/") for known in gymnasium.registry):
        return "; Atari games need ale-py: pip install 'lamarckian[atari]'"
    near = difflib.get_close_matches(id, gymnasium.registry, 1, 0.5)
    return f"; nearest known id: {near[0]}" if near else "; environments of other packages are named module:callable"
