"""Instances that are dear to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Keeps what matches give back for the matches to come."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._idle: list[T] = []

    def take(self) -> T:
        """An instance that nobody else has."""
        return self._idle.pop() if self._idle else self._make()

    def give(self, instance: T) -> None:
        """Takes an instance back."""
        self._idle.append(instance)
