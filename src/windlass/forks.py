"""Values that belong to one process: threads, sockets and locks of a parent are of no use in a forked child.

A forked child never uses the values of its parent and never closes them. It keeps them: to destroy them could close
connections that the parent uses.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

T = TypeVar("T")

_process = object()  # stands for this process. A pid would not do: a later process may get the pid of a dead parent


class PerProcess(Generic[T]):
    """`get()` makes the value when a process first asks for it. A forked child makes its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[object, T] = {}

    def get(self) -> T:
        value = self._values.get(_process)
        # No lock: one that another thread holds during a fork would stay locked in the child. Two threads may both make
        # a value: the first one counts.
        return self._values.setdefault(_process, self._make()) if value is None else value

    def existing(self) -> T | None:
        """The value of this process, or None if it has none yet."""
        return self._values.get(_process)


class PerLoop(Generic[T]):
    """`get()` makes the value when an event loop first asks for it, in the process that runs the loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._loops: PerProcess[WeakKeyDictionary[asyncio.AbstractEventLoop, T]] = PerProcess(WeakKeyDictionary)
        _per_loop.add(self)

    def get(self) -> T:
        loops, loop = self._loops.get(), asyncio.get_running_loop()
        value = loops.get(loop)
        if value is None:
            for closed in [one for one in loops if one.is_closed()]:  # its value may be all that keeps it alive
                loops.pop(closed, None)
            value = loops[loop] = self._make()
        return value

    def pop(self) -> T | None:
        """Remove the value of the running loop: None if it has none."""
        return self._loops.get().pop(asyncio.get_running_loop(), None)

    def values(self) -> list[T]:
        return list(self._loops.get().values())


_per_loop: WeakSet[PerLoop[Any]] = WeakSet()
_inherited: list[Any] = []


def _renew() -> None:
    """Runs in a forked child, before its other code and before it has other threads."""
    global _process
    _inherited.extend(one.values() for one in list(_per_loop))  # they would go with the parent's loops
    _process = object()


os.register_at_fork(after_in_child=_renew)
