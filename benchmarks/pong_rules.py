"""Ticks of Pong per second of one core's time, and how its bots fare. Prints a JSON line a figure; medians of alternating runs.

    python benchmarks/pong_rules.py [runs]

The reference of a rate is the compiled rules alone, without the interface around them; of a single match, the batched way
with one match. A bot's figure is its mean normalised score in 1,000 matches against the tracker, the reference that of the
tracker against itself.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from figures import figure

from lamarckian.games.pong import Pong
from lamarckian.games.pong.table import Table
from lamarckian.mdp import BotAgent, Loop, spar

ROLES = ("left", "right")
RUN_S = 0.5


def rate_hz(step: Callable[[int], object], ticks: int) -> float:
    """Ticks per second of the core's time, of calls that take so many ticks each."""
    begun, calls = time.process_time(), 0
    while time.process_time() - begun < RUN_S:
        for i in range(10):
            step(calls + i)
        calls += 10
    return calls * ticks / (time.process_time() - begun)


def random_moves(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, (64, 2, size))


def batched(size: int, **settings: object) -> Callable[[int], object]:
    lanes = Pong(**settings).start_many(size, 1)
    lanes.reset()
    actions = [{role: {"move": moves[seat].astype(np.int32)} for seat, role in enumerate(ROLES)} for moves in random_moves(size)]
    return lambda i: lanes.step(actions[i % 64])


def rules_alone(size: int, image: tuple[int, int] | None = None) -> Callable[[int], object]:
    """Matches that never end, so that nothing but the rules runs."""
    table = Table(size, sys.maxsize, 1000, image)
    table.begin(np.arange(size), list(range(size)))
    moves = random_moves(size)
    return lambda i: table.advance(moves[i % 64])


def single_rate_hz(_: int = 0) -> float:
    """Ticks per second of whole matches behind controllers, tracker against tracker."""
    game, agents, ticks = Pong(), [BotAgent(Pong.bots["tracker"]()) for _ in ROLES], 0
    begun = time.process_time()
    while time.process_time() - begun < RUN_S:
        match, loop = game.start(ticks), Loop()
        for role, agent in zip(ROLES, agents, strict=True):
            agent.start(0)
            loop.spawn(spar(match.controllers[role], agent))
        loop.spawn(match.run())
        while loop.turn():
            ticks += 1
    return ticks / (time.process_time() - begun)


def score(name: str, seed: int, matches: int = 1000) -> float:
    """Mean score of a bot on the left against the tracker on the right, in as many matches."""
    lanes, first = Pong().start_many(matches, seed), {}
    bots = {"left": Pong.bots[name](), "right": Pong.bots["tracker"]()}
    for seat, bot in enumerate(bots.values()):
        bot.start(np.arange(matches), list(range(seat, 2 * matches, 2)))
    seen = lanes.reset()
    while len(first) < matches:
        steps = lanes.step({role: bots[role].act(seen[role]) for role in ROLES})
        seen = {role: steps[role].observations for role in ROLES}
        for b, result in steps["left"].results:
            first.setdefault(b, result)
    return statistics.fmean(result.score for result in first.values())


def report(name: str, unit: str, reference: str, runs: int, value: Callable[[int], float], compared: Callable[[int], float]) -> None:
    pairs = [(value(run), compared(run)) for run in range(runs)]
    values, references = (list(side) for side in zip(*pairs, strict=True))
    figure(name, values, unit, reference, references, digits=4)


def main(runs: int) -> None:
    for size in (64, 256, 1024, 4096):
        step, alone = batched(size), rules_alone(size)
        report(
            f"pong_vector_{size}",
            "ticks/s",
            "compiled rules alone",
            runs,
            lambda _, step=step, size=size: rate_hz(step, size),
            lambda _, alone=alone, size=size: rate_hz(alone, size),
        )
    for size in (64, 256):
        step, alone = batched(size, observation="image"), rules_alone(size, (84, 4))
        report(
            f"pong_image_{size}",
            "ticks/s",
            "compiled rules alone",
            runs,
            lambda _, step=step, size=size: rate_hz(step, size),
            lambda _, alone=alone, size=size: rate_hz(alone, size),
        )
    one = batched(1)
    report("pong_vector_single", "ticks/s", "the batched way with one match", runs, single_rate_hz, lambda _: rate_hz(one, 1))
    for name in ("interceptor", "random", "stay"):
        report(
            f"pong_{name}_against_tracker",
            "score",
            "tracker against tracker",
            runs,
            lambda run, name=name: score(name, run),
            lambda run: score("tracker", run),
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
