"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.a3c import A3C
from lamarckian.rl.algorithm import Algorithm, GradientAlgorithm, Student
from lamarckian.rl.dqn import DQN
from lamarckian.rl.imitation import Imitation
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.pg import PG
from lamarckian.rl.ppo import PPO

__all__ = ["A3C", "DQN", "IMPALA", "PG", "PPO", "Algorithm", "GradientAlgorithm", "Imitation", "Student"]
