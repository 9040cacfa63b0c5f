"""Pong: the two-player vector and image game."""

from lamarckian.games.pong.mdp import Pong

__all__ = ["Pong"]
