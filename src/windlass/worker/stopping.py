"""How a worker is asked to stop, and how long it may take over it."""

from __future__ import annotations

import asyncio
import time

ENDING_SECONDS = 5.0  # after the grace, in which handlers are interrupted and outcomes written
HURRY_SECONDS = 2.0  # for all of that, when it is to be at once
INTERRUPTED_SECONDS = 2.0  # of these, for handlers that were interrupted
WRITING_SECONDS = 3.5  # of these, until outcomes are written


class Stopping:
    """`asked` is set when the worker is to stop, `hurry` when that is to be at once."""

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.asked, self.hurry = asyncio.Event(), asyncio.Event()
        self._since: float | None = None

    def begin(self) -> None:
        """However often it is said."""
        self.heard()
        self.asked.set()

    def hurry_up(self) -> None:
        self.hurry.set()
        self.begin()

    def heard(self) -> None:
        """The grace counts from now on. For a signal handler, too: the event loop may be blocked."""
        if self._since is None:
            self._since = time.monotonic()

    def left(self, seconds: float) -> float:
        """Until so many seconds after the grace."""
        grace = 0.0 if self.hurry.is_set() else self.grace_seconds
        return max(0.0, (self._since or 0.0) + grace + seconds - time.monotonic())
