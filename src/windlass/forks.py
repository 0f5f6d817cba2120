"""Values that belong to one process: threads, sockets and locks of a parent are of no use in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`get()` makes the value when a process first asks for it. A forked child makes its own.

    The parent's value is kept in the child: to destroy it there could close connections that the parent uses.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        value = self.existing()
        # No lock: one that another thread holds during a fork would stay locked in the child. Two threads may both make
        # a value: the first one counts.
        return self._values.setdefault(os.getpid(), self._make()) if value is None else value

    def existing(self) -> T | None:
        """The value of this process, or None if it has none yet."""
        return self._values.get(os.getpid())
