"""Algorithms of reinforcement learning: fragments in, versions out."""

from lamarckian.rl.algorithm import Algorithm, Student
from lamarckian.rl.imitation import Imitation
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.pg import PG
from lamarckian.rl.ppo import PPO

__all__ = ["IMPALA", "PG", "PPO", "Algorithm", "Imitation", "Student"]
