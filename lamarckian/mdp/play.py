"""The two ways to sit at a match: as the agent that learns, and as its sparring partner."""

from __future__ import annotations

from lamarckian.mdp.interface import Agent, Controller, Recorder, Result, Step


async def train(controller: Controller, agent: Agent, recorder: Recorder) -> Result:
    """Plays one match with `agent` and tells `recorder` what came of each action."""
    try:
        observation = await controller.reset()
        while True:
            step = await controller.step(await agent.act(observation))
            recorder.record(step)
            if step.terminated or step.truncated:
                return controller.result()
            observation = step.observation
    finally:
        controller.leave()


async def spar(controller: Controller, agent: Agent) -> Result:
    """Plays one match with `agent`; records nothing."""
    return await train(controller, agent, _NOBODY)


class _Nobody:
    """Takes no notice."""

    def record(self, step: Step) -> None: ...


_NOBODY = _Nobody()
