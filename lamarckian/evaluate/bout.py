"""One match at a time, among agents of any kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lamarckian import seeding
from lamarckian.actor.inference import Model
from lamarckian.actor.policy import ActingPolicy
from lamarckian.errors import ContractError
from lamarckian.mdp import MDP, Action, Agent, Loop, Observation, Result, Role, spar, train
from lamarckian.mdp.interface import Recorder


def bout(mdp: MDP, agents: Mapping[str, Agent], seed: int, recorders: Mapping[str, Recorder] = {}) -> dict[str, Result]:
    """Plays the match of this seed, each role by its agent; how it went, by role. recorders: told what came of a role's actions."""
    match, loop, ended = mdp.start(seed), Loop(), list[Result]()
    try:
        for role, agent in agents.items():
            agent.start(seeding.agent_seed(seed, role))
            controller = match.controllers[role]
            plays = train(controller, agent, recorders[role]) if role in recorders else spar(controller, agent)
            loop.spawn(plays, ended.append)
        loop.spawn(match.run())
        while len(ended) < len(agents) and loop.turn():
            pass
        if len(ended) < len(agents):
            raise ContractError("a match stands still: its clock and its controllers all wait for something that nobody gives")
        return {role: match.controllers[role].result() for role in agents}
    finally:
        loop.close()
        match.close()


_SEAT = np.zeros(1, np.int64)


class TrainedAgent:
    """A policy at one seat, which takes its likeliest actions."""

    def __init__(self, model: Model, role: Role) -> None:
        self._policy = ActingPolicy(model, role, seeding.generator(0), greedy=True)

    def start(self, seed: int) -> None:
        """A new match begins; nothing is drawn at random."""
        self._policy.states.begin(_SEAT)

    async def act(self, observation: Observation) -> Action:
        inputs, legal = ({name: np.asarray(x)[None] for name, x in arrays.items()} for arrays in (observation.inputs, observation.legal))
        decision = self._policy.decide(inputs, legal, _SEAT, 1)
        return {head: values[0] for head, values in decision.played.items()}
