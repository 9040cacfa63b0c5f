"""A problem of one's own: whom to send, how to line them up, how long to train them. `lamarckian evolve examples/team.yaml` solves it."""

import numpy as np

from lamarckian.ec import Categorical, Genome, Real, Subset


class Team:
    """A team of five out of twenty players: strength, and the money that is left, which must not be below 0. Both are maximised."""

    minimise = False
    objectives = 2
    names = ("strength", "left")

    def __init__(self, budget: float = 60.0, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.budget = budget
        self.attack, self.defence = random.uniform(1, 10, (2, 20))
        self.price = self.attack + self.defence + random.uniform(-3, 3, 20)
        self.genome = Genome(
            {
                "players": Subset(items=20, size=5),
                "style": Categorical(["attack", "balance", "defence"]),
                "hours": Real(0, 10, length=5),
            }
        )

    def evaluate(self, x):
        """Objectives [N, 2] and violation [N] of N teams: x["players"] is [N, 5], x["style"] [N, 1], x["hours"] [N, 5]."""
        players, style, hours = x["players"], x["style"], x["hours"]
        weight = np.select([style == "attack", style == "defence"], [0.8, 0.2], 0.5)
        skill = weight * self.attack[players] + (1 - weight) * self.defence[players]
        strength = (skill * (1 + 0.1 * np.sqrt(hours))).sum(axis=1)
        left = self.budget - self.price[players].sum(axis=1) - hours.sum(axis=1)
        return np.stack([strength, left], axis=1), np.maximum(-left, 0)
