"""The event loop that a worker of its own process runs in, and tasks in it that go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from ..logs import Log

log = Log("windlass.worker")

T = TypeVar("T")


def runner() -> asyncio.Runner:
    """uvloop where it is installed: a good deal faster, and otherwise the same."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def keep_on(work: Callable[[], Awaitable[T]], is_over: Callable[[], bool]) -> T:
    """Do it again if it was cancelled before its time, as by a handler that cancels all tasks that it can find."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    while True:
        try:
            return await work()
        except asyncio.CancelledError:
            if is_over():
                raise
            task.uncancel()
            log.warning("the task %s was cancelled by other code, and continues", task.get_name())
