"""Preparing an attempt before its handler is called: the outputs of its blockers, the mark of a last attempt.

The worker reads the outputs of a job's blockers when the job is about to start, and bounds how many bytes it holds: a
claim takes many jobs, and each may have many blockers.

A job's last attempt is marked in the store right before its handler is called, inside its middleware: the executor
awaits `attempt.begin`. If the process ends before that, the attempt does not count, and the worker that rescues the job
gives it back. Last attempts begin one after the other, each when the handler before it has made its first step. If they
were marked together and the first one ended the process, the others would be failed though they never ran. Those that
run in child processes need not wait for each other: they begin when their child is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from ..app import Windlass
from ..attempt import Attempt, Stop
from ..claim import MOST_BYTES
from ..duration import Delays
from ..job import is_last_attempt
from ..logs import Log, job_fields
from ..operation import Operation
from ..outcome import Settlement
from ..stores.store import Lease
from .loops import SlotTask

log = Log("windlass.worker")

FIRST_DELAY, LONGEST_DELAY = 0.05, 5.0  # seconds between tries while the store does not answer
STEP_SECONDS = 0.002  # for the first step of a handler in a thread
LONGEST_STEP = 0.05  # before the next one begins although this handler, behind some middleware, has not
LOCKED_SECONDS = 0.1  # between looks at a row that another transaction holds

Execute: TypeAlias = Callable[[Attempt, SlotTask, float], Awaitable[Settlement | None]]
T = TypeVar("T")


class Starting:
    def __init__(self, app: Windlass, execute: Execute) -> None:
        self.app, self._execute = app, execute
        self._turn = asyncio.Lock()  # to begin a last attempt
        self._reading = asyncio.Lock()  # what others have returned
        self._bytes = 0
        self._fewer_bytes = asyncio.Event()

    async def execute(self, attempt: Attempt, slot: SlotTask, began: float) -> Settlement | None:
        """As the executor does, once all is ready."""
        size = 0
        try:
            if attempt.job.blockers_left is not None:
                size = await self._read_blockers(attempt)
            if is_last_attempt(attempt.job):
                return await self._execute_last(attempt, slot, began)
            return await self._execute(attempt, slot, began)
        finally:
            attempt.set_blockers(())
            self._bytes -= size
            self._fewer_bytes.set()

    # Blockers

    async def _read_blockers(self, attempt: Attempt) -> int:
        """Their outputs, and how many bytes those are: as soon as others hold few enough."""
        if not await self._acquire(attempt, self._reading):
            return 0
        try:
            while self._bytes >= MOST_BYTES and attempt.stop is None:
                self._fewer_bytes.clear()
                await self._unless_stopped(attempt, self._fewer_bytes.wait())
            id = attempt.job.id
            found = await self._insist(attempt, lambda: self.app.store.blockers([id]))
            if found is None:
                return 0
            attempt.set_blockers(found.get(id, ()))
            size = sum(len(blocker.output or "") for blocker in attempt.waited_for)
            self._bytes += size
            return size
        finally:
            self._reading.release()

    # A last attempt

    async def _execute_last(self, attempt: Attempt, slot: SlotTask, began: float) -> Settlement | None:
        turn = _Turn(self._turn)
        attempt.begin = lambda: self._begin(attempt, turn)
        try:
            return await self._execute(attempt, slot, began)
        finally:
            attempt.begin = attempt.entering = None
            turn.end()

    async def _begin(self, attempt: Attempt, turn: _Turn) -> None:
        """Mark it in the store. `CancelledError` where it is not to begin any more: `attempt.stop` says why. The time
        that this takes is not the handler's."""
        task, attempt.task = attempt.task, None  # a statement that is under way is not interrupted
        deadline = attempt.deadline
        if deadline is not None:
            deadline.pause()
        try:
            await self._mark(attempt, turn)
        except BaseException:  # middleware may have given up, and may call the handler once more
            turn.end()
            raise
        finally:
            attempt.task = task
            if deadline is not None:
                deadline.resume()
        if attempt.stop is not None:
            raise asyncio.CancelledError
        attempt.begin = None
        turn.end_after(LONGEST_STEP)
        attempt.entering = turn.entering

    async def _mark(self, attempt: Attempt, turn: _Turn) -> None:
        lease = Lease(attempt.job.id, attempt.token, 0)
        known = self.app.tasks.get(attempt.job.type)
        while True:
            if known is None or known.isolation != "process":  # a child process takes no other job with it
                await turn.take()
            refusals = await self._insist(attempt, lambda: self.app.store.begin([lease]))
            if not refusals:
                return
            if refusals[0].reason != "locked":
                attempt.interrupt(Stop.LEASE_LOST, refusals[0].reason)
                return
            turn.end()
            await self._unless_stopped(attempt, asyncio.sleep(LOCKED_SECONDS))

    # Waiting

    async def _insist(self, attempt: Attempt, make: Callable[[], Operation[T]]) -> T | None:
        """Until the store has answered, however often it cannot; None where the attempt is to end before that."""
        delays = Delays(FIRST_DELAY, LONGEST_DELAY)
        while attempt.stop is None:
            try:
                return await self.app.arun_for_worker(make)
            except Exception as error:
                log.warning(
                    "job %s waits for the store before it starts: %s", attempt.job.id, error,
                    extra=job_fields(attempt.job),
                )  # fmt: skip
            await self._unless_stopped(attempt, asyncio.sleep(next(delays)))
        return None

    async def _acquire(self, attempt: Attempt, lock: asyncio.Lock) -> bool:
        """Whether the attempt has the lock. Not if it is to end before that."""
        acquired = False

        async def acquire() -> None:
            nonlocal acquired
            acquired = await lock.acquire()

        try:
            while not acquired and attempt.stop is None:  # other code may cancel the task that waits
                await self._unless_stopped(attempt, acquire())
        except BaseException:
            if acquired:
                lock.release()
            raise
        return acquired

    async def _unless_stopped(self, attempt: Attempt, waiting: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(waiting)
        before, attempt.interrupter = attempt.interrupter, lambda: _cancel(task)
        try:
            if attempt.stop is None:
                await asyncio.wait([task])
        finally:
            attempt.interrupter = before
            task.cancel()


class _Turn:
    """The turn of one attempt to begin: it ends once."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock, self._loop = lock, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._taken = False

    async def take(self) -> None:
        if not self._taken:
            await self._lock.acquire()
            self._taken = True

    def end_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.end)

    def entering(self, in_thread: bool) -> None:
        """The handler is called now: here, or in a thread, which needs a moment in which nothing else is done."""
        if in_thread:
            with suppress(RuntimeError):  # the loop has ended, and with it all waits
                self._loop.call_soon_threadsafe(self.end_after, STEP_SECONDS)
        else:
            self._loop.call_soon(self.end)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._taken:
            self._taken = False
            self._lock.release()


def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
