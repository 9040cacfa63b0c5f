"""Our vector Pong for the peers: the left seat learns, the tracker plays the right one, many matches in one call of the rules."""

import gymnasium as gym
import numpy as np

from lamarckian.games.pong import Pong


class VectorPong(gym.vector.VectorEnv):
    """Where a match has ended, the next one is there at once: the observation of that step is the next match's first.

    What the game showed last is not kept; nobody asks for the value of a state in which the match is over. RLlib takes the step after
    an end for the reset, so there a match begins with its second observation.
    """

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}

    def __init__(self, envs: int):
        self.num_envs = envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
        self.single_action_space = gym.spaces.Discrete(3)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, envs)
        self._matches = Pong().start_many(envs, seed=0)
        self._tracker = Pong.bots["tracker"]()

    def reset(self, *, seed=None, options=None):
        now = self._matches.reset()
        self._opposite = now["right"]
        self._tracker.start(np.arange(self.num_envs), [0] * self.num_envs)  # it does not err, so its seed is not used
        return now["left"].inputs["vector"].copy(), {}

    def step(self, actions):
        steps = self._matches.step({"left": {"move": actions}, "right": self._tracker.act(self._opposite)})
        self._opposite = steps["right"].observations
        left = steps["left"]
        if left.results:
            ended = left.terminated.nonzero()[0]
            self._tracker.start(ended, [0] * len(ended))
        return left.observations.inputs["vector"].copy(), left.reward[:, 0].copy(), left.terminated.copy(), left.truncated.copy(), {}
