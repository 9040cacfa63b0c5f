"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.algorithm import Algorithm
from lamarckian.rl.dqn import DQN
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.ppo import PPO

__all__ = ["DQN", "IMPALA", "PPO", "Algorithm"]
