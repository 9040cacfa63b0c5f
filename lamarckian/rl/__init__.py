"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.a3c import A3C
from lamarckian.rl.algorithm import Algorithm, GradientAlgorithm
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.ppo import PPO

__all__ = ["A3C", "IMPALA", "PPO", "Algorithm", "GradientAlgorithm"]
