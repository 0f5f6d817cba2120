"""When and how a worker ends: claim no more, give back, let handlers end, interrupt them, write the outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..attempt import Stop
from ..errors import WindlassError
from ..logs import Log, job_fields
from .bell import Reason
from .loops import keep_on
from .stopping import ENDING_SECONDS, INTERRUPTED_SECONDS, WRITING_SECONDS

if TYPE_CHECKING:
    from .worker import Worker

log = Log("windlass.worker")

UNOPENED_SECONDS = 1.0  # to strike a worker off the list that was ended while it opened
LOOK_SECONDS = 0.25  # between looks for jobs of a claim whose answer was lost


async def until_end(worker: Worker) -> None:
    """Until the worker is stopped, or has no more to do."""
    stopped, pump = worker.stopping.asked, worker.pump
    if not worker.until_idle and worker.max_jobs is None:
        await stopped.wait()
        return
    cleaned_up = False
    while not stopped.is_set():
        busy = len(worker.buffer) or worker.running or not worker.outbox.is_empty
        if not busy and worker.ledger.reached_max_jobs:
            return
        if not busy and worker.until_idle and pump.nothing_left:
            if not pump.turn.all_slots_were_free:
                worker.bell.ring(Reason.LOOK)  # a job for which no slot was free may still be there
            elif not cleaned_up:
                with contextlib.suppress(WindlassError):  # then the next worker does it
                    await worker.maintenance.rescue()
                    await worker.maintenance.expire()
                cleaned_up = True
                continue
            elif not pump.seems_locked:
                return
        await asyncio.sleep(0.005)


async def shut_down(worker: Worker, helpers: list[asyncio.Task[None]]) -> None:
    """`helpers`: the worker's tasks, the second of them its pump; empty if the worker was ended while it opened."""
    if not worker.has_parts:
        return
    worker.has_parts = False
    stopping = worker.stopping
    stopping.begin()
    if worker.watchdog is not None:
        worker.watchdog.arm(stopping.left(ENDING_SECONDS))
    try:
        if helpers:
            await _insist(worker, lambda: _wind_down(worker, pump=helpers[1]))
    finally:
        worker.attempts.closed = worker.slots.ending = True
        for task in (*worker.slots.tasks, *helpers):
            task.cancel()
        worker.outbox.close()
        worker.stop_listening()
        worker.executor.close()
        worker.leases.stop_soon()
    await _insist(worker, lambda: _take_leave(worker, helpers))
    log.info(
        "worker %s has ended: %d done, %d retried, %d failed, %d cancelled", worker.identity.name, worker.completed,
        worker.retried, worker.tally.failed, worker.tally.cancelled, extra={"worker": worker.identity.name},
    )  # fmt: skip


async def _insist(worker: Worker, work: Callable[[], Awaitable[None]]) -> None:
    """Again, if a handler that cancels all tasks that it finds has cancelled it in a process of the worker's own."""
    await keep_on(work, lambda: not worker.alone)


async def _wind_down(worker: Worker, pump: asyncio.Task[None]) -> None:
    stopping, name = worker.stopping, worker.identity.name
    worker.pump.stop()
    await _ended(pump, within=min(5.0, stopping.left(0.5)))
    await _within(min(4.0, stopping.left(1.0)), _give_back_unanswered(worker))
    log.info("worker %s claims no more", name, extra={"worker": name})
    worker.attempts.give_back(worker.buffer.clear())
    left = await _let_handlers_end(worker)
    await _within(max(1.0, stopping.left(WRITING_SECONDS)), worker.outbox.drained())
    if unwritten := len(worker.outbox.waiting) + worker.outbox.under_way:
        log.error("%d outcomes could not be written; these jobs will run again", unwritten)
    worker.left_behind += left + unwritten


async def _take_leave(worker: Worker, helpers: list[asyncio.Task[None]]) -> None:
    stopping = worker.stopping
    if helpers:
        await asyncio.wait(helpers, timeout=0.5)
    await asyncio.to_thread(worker.leases.stop, 0.5)
    with contextlib.suppress(Exception):  # other workers strike it off the list when its heartbeat is late
        within = max(0.5, stopping.left(WRITING_SECONDS)) if helpers else UNOPENED_SECONDS
        async with asyncio.timeout(within):
            await worker.maintenance.farewell()
    await worker.events.close(max(0.5, stopping.left(WRITING_SECONDS)))


async def _give_back_unanswered(worker: Worker) -> None:
    """The jobs of claims whose answers were lost."""
    claimer = worker.claimer
    while claimer.unanswered:
        try:
            await claimer.adopt(worker.attempts.give_back)
        except Exception as error:
            log.warning("the jobs of a claim whose answer was lost cannot be looked for: %s", error)
        if claimer.unanswered:
            await asyncio.sleep(LOOK_SECONDS)


async def _let_handlers_end(worker: Worker) -> int:
    """First by themselves, then interrupted. How many the worker leaves behind: their leases fence them."""
    stopping = worker.stopping
    await _all_ended(worker, stopping.left(0.0), unless_hurried=True)
    for attempt in list(worker.running):
        attempt.interrupt(Stop.SHUTDOWN)
    await _all_ended(worker, 0.5 if stopping.hurry.is_set() else INTERRUPTED_SECONDS)
    still = list(worker.running)
    worker.executor.close()
    await worker.slots.end(0.5)
    left = [attempt for attempt in still if attempt in worker.running or attempt.interrupter is not None]
    for attempt in left:
        log.error(
            "job %s does not end; it is left behind, and another worker will run it again", attempt.job.id,
            extra=job_fields(attempt.job),
        )  # fmt: skip
    return len(left)


async def _all_ended(worker: Worker, seconds: float, *, unless_hurried: bool = False) -> None:
    """Until no handler runs, for so long at most. It polls: an event would cost every job a little."""
    deadline, hurry = time.monotonic() + seconds, worker.stopping.hurry
    while worker.running and time.monotonic() < deadline and not (unless_hurried and hurry.is_set()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _ended(task: asyncio.Task[Any], within: float) -> None:
    await asyncio.wait([task], timeout=within)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1.0)


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """In this task: another could be cancelled by a handler, and would then seem to have ended."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
