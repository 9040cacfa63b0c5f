"""Atari 2600 games on the Arcade Learning Environment (ALE), with the standard preprocessing.

Machado et al., Revisiting the Arcade Learning Environment, JAIR 61 (2018), https://arxiv.org/abs/1709.06009, for the protocol.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import ale_py
import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from pydantic import Field

from lamarckian.errors import GameError
from lamarckian.mdp.adapters.area import Shrink
from lamarckian.mdp.adapters.pool import Pool
from lamarckian.mdp.adapters.solo import PLAYER, SoloMatch
from lamarckian.mdp.adapters.vector import VectorMatches
from lamarckian.mdp.interface import Action, Controller, Match, Observation, Result, Step
from lamarckian.mdp.spaces import Discrete, Image, Role
from lamarckian.mdp.wrappers import WrappedMatch


class Atari:
    """An Atari game; the role is `player`, its input `screen` `[stack, size, size]`, the newest frame last.

    A step repeats the action for `frame_skip` frames; its frame is the brighter of the last two at each pixel, in grey,
    shrunk by area. A match begins after fewer than `noop_max` frames without an action and is truncated after `max_frames`.
    Rewards are the game's unless `reward_clip` is set, and a result's score is the game's own score in any case.

    By the batched way ALE's vector environment plays the same matches, bit for bit, as long as `exact` is set: each match
    then loads the game anew from its own seed, which takes as long as about 300 steps. Otherwise lanes go on with their
    own random streams.

    Raises GameError for a game that ALE does not have.
    """

    batchable = True

    def __init__(
        self,
        game: Annotated[str, Field(description="the game's name in ALE, such as pong or ms_pacman")],
        frame_skip: Annotated[int, Field(ge=1, description="frames that an action lasts")] = 4,
        stack: Annotated[int, Field(ge=1, description="frames of an observation")] = 4,
        size: Annotated[int, Field(ge=32, le=160, description="height and width of an observation, in pixels")] = 84,
        noop_max: Annotated[int, Field(ge=0, description="a match begins after fewer than so many frames without an action")] = 30,
        fire_reset: Annotated[bool, Field(description="whether a match begins with FIRE, in games that have it")] = False,
        episodic_life: Annotated[bool, Field(description="whether a match ends with the first life that is lost")] = False,
        reward_clip: Annotated[bool, Field(description="whether rewards are clipped to [-1, 1]")] = False,
        repeat_action_probability: Annotated[float, Field(ge=0, lt=1, description="sticky actions, per frame")] = 0.0,
        full_action_space: Annotated[bool, Field(description="all 18 actions, not only those that the game uses")] = False,
        max_frames: Annotated[int, Field(ge=1, description="frames after which a match is truncated")] = 108_000,
        exact: Annotated[bool, Field(description="whether the batched way plays the same matches as coroutines do")] = True,
        threads: Annotated[int, Field(ge=1, description="threads of the batched way")] = 1,
    ) -> None:
        self._settings = dict(locals())
        del self._settings["self"]
        if game not in roms.get_all_rom_ids():
            near = difflib.get_close_matches(game, roms.get_all_rom_ids(), 1, 0.3)
            raise GameError(f"ALE has no game '{game}'" + (f"; nearest: {near[0]}" if near else ""))
        self.exact = exact
        self._pool: Pool[Console] = Pool(
            partial(
                Console,
                game,
                frame_skip,
                stack,
                size,
                noop_max,
                fire_reset,
                episodic_life,
                repeat_action_probability,
                full_action_space,
                max_frames,
            )
        )
        console = self._pool.take()
        self._pool.give(console)
        self.roles: Mapping[str, Role] = {PLAYER: Role({"screen": Image(stack, size, size)}, {"action": Discrete(len(console.actions))})}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Atari, **self._settings), ()

    def start(self, seed: int) -> Match:
        """Starts a match, which can be looked at by its `render()`."""
        match = SoloMatch(self._pool.take(), self.roles[PLAYER], _see, _act, None, seed, self._pool.give)
        return WrappedMatch(match, Clipped) if self._settings["reward_clip"] else match

    def start_many(self, size: int, seed: int) -> VectorMatches:
        """`size` matches in step; where `exact`, match b's k-th game starts from `match_seed(seed, b, k)`."""
        s = self._settings
        envs = AtariVectorEnv(
            s["game"],
            size,
            num_threads=s["threads"],
            max_num_frames_per_episode=s["max_frames"],
            repeat_action_probability=s["repeat_action_probability"],
            full_action_space=s["full_action_space"],
            img_height=s["size"],
            img_width=s["size"],
            stack_num=s["stack"],
            frameskip=s["frame_skip"],
            noop_max=s["noop_max"],
            episodic_life=s["episodic_life"],
            reward_clipping=False,
            use_fire_reset=s["fire_reset"],
        )
        return VectorMatches(envs, size, seed, _see, _act_batch, partial(_restart, envs, self.exact), s["reward_clip"])


