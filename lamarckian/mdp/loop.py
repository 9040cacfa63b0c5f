"""What drives matches: a bare trampoline in virtual time, and the two things that coroutines may await in it.

A *turn* of the loop runs every coroutine that is ready, then lets a hook answer what agents have asked (one batched
inference call). When nothing was asked, one tick passes for every match that awaits `tick()`. So a tick waits for what
the hook answers and for nothing else, and what happens depends on seeds alone.

The same coroutines also run under asyncio, where `tick()` yields once to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOTHING: Any = object()


class tick:
    """Awaits the next tick of virtual time."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


class Handoff(Generic[T]):
    """Hands one value at a time from whoever calls `put` to the one coroutine that awaits it; may be used again."""

    __slots__ = ("_asyncio_future_blocking", "_callback", "_task", "_value")

    def __init__(self) -> None:
        self._value: Any = _NOTHING
        self._task: Task | None = None
        self._callback: Any = None
        self._asyncio_future_blocking = False

    def put(self, value: T) -> None:
        """Makes `value` the answer; wakes the coroutine that waits for it."""
        self._value = value
        task = self._task
        if task is not None:
            self._task = None
            task.loop.ready.append(task)
        elif self._callback is not None:
            callback, context = self._callback
            self._callback = None
            asyncio.get_running_loop().call_soon(callback, self, context=context)

    @property
    def awaited(self) -> bool:
        """Whether a coroutine waits for a value."""
        return self._task is not None or self._callback is not None

    def __await__(self) -> Generator[Any, None, T]:
        while self._value is _NOTHING:
            self._asyncio_future_blocking = True
            try:
                yield self
            except BaseException:
                self._task = None
                raise
        value, self._value = self._value, _NOTHING
        return value

    # What an asyncio task asks of a future that is yielded to it.
    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def add_done_callback(self, callback: Callable[[Any], None], *, context: Any = None) -> None:
        self._callback = (callback, context)
        if self._value is not _NOTHING:
            self.put(self._value)

    def cancel(self, msg: Any = None) -> bool:
        if self._callback is None:
            return False
        callback, context = self._callback
        self._callback = None
        asyncio.get_running_loop().call_soon(callback, _Cancelled, context=context)
        return True

    def result(self) -> None:
        return None


class _Cancelled:
    @staticmethod
    def result() -> None:
        raise asyncio.CancelledError


class Task:
    """A coroutine that a `Loop` drives."""

    __slots__ = ("_send", "coroutine", "done", "loop", "then", "waits_for")

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, Any, Any], then: Callable[[Any], None] | None) -> None:
        self.loop = loop
        self.coroutine = coroutine
        self.then = then
        self.done = False
        self.waits_for: Any = None
        self._send = coroutine.send


class Loop:
    """A trampoline for coroutines that await `Handoff`, `tick` and each other, and nothing else.

    answer: called when nothing is ready; answers what agents asked since, and says whether there was anything.
    """

    def __init__(self, answer: Callable[[], bool] = lambda: False) -> None:
        self.ready: deque[Task] = deque()
        self.parked: list[Task] = []
        self.alive: set[Task] = set()
        self.ticks = 0
        self._answer = answer

    def spawn(self, coroutine: Coroutine[Any, Any, T], then: Callable[[T], None] | None = None) -> Task:
        """Starts a coroutine; `then` gets what it returns. It first runs in the current or next turn."""
        task = Task(self, coroutine, then)
        self.alive.add(task)
        self.ready.append(task)
        return task

    def cancel(self, task: Task) -> None:
        """Raises `CancelledError` in the coroutine where it stands, and lets it clean up."""
        if task.done:
            return
        self._end(task)
        if task.waits_for is not None:
            task.waits_for._task = None
        try:
            task.coroutine.throw(asyncio.CancelledError())
        except (asyncio.CancelledError, StopIteration):
            return
        finally:
            task.coroutine.close()

    def settle(self) -> None:
        """Runs all that is ready until nothing is, without answering agents."""
        ready = self.ready
        parked = self.parked
        popleft = ready.popleft
        while ready:
            task = popleft()
            if task.done:
                continue
            try:
                waits_for = task._send(None)
            except StopIteration as stop:
                self._end(task)
                if task.then is not None:
                    task.then(stop.value)
                continue
            except BaseException:
                self._end(task)
                raise
            if waits_for is None:
                task.waits_for = None
                parked.append(task)
            elif type(waits_for) is Handoff:
                task.waits_for = waits_for
                if waits_for._value is _NOTHING:
                    waits_for._task = task
                else:
                    ready.append(task)
            else:
                self._end(task)
                task.coroutine.close()
                raise TypeError(
                    f"a coroutine of a match awaits {waits_for!r}; in virtual time it may await controllers, agents, "
                    "`Handoff` and `tick()`. Games that do real I/O run under asyncio"
                )

    def turn(self) -> bool:
        """One turn. False when nothing is left that could run."""
        self.settle()
        if not self._answer():
            self.pass_tick()
        return bool(self.ready or self.parked)

    def pass_tick(self) -> None:
        """Lets one tick pass for every match that awaits it."""
        self.ticks += 1
        self.ready.extend(self.parked)
        self.parked.clear()

    def run(self) -> None:
        """Turns until nothing is left that could run."""
        while self.turn():
            pass

    def close(self) -> None:
        """Cancels every coroutine that is still alive."""
        for task in list(self.alive):
            self.cancel(task)

    def _end(self, task: Task) -> None:
        task.done = True
        self.alive.discard(task)
