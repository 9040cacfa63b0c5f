"""Lamarckian: evolutionary reinforcement learning for games whose clock does not wait."""

__version__ = "0.1.0"
