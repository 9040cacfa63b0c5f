"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.algorithm import Algorithm
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.ppo import PPO

__all__ = ["IMPALA", "PPO", "Algorithm"]
