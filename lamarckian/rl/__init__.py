"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.algorithm import Algorithm
from lamarckian.rl.ppo import PPO

__all__ = ["PPO", "Algorithm"]
