"""Errors a user can meet. Each says what was expected, what came, and what to do."""

from __future__ import annotations


class LamarckianError(Exception):
    """Work could not go on. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class MisuseError(LamarckianError):
    """What was asked for cannot be done; nothing has been started."""

    exit_code = 2


class RecipeError(MisuseError):
    """A recipe has an unknown key, a wrong type, a value out of range, or names something that is not there."""


class GameError(MisuseError):
    """A game cannot be used as asked: an unknown id, a missing extra, a space that has no counterpart here."""


class ContractError(LamarckianError):
    """A game broke the contract of `lamarckian.mdp` while it ran."""


class EvaluationError(LamarckianError):
    """An evaluator broke its contract: it returned something of the wrong shape, or failed where failures are not allowed."""


class CheckpointError(MisuseError):
    """A checkpoint is unreadable, truncated, foreign, or does not fit the game."""


class RunFolderError(MisuseError):
    """A run folder is in the way, missing, or cannot be written to."""


class NumericsError(LamarckianError):
    """A number that must be finite is not; says which, and where."""


class ProcessError(LamarckianError):
    """A process of the run died more often than it may."""


class RingError(LamarckianError):
    """Learners that learn together have lost one of them, or do not fit each other."""
