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
"""A lane that is not continued while all others are, so many times on average, is dead."""
WAITED_FOR = ("reward", "bootstrap", "terminated", "truncated", "learn", "version")


class _Lane(NamedTuple):
    """What came of a lane.

    parts: of the episode that goes on, none where the last one has just ended; None where a column is missing, until an episode ends.
    number: of its last column; seen: how many columns of all lanes there were then.
    """

    parts: list[Steps] | None
    number: int
    seen: int

    @property
    def steps(self) -> int:
        return sum(len(part["learn"]) for part in self.parts or ())


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
        """Steps that made way unused, or whose episode lacks some, since the buffer was made or loaded."""
        self._gamma = gamma.astype(np.float64)
        self._bootstrap = bootstrap
        self._max_uses = max_uses
        self._limit = steps
        self._open_bytes = open_bytes
        self._seed = seed
        self._draws = 0
        self._steps: Steps = {}
        self._uses = np.zeros(0, np.int64)
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
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
        """Takes the fragments of a batch, with the arrays that `Layout` lists; copies what it keeps.

        An episode of which a column is missing, or comes too late, is dropped.
        """
        ended = batch["terminated"] | batch["truncated"]
        names = [name for name in batch if name in WAITED_FOR or name.startswith(KEPT)]
        arrays = {name: batch[name][: len(ended)] for name in names}
        episodes = []
        for column, (lane, number) in enumerate(zip(batch["lane"].tolist(), batch["column"].tolist(), strict=True)):
            parts = self._continued(lane, number)
            start = 0
            self._columns += 1
            for end in [*(np.flatnonzero(ended[:, column]) + 1).tolist(), None]:
                part = {name: array[start:end, column] for name, array in arrays.items()}
                length = len(part["learn"])
                if parts is None:
                    self.dropped += length
                elif end is not None:
                    episodes.append(self._close([*parts, part]))
                elif length:
                    parts.append({name: x.copy() for name, x in part.items()})
                    self._waiting += length
                if end is not None:
                    parts, start = [], end
            self._lanes[lane] = _Lane(parts, number, self._columns)
        self._keep(episodes)
        self._forget(sum(array[:1, :1].nbytes for array in arrays.values()))

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
        parts = [part for lane in self._lanes.values() for part in lane.parts or ()]
        lanes = [(name, lane.number, lane.seen, -1 if lane.parts is None else len(lane.parts)) for name, lane in self._lanes.items()]
        return {
            "counts": np.array([self._draws, self._columns]),
            "uses": self._uses.copy(),
            **{f"steps.{name}": array.copy() for name, array in self._steps.items()},
            "lanes": np.array(lanes, np.int64).reshape(-1, 4),
            "open.length": np.array([len(part["learn"]) for part in parts], np.int64),
            **{f"open.steps.{name}": array for name, array in _joined(parts).items()},
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from what `save` gave. Raises CheckpointError where that is no state of such a buffer."""
        missing = [name for name in ("counts", "uses", "lanes", "open.length") if name not in state]
        if missing:
            raise CheckpointError(f"this is not the state of an episode buffer: {', '.join(missing)} not in it")
        self.dropped = 0
        self._draws, self._columns = state["counts"].tolist()
        self._uses = state["uses"].copy()
        self._steps = {name.removeprefix("steps."): x.copy() for name, x in state.items() if name.startswith("steps.")}
        joined = {name.removeprefix("open.steps."): x for name, x in state.items() if name.startswith("open.steps.")}
        ends = np.cumsum(state["open.length"]).tolist()
        parts = iter([{name: x[start:end].copy() for name, x in joined.items()} for start, end in zip([0, *ends], ends, strict=False)])
        self._lanes.clear()
        for name, number, seen, count in state["lanes"].tolist():
            self._lanes[name] = _Lane(None if count < 0 else [next(parts) for _ in range(count)], number, seen)
        self._waiting = sum(state["open.length"].tolist())

    def _continued(self, name: int, number: int) -> list[Steps] | None:
        """The parts that column `number` of a lane follows; None where it does not follow what came of the lane last."""
        lane = self._lanes.pop(name, None)
        if lane is None:
            return None if number else []
        if number == lane.number + 1:
            return lane.parts
        self._drop(lane)
        return None

    def _drop(self, lane: _Lane) -> None:
        self._waiting -= lane.steps
        self.dropped += lane.steps

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

    def _forget(self, step_bytes: int) -> None:
        """Drops the open episodes that wait in vain, and those that there is no room for."""
        while self._lanes:
            name, lane = next(iter(self._lanes.items()))
            if self._columns - lane.seen <= FORGOTTEN * len(self._lanes) and self._waiting * step_bytes <= self._open_bytes:
                break
            del self._lanes[name]
            self._drop(lane)


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
