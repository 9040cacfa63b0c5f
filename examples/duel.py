"""Duel: two gunslingers, and a clock that waits for neither. A whole game for Lamarckian: what the roles see and do, and the rules.

Hold it to the contract with `python examples/duel.py`; train on it with `lamarckian train examples/duel.yaml`.
"""

import numpy as np

from lamarckian.mdp import AsynchronousMatch, Discrete, Observation, Result, Role, Vector
from lamarckian.mdp.check import check_mdp

AIM, FIRE, DUCK = range(3)
OTHER = {"left": "right", "right": "left"}
STEADY = 5  # ticks of aiming after which a shot cannot miss


class Duel:
    """Every tick, aim, fire or duck. A shot hits the more surely the longer its aim was, unless the other ducks just then.

    Ducking spoils the own aim, and so does firing. Whoever is late stands still. A hit is worth 1, and costs the other 1.
    """

    def __init__(self, lives: int = 3, ticks: int = 200) -> None:
        self.lives = lives
        self.ticks = ticks
        self.roles = dict.fromkeys(OTHER, Role({"view": Vector(4)}, {"move": Discrete(3)}))

    def start(self, seed: int) -> AsynchronousMatch:
        return AsynchronousMatch(DuelRules(self.lives, self.ticks, seed), self.roles)


class DuelRules:
    """The rules of one match: what a role sees, what a tick does, and how it went."""

    def __init__(self, lives, ticks, seed):
        self.terminated = self.truncated = False
        self._full, self._ticks = lives, ticks
        self._random = np.random.default_rng(seed)
        self._aim = dict.fromkeys(OTHER, 0)
        self._lives = dict.fromkeys(OTHER, lives)

    def observe(self, role):
        other = OTHER[role]
        aims, lives = [self._aim[role], self._aim[other]], [self._lives[role], self._lives[other]]
        return Observation({"view": np.array([*np.divide(aims, STEADY), *np.divide(lives, self._full)], np.float32)})

    def advance(self, actions):
        moves = {role: None if action is None else action["move"] for role, action in actions.items()}
        hit = {role: moves[role] == FIRE and self._random.random() < self._aim[role] / STEADY for role in OTHER}
        hit = {role: hit[role] and moves[OTHER[role]] != DUCK for role in OTHER}
        for role, move in moves.items():
            self._lives[OTHER[role]] -= hit[role]
            self._aim[role] = min(self._aim[role] + 1, STEADY) if move == AIM else self._aim[role] if move is None else 0
        self._ticks -= 1
        self.terminated = min(self._lives.values()) == 0
        self.truncated = not self.terminated and self._ticks == 0
        return {role: [float(hit[role]) - float(hit[OTHER[role]])] for role in OTHER}

    def result(self, role):
        ahead = self._lives[role] - self._lives[OTHER[role]]
        return Result(0.5 + ahead / (2 * self._full), "win" if ahead > 0 else "loss" if ahead < 0 else "draw")


class Shooter:
    """A simple opponent: aims until it cannot miss, then fires. Takes a seat by `agent: "examples.duel:Shooter"`."""

    def start(self, seed: int) -> None:
        """A new match begins."""

    async def act(self, observation: Observation) -> dict[str, int]:
        return {"move": FIRE if observation.inputs["view"][0] == 1 else AIM}


if __name__ == "__main__":
    check_mdp(Duel())
    print("The game keeps its contract.")
