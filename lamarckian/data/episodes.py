"""An episode buffer: joins the fragments of a seat into whole episodes, and hands out their steps with the returns that followed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit

from lamarckian.errors import CheckpointError
from lamarckian.seeding import generator

Steps: TypeAlias = dict[str, np.ndarray]
"""Arrays whose first axis is steps, one after the other."""

KEPT = ("inputs.", "legal.", "action.", "log_prob.")
FORGOTTEN = 64
"""A lane whose episode is not continued while all others are, so many times on average, is dead."""
WAITED_FOR = ("reward", "bootstrap", "terminated", "truncated", "learn", "version")


class _Open(NamedTuple):
    """An episode that goes on: its parts so far, and the number of the column that continued it last."""

    parts: list[Steps]
    column: int


class EpisodeBuffer:
    """Steps of whole episodes, oldest first, of which `draw` gives those first that it has never given.

    gamma: discounts `[R]`. bootstrap: a truncated episode is worth its final observation's value; otherwise it counts as ended.
    max_uses: how often a step is given; after that it is dropped. steps: how many there are at most; the oldest make way.
    open_bytes: what episodes may take that wait for their end; those make way that were not continued for longest. So do those of an actor
        that died, which nobody continues.
    The same seed and the same fragments give the same draws.
    """

    def __init__(self, gamma: np.ndarray, *, bootstrap: bool, max_uses: int, steps: int, open_bytes: int, seed: int) -> None:
        self.dropped = 0
        """Steps that made way unused since the buffer was made or loaded."""
        self._gamma = gamma.astype(np.float64)
        self._bootstrap = bootstrap
        self._max_uses = max_uses
        self._limit = steps
        self._open_bytes = open_bytes
        self._seed = seed
        self._draws = 0
        self._steps: Steps = {}
        self._uses = np.zeros(0, np.int64)
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._waiting = 0
        self._columns = 0

    def __len__(self) -> int:
        """Steps that `draw` may give."""
        return len(self._uses)

    @property
    def unseen(self) -> int:
        """Steps that `draw` has not given yet."""
        return int((self._uses == 0).sum())

    @property
    def waiting(self) -> int:
        """Steps of episodes that have not ended yet."""
        return self._waiting

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Takes the fragments of a batch, with the arrays that `Layout` lists; copies what it keeps."""
        ended = batch["terminated"] | batch["truncated"]
        names = [name for name in batch if name in WAITED_FOR or name.startswith(KEPT)]
        arrays = {name: batch[name][: len(ended)] for name in names}
        episodes = []
        for column, lane in enumerate(batch["lane"].tolist()):
            parts = self._open.pop(lane).parts if lane in self._open else []
            start = 0
            self._columns += 1
            for end in (np.flatnonzero(ended[:, column]) + 1).tolist():
                parts.append({name: array[start:end, column] for name, array in arrays.items()})
                episodes.append(self._close(parts))
                parts, start = [], end
            if start < len(ended):
                parts.append({name: array[start:, column].copy() for name, array in arrays.items()})
                self._waiting += len(ended) - start
            if parts:
                self._open[lane] = _Open(parts, self._columns)
        self._keep(episodes)
        self._forget()

    def draw(self, count: int) -> Steps:
        """At most `count` steps `[K, …]`, copies: unseen ones first, then any others, uniformly, none twice.

        Beside the arrays of the fragments there is `return` `[K, R]`, each reward's discounted sum to the episode's end, and `uses` `[K]`,
        how often each was given before. Nothing at all is given where there is nothing.
        """
        random = generator(self._seed, "draw", self._draws)
        self._draws += 1
        unseen, seen = np.flatnonzero(self._uses == 0), np.flatnonzero(self._uses)
        first = random.choice(unseen, min(count, len(unseen)), replace=False)
        rest = random.choice(seen, min(count - len(first), len(seen)), replace=False)
        chosen = np.concatenate([first, rest])
        drawn = {name: array[chosen] for name, array in self._steps.items()} | {"uses": self._uses[chosen]}
        self._uses[chosen] += 1
        return drawn

    def save(self) -> dict[str, np.ndarray]:
        """All that `load` needs to go on exactly; copies."""
        parts = [part for episode in self._open.values() for part in episode.parts]
        lanes = [(lane, episode.column) for lane, episode in self._open.items() for _ in episode.parts]
        return {
            "counts": np.array([self._draws, self._columns]),
            "uses": self._uses.copy(),
            **{f"steps.{name}": array.copy() for name, array in self._steps.items()},
            "open.lane": np.array(lanes, np.int64).reshape(-1, 2),
            "open.length": np.array([len(part["learn"]) for part in parts], np.int64),
            **{f"open.steps.{name}": array for name, array in _joined(parts).items()},
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from what `save` gave. Raises CheckpointError where that is no state of such a buffer."""
        missing = [name for name in ("counts", "uses", "open.lane", "open.length") if name not in state]
        if missing:
            raise CheckpointError(f"this is not the state of an episode buffer: {', '.join(missing)} not in it")
        self.dropped = 0
        self._draws, self._columns = state["counts"].tolist()
        self._uses = state["uses"].copy()
        self._steps = {name.removeprefix("steps."): x.copy() for name, x in state.items() if name.startswith("steps.")}
        joined = {name.removeprefix("open.steps."): x for name, x in state.items() if name.startswith("open.steps.")}
        self._open.clear()
        ends = np.cumsum(state["open.length"]).tolist()
        for (lane, column), start, end in zip(state["open.lane"].tolist(), [0, *ends], ends, strict=False):
            part = {name: x[start:end].copy() for name, x in joined.items()}
            self._open.setdefault(lane, _Open([], column)).parts.append(part)
        self._waiting = sum(state["open.length"].tolist())

    def _close(self, parts: list[Steps]) -> Steps:
        """The steps of an episode that are to be learned from, with their returns."""
        self._waiting -= sum(len(part["learn"]) for part in parts[:-1])
        episode = _joined(parts)
        final = np.zeros(len(self._gamma))
        if self._bootstrap and not episode["terminated"][-1]:
            final += episode["bootstrap"][-1]
        steps = {name: x for name, x in episode.items() if name == "version" or name.startswith(KEPT)}
        steps["return"] = discounted(episode["reward"], final, self._gamma)
        return {name: x[episode["learn"]] for name, x in steps.items()}

    def _keep(self, episodes: list[Steps]) -> None:
        live = self._uses < self._max_uses
        old = [{name: x[live] for name, x in self._steps.items()}] if self._steps else []
        steps = _joined(old + episodes)
        uses = np.concatenate([self._uses[live], np.zeros(sum(len(episode["return"]) for episode in episodes), np.int64)])
        excess = max(0, len(uses) - self._limit)
        self.dropped += int((uses[:excess] == 0).sum())
        self._steps, self._uses = {name: x[excess:] for name, x in steps.items()}, uses[excess:]

    def _forget(self) -> None:
        """Drops the open episodes that wait in vain, and those that there is no room for."""
        while self._open:
            lane, (parts, column) = next(iter(self._open.items()))
            step_bytes = sum(x[:1].nbytes for x in parts[0].values())
            if self._columns - column <= FORGOTTEN * len(self._open) and self._waiting * step_bytes <= self._open_bytes:
                break
            del self._open[lane]
            length = sum(len(part["learn"]) for part in parts)
            self._waiting -= length
            self.dropped += length


def discounted(reward: np.ndarray, final: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """G_t = r_t + γ G_{t+1}, float32 `[L, R]`, of one episode's rewards `[L, R]`; final: G_L `[R]`; gamma: `[R]`. Summed in float64."""
    returns = np.empty(reward.shape, np.float32)
    _discount(reward, final.astype(np.float64), gamma.astype(np.float64), returns)
    return returns


@njit(cache=True, nogil=True)
def _discount(reward, final, gamma, returns):  # type: ignore[no-untyped-def]
    for r in range(reward.shape[1]):
        total = final[r]
        for t in range(len(reward) - 1, -1, -1):
            total = reward[t, r] + gamma[r] * total
            returns[t, r] = total


def _joined(parts: Sequence[Steps]) -> Steps:
    """The parts behind one another."""
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else {})}
