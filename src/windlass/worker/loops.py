"""The event loop of a worker that has a process of its own, and tasks in it that other code cannot end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from ..logs import Log

log = Log("windlass.worker")

T = TypeVar("T")

OBJECTS_BETWEEN_COLLECTIONS = 20_000


def runner() -> asyncio.Runner:
    """uvloop where it is installed: a good deal faster, and otherwise the same."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


@contextmanager
def rare_collections() -> Iterator[None]:
    """A worker makes many objects that live for one job, and hardly a cycle. With Python's own threshold the collector
    would look through them every few hundred jobs, which costs a tenth of the worker's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS_BETWEEN_COLLECTIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_to_end(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """`runner.run`, also if a task or callback of a handler raises SystemExit or KeyboardInterrupt, or stops the loop.
    Then the loop is run again: all other jobs run in it."""
    loop = runner.get_loop()
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:  # the last one: a handler has stopped the loop
            if task.done():
                raise
            log.error("%s by a task or callback of a handler: the worker continues", type(error).__name__)


class SlotTask(asyncio.Task[None]):
    """The task of a slot. It knows whether the code that runs in it has cancelled it, or other code."""

    _by_others = False

    def cancel(self, msg: Any | None = None) -> bool:
        self._by_others = asyncio.current_task(self.get_loop()) is not self
        return super().cancel(msg)

    @property
    def is_cancelled_by_others(self) -> bool:
        return self._by_others and self.cancelling() > 0


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