def _see(screens: np.ndarray) -> dict[str, np.ndarray]:
    return {"screen": screens}


def _act(action: Action) -> Any:
    return action["action"]


def _act_batch(actions: Mapping[str, np.ndarray]) -> np.ndarray:
    return actions["action"].astype(np.int32, copy=False)


def _restart(envs: AtariVectorEnv, exact: bool, lanes: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Restarts single lanes at once, so that ALE's own way of doing it, one step late, never shows."""
    chosen = np.array(seeds)[lanes] if exact or lanes.all() else np.full(lanes.sum(), -1)
    return envs.reset(seed=chosen, options={"reset_mask": lanes})[0]


class Console:
    """One emulator with the preprocessing, as a Gymnasium environment; step by step what ALE's vector environment does."""

    def __init__(
        self,
        game: str,
        frame_skip: int,
        stack: int,
        size: int,
        noop_max: int,
        fire_reset: bool,
        episodic_life: bool,
        repeat_action_probability: float,
        full_action_space: bool,
        max_frames: int,
    ) -> None:
        self._rom = str(roms.get_rom_path(game))
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # before there is one, or it greets
        self._ale = ale = ale_py.ALEInterface()
        ale.setFloat("repeat_action_probability", repeat_action_probability)
        self._load(0)
        self.actions = ale.getLegalActionSet() if full_action_space else ale.getMinimalActionSet()
        self._fire = fire_reset and ale_py.Action.FIRE in self.actions
        self._frame_skip = frame_skip
        self._noop_max = max(noop_max, 1)
        self._episodic_life = episodic_life
        self._max_frames = max_frames
        self._fresh = None if repeat_action_probability else (ale.cloneState(), ale.getScreenGrayscale())
        height, width = ale.getScreenDims()
        self._screens = np.zeros((2, height, width), np.uint8)
        self._shrink = Shrink(height, width, size)
        self._stack = np.zeros((stack, size, size), np.uint8)
        self._frames = 0
        self._lives = 0

    def reset(self, *, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        ale = self._ale
        if self._fresh is None:
            self._load(seed)
        else:
            ale.restoreState(self._fresh[0])  # without sticky actions nothing in the game is random, and loading takes long
        noops = _below(self._noop_max, seed) - self._fire
        if self._fire:
            ale.act(ale_py.Action.FIRE)
        for _ in range(noops):
            ale.act(ale_py.Action.NOOP)
            if ale.game_over():
                ale.reset_game()
        self._screens[1] = 0
        if self._fresh is None or self._fire or noops > 0:
            ale.getScreenGrayscale(self._screens[0])
        else:
            self._screens[0] = self._fresh[1]  # restoring a state does not draw it
        self._stack = np.zeros_like(self._stack)
        self._frames = 0
        self._lives = ale.lives()
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, int, bool, bool, dict[str, Any]]:
        ale, move = self._ale, self.actions[action]
        reward = 0
        for left in range(self._frame_skip, 0, -1):
            reward += ale.act(move)
            self._frames += 1
            terminated = ale.game_over() or (self._episodic_life and 0 < ale.lives() < self._lives)
            if terminated or self._frames >= self._max_frames:
                break
            if left <= 2:
                ale.getScreenGrayscale(self._screens[left - 1])
        self._lives = ale.lives()
        return self._observe(), reward, terminated, not terminated and self._frames >= self._max_frames, {}

    def render(self) -> np.ndarray:
        return self._ale.getScreenRGB()

    def _load(self, seed: int) -> None:
        self._ale.setInt("random_seed", seed)
        self._ale.loadROM(self._rom)
        self._ale.reset_game()

    def _observe(self) -> np.ndarray:
        stack = np.empty_like(self._stack)
        stack[:-1] = self._stack[1:]
        self._shrink(self._screens[0], self._screens[1], stack[-1])
        self._stack = stack
        return stack


def _below(n: int, seed: int) -> int:
    """A number in [0, n) as C++ draws it in ALE: `mt19937`, and `uniform_int_distribution` of GCC's library.

    Lemire, Fast random integer generation in an interval, https://arxiv.org/abs/1805.10941, algorithm 5.
    """
    random = np.random.RandomState(seed)
    while True:
        product = int.from_bytes(random.bytes(4), "little") * n
        if product % 2**32 >= 2**32 % n:
            return product >> 32


class Clipped:
    """A controller whose rewards are clipped to [-1, 1]."""

    def __init__(self, name: str, controller: Controller) -> None:
        self.role = controller.role
        self._controller = controller

    async def reset(self) -> Observation:
        return await self._controller.reset()

    async def step(self, action: Action) -> Step:
        step = await self._controller.step(action)
        return step._replace(reward=[min(max(value, -1.0), 1.0) for value in step.reward])

    def leave(self) -> None:
        self._controller.leave()

    def result(self) -> Result:
        return self._controller.result()
