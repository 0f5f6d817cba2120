"""The timeout of an attempt."""

from __future__ import annotations

import asyncio

from ..attempt import Attempt, Stop


class Deadline:
    """Interrupts an attempt when it has taken so many seconds. Time in a pause does not count: in it the worker itself
    is busy, not the handler. It may be entered again: the calls of a handler whose transaction met another's have this
    time together."""

    def __init__(self, attempt: Attempt, seconds: float) -> None:
        self._attempt, self._left, self._loop = attempt, seconds, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._attempt.deadline = self
        self.resume()

    def __exit__(self, *_: object) -> None:
        self.pause()
        self._attempt.deadline = None

    def resume(self) -> None:
        self._timer = self._loop.call_later(self._left, self._attempt.interrupt, Stop.TIMEOUT)

    def pause(self) -> None:
        if self._timer is not None:
            self._left = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()
            self._timer = None
