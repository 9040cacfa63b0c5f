"""The example game: a few lines that keep the contract, and that can be won."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from examples.duel import AIM, DUCK, FIRE, Duel, Shooter
from lamarckian.mdp import Loop, spar
from lamarckian.plugins import Section, build
from tests.mdp.toys import Now

ROOT = Path(__file__).parents[2]


class Player:
    def __init__(self, decide):
        self.decide = decide

    def start(self, seed):
        pass

    def act(self, observation):
        return Now({"move": self.decide(*observation.inputs["view"])})


def duel(seed, **players):
    match, loop = Duel().start(seed), Loop()
    clock = loop.spawn(match.run())
    for name, agent in players.items():
        agent.start(seed)
        loop.spawn(spar(match.controllers[name], agent))
    loop.run()
    assert clock.done
    return match.controllers["left"].result()


def test_it_runs_as_a_program():
    output = subprocess.run([sys.executable, "examples/duel.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output == "The game keeps its contract.\n"


def test_a_recipe_finds_it():
    game = build("game", Section(name="examples.duel:Duel", lives=2))
    assert list(game.roles) == ["left", "right"] and game.lives == 2


def test_skill_beats_chance_and_can_be_beaten():
    rng, shooter = np.random.default_rng(0), Shooter()
    chance = Player(lambda *_: int(rng.integers(3)))
    sly = Player(lambda own, other, *_: DUCK if other >= 0.8 else FIRE if own >= 0.6 else AIM)
    assert np.mean([duel(seed, left=shooter, right=chance).score for seed in range(40)]) > 0.8
    assert abs(np.mean([duel(seed, left=shooter, right=shooter).score for seed in range(40)]) - 0.5) < 0.2
    assert np.mean([duel(seed, left=sly, right=shooter).score for seed in range(40)]) > 0.6


def test_who_is_late_just_stands_there():
    result = duel(0, left=Player(lambda own, *_: FIRE if own == 1 else AIM))
    assert result.outcome == "win" and result.score == 1.0
