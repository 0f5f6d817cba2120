"""The worker: slots that take jobs from a buffer, a pump that fills it, a settler that writes what came of them.

pump ── claim ──▶ buffer ──▶ slots ── execute ──▶ settler ── settle
                    ▲                                │
leases (a thread) renew all that is here ◀───────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ..app import Queues, Windlass
from ..attempt import Attempt, Stop
from ..duration import Duration, to_seconds
from ..errors import InvalidInput, StoreUnavailable, WindlassError
from ..identity import Identity
from ..job import Job, NewJob
from ..lifecycle import COMPLETED, PENDING
from ..logs import Log, job_fields
from ..outcome import Settlement, give_back
from ..stores.store import Refusal, Renewal, WorkerInfo
from ..stores.urls import without_password
from ..stores.wakeup import Hint
from .buffer import Buffer
from .claiming import queue_limits
from .events import Events
from .executor import Executor
from .leases import Leases
from .loops import keep_on
from .outcomes import log_outcome
from .processes import refuse_in_child
from .pump import Pump
from .scheduler import Scheduler
from .settler import Ended, Settler
from .slots import Slots
from .starting import Starting
from .stopping import ENDING_SECONDS, INTERRUPTED_SECONDS, WRITING_SECONDS, Stopping
from .upkeep import Upkeep
from .watchdog import Watchdog

log = Log("windlass.worker")


class Worker:
    """`async with app.worker(): …`, or `await app.worker().run()`."""

    def __init__(
        self,
        app: Windlass,
        queues: Queues | None = None,
        concurrency: int = 50,
        *,
        poll_interval: Duration = 5,
        rescue_interval: Duration = 5,
        grace: Duration = 30,
        until_idle: bool = False,
        max_jobs: int | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidInput(f"concurrency is a number from 1 to 10,000, not {concurrency!r}")
        self.app, self.concurrency, self.until_idle, self.max_jobs = app, concurrency, until_idle, max_jobs
        self.queues = queue_limits(queues)
        self.poll_seconds, self.rescue_seconds = to_seconds(poll_interval), to_seconds(rescue_interval)
        self.grace_seconds = to_seconds(grace)
        self.stopping = Stopping(self.grace_seconds)
        self.identity = Identity()
        self.running: set[Attempt] = set()
        self.started = self.completed = self.failed = self.retried = 0
        self.report: Callable[..., None] | None = None
        self.alone = False  # whether its event loop is there for nothing else
        self.watchdog: Watchdog | None = None  # where the process is to end with the worker
        self.left_behind = 0  # attempts that did not end in time, or whose outcome could not be written
        self._held_up = False
        self._over = False
        self._task: asyncio.Task[int] | None = None

    # Its life

    async def run(self) -> int:
        """Work until stopped (or idle, or `max_jobs` were run): how many jobs were run."""
        await self._open()
        self.slots.start()
        helpers = [
            asyncio.create_task(keep_on(work, is_over), name=f"windlass {name}")
            for name, work, is_over in (
                ("watch", self._until_end, lambda: self._over),
                ("pump", self.pump.run, lambda: self.pump.stopping),
                ("settler", self.settler.run, lambda: self._over),
                ("upkeep", self.upkeep.run, lambda: self._over),
                ("scheduler", self.scheduler.run, lambda: self._over),
            )
        ]
        wait = partial(asyncio.wait, helpers, return_when=asyncio.FIRST_COMPLETED)
        try:
            await keep_on(wait, lambda: not self.alone)
            for task in helpers:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        finally:
            self._say_if_done()
            await self._shut_down(helpers)
        return self.started

    def _say_if_done(self) -> None:
        """A supervisor replaces a process that has ended, unless that was since nothing was left to do."""
        enough = self.max_jobs is not None and self.started >= self.max_jobs
        if self.report is not None and self.until_idle and not enough and not self.stopping.asked.is_set():
            self.report(done=True)

    async def _open(self) -> None:
        refuse_in_child()
        await self.app.aprepare()
        loop = asyncio.get_running_loop()
        self.buffer = Buffer(self.concurrency)
        self.events = Events(self.app)
        self.executor = Executor(self.app)
        self.starting = Starting(self.app, self.executor.execute)
        self.leases = Leases(
            self.app, lambda attempt, renewal: _safely(loop, self._told, attempt, renewal), self.report
        )
        self.pump = Pump(
            self.app, self.buffer, self.leases, name=self.identity.name, queues=self.queues,
            poll_seconds=self.poll_seconds, may_claim=self._may_claim,
            held_up=lambda: self.settler.full, give_back=self._give_back,
        )  # fmt: skip
        self.settler = Settler(
            self.app, self._settled, self.pump.may_follow, self.pump.not_following, self._handed, self.identity.name
        )
        self.slots = Slots(
            self.concurrency, self.buffer, self.settler, self.starting.execute, self._begins, self._ended
        )
        self.upkeep = Upkeep(self.app, self.describe, self._rescued, self.events.expired, self.rescue_seconds)
        self.scheduler = Scheduler(self.app, self.pump.wake, self.poll_seconds)
        await self.scheduler.open()
        try:
            await self.upkeep.beat()  # before its first job, so that every job's worker is on the list of workers
        except StoreUnavailable as error:
            log.warning("the first heartbeat failed: %s", error, extra={"worker": self.identity.name})
        self.leases.start()
        if self.report is not None:
            self.report(ready=True)
        self._deafen = self.app.store.wakeup.listen(self.pump.heard)
        serves = "all queues" if self.queues is None else ", ".join(self.queues)
        log.info(
            "worker %s serves %s, %d jobs at once, of %s", self.identity.name, serves, self.concurrency,
            without_password(self.app.url), extra={"worker": self.identity.name},
        )  # fmt: skip

    async def _until_end(self) -> None:
        """Until someone says stop, or there is no more to do."""
        if not self.until_idle and self.max_jobs is None:
            await self.stopping.asked.wait()
            return
        all_ended = False  # also what has expired
        while not self.stopping.asked.is_set():
            busy = len(self.buffer) or self.running or self.settler.waiting or self.settler.under_way
            if not busy and self.max_jobs is not None and self.started >= self.max_jobs:
                return
            if not busy and self.until_idle and self.pump.nothing_left:
                if not self.pump.quiet:
                    self.pump.wake()  # what it had no slot for may be there still
                elif not all_ended:
                    with contextlib.suppress(WindlassError):  # then the next worker does it
                        await self.upkeep.expire()
                    all_ended = True
                    continue
                elif not self.pump.seems_locked:
                    return
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        """Claim no more, give back what was not started, let the rest end (within `grace`). Again: at once."""
        if self.stopping.asked.is_set():
            self.stopping.hurry_up()
        self.stopping.begin()

    async def _shut_down(self, helpers: list[asyncio.Task[None]]) -> None:
        self.stopping.begin()
        if self.watchdog is not None:
            self.watchdog.arm(self.stopping.left(ENDING_SECONDS))
        try:
            await self._wind_down(helpers)
        finally:
            self._over = self.slots.ending = True
            for task in (*self.slots.tasks, *helpers):
                task.cancel()
            self.settler.close()
            self._deafen()
            self.executor.close()
            self.leases.stop_soon()
        await asyncio.wait(helpers, timeout=0.5)
        await asyncio.to_thread(self.leases.stop, 0.5)
        with contextlib.suppress(Exception):  # it will be missed, and struck off the list
            await asyncio.wait_for(self.upkeep.farewell(), max(0.5, self.stopping.left(WRITING_SECONDS)))
        await self.events.close(max(0.5, self.stopping.left(WRITING_SECONDS)))
        log.info(
            "worker %s has ended: %d done, %d retried, %d failed", self.identity.name, self.completed, self.retried,
            self.failed, extra={"worker": self.identity.name},
        )  # fmt: skip

    async def _wind_down(self, helpers: list[asyncio.Task[None]]) -> None:
        self.pump.stop()
        _, pump, *_ = helpers
        await _ended(pump, within=min(5.0, self.stopping.left(0.5)))
        await _ended(asyncio.create_task(self.pump.release_unanswered()), within=min(4.0, self.stopping.left(1.0)))
        log.info("worker %s claims no more", self.identity.name, extra={"worker": self.identity.name})
        self._give_back(self.buffer.clear())
        await self._let_end()
        drained = asyncio.create_task(self.settler.drained())
        await _ended(drained, within=max(1.0, self.stopping.left(WRITING_SECONDS)))
        if unwritten := len(self.settler.waiting) + self.settler.under_way:
            log.error("%d outcomes could not be written; these jobs will run again", unwritten)
            self.left_behind += unwritten

    async def _let_end(self) -> None:
        """First by themselves, then interrupted; who does not listen is left behind, and its lease fences it."""
        await self._quiet(self.stopping.left(0.0), unless_hurried=True)
        for attempt in list(self.running):
            attempt.interrupt(Stop.SHUTDOWN)
        await self._quiet(0.5 if self.stopping.hurry.is_set() else INTERRUPTED_SECONDS)
        still = list(self.running)
        self.executor.close()
        await self.slots.end(0.5)
        left = [attempt for attempt in still if attempt in self.running or attempt.interrupter is not None]
        self.left_behind += len(left)
        for attempt in left:
            log.error(
                "job %s does not end; it is left behind, and another worker will run it again", attempt.job.id,
                extra=job_fields(attempt.job),
            )  # fmt: skip

    async def _quiet(self, seconds: float, *, unless_hurried: bool = False) -> None:
        """Until nothing runs, for so long at most. Looks now and then: an event would cost every job a little."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline and not (unless_hurried and self.stopping.hurry.is_set()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    # What a slot tells

    def _begins(self, attempt: Attempt) -> None:
        self.running.add(attempt)
        self.started += 1
        if self.app.hooks:
            self.events.started(attempt)

    def _ended(self, attempt: Attempt, settlement: Settlement | None) -> None:
        attempt.ended = True  # a thread that has outlived its handler cannot settle it otherwise
        self.running.discard(attempt)
        if self.pump.limited:
            self.pump.ended(attempt)
        if settlement is None:
            self._ended_without(attempt)
        elif self._over:
            log.warning("job %s: ended after its worker: its outcome is not written", attempt.job.id)
        else:
            self.settler.add(attempt, settlement)

    def _ended_without(self, attempt: Attempt) -> None:
        """Nothing is to be written: another has the job, or the handler has settled it itself."""
        self.leases.let_go([attempt])
        if attempt.settled and attempt.recorded is not None:
            self._count(attempt.recorded)
            self.events.settled(attempt, attempt.recorded)
            self.pump.changed()
            self.pump.wake()

    def _count(self, settlement: Settlement) -> None:
        if settlement.state == COMPLETED:
            self.completed += 1
        elif settlement.state == PENDING:
            self.retried += settlement.error is not None
        else:
            self.failed += 1

    def _give_back(self, attempts: list[Attempt]) -> None:
        """What was claimed and not started, without cost."""
        for attempt in attempts:
            if self.pump.limited:
                self.pump.ended(attempt)
            self.settler.add(attempt, give_back(attempt.job, attempt.token))

    def _may_claim(self) -> int:
        if self.settler.full:
            self._held_up = True
            return 0
        if self.max_jobs is None:
            return 1_000_000
        return self.max_jobs - self.started - len(self.buffer)

    # What is heard

    def _told(self, attempt: Attempt, renewal: Renewal) -> None:
        if renewal.expires_at is None:
            attempt.interrupt(Stop.LEASE_LOST, renewal.reason)
        elif renewal.cancel_requested:
            attempt.interrupt(Stop.CANCEL, "cancelled while it ran")

    def _settled(self, batch: list[Ended], refusals: list[Refusal], followed: bool) -> None:
        self.leases.let_go(attempt for attempt, _ in batch)
        self.pump.changed()
        if (self.until_idle and not followed) or any(attempt.job.order_key for attempt, _ in batch):
            self.pump.wake()
        if self._held_up and not self.settler.full:
            self._held_up = False
            self.pump.wake()
        if not followed:
            self._go_on([one.continues for _, one in batch if one.continues is not None])
        talkative = log.isEnabledFor(logging.DEBUG)
        quiet = not refusals and not talkative and not self.app.hooks
        if quiet and all(settlement.state == COMPLETED for _, settlement in batch):
            self.completed += len(batch)
            return
        refused = {refusal.id: refusal.reason for refusal in refusals}
        soonest: dict[str, float] = {}
        for attempt, settlement in batch:
            if settlement.id in refused:
                fields = job_fields(attempt.job)
                log.warning("job %s: the outcome was refused: %s", settlement.id, refused[settlement.id], extra=fields)
                continue
            if talkative or settlement.error is not None:
                log_outcome(attempt.job, settlement)
            self._count(settlement)
            if settlement.state == PENDING:
                delay = settlement.delay_seconds or 0.0
                soonest[attempt.job.queue] = min(delay, soonest.get(attempt.job.queue, delay))
            self.events.settled(attempt, settlement)
        for queue, delay in soonest.items():
            if delay < self.poll_seconds:
                asyncio.get_running_loop().call_later(delay, self.pump.expect, queue)

    def _handed(self, job: Job, token: UUID, began: float) -> None:
        """The next job of a chain, which we have claimed as we completed the one before."""
        attempt = Attempt(self.app, self.app.bind(job), token)
        self.leases.hold([attempt], began)
        if self.stopping.asked.is_set():
            self.settler.add(attempt, give_back(job, token))
        else:
            self.pump.followed(attempt)

    def _go_on(self, jobs: list[NewJob]) -> None:
        """Whoever else serves the next jobs of chains is told, unless we do."""
        elsewhere = {job.queue for job in jobs if not self.pump.went_on(job.queue) or job.type not in self.app.tasks}
        if elsewhere and self.app.notify:
            self.app.store.wakeup.send([Hint("ready", queue) for queue in sorted(elsewhere)])

    def _rescued(self, settlements: list[Settlement]) -> None:
        self.events.rescued(settlements)
        self.pump.wake()

    def describe(self) -> WorkerInfo:
        queues = None if self.queues is None else list(self.queues)
        return WorkerInfo(
            name=self.identity.name, host=socket.gethostname(), pid=os.getpid(), queues=queues,
            types=sorted(self.app.tasks), concurrency=self.concurrency, running=len(self.running),
        )  # fmt: skip

    # As a context

    async def __aenter__(self) -> Worker:
        self._task = asyncio.create_task(self.run(), name="windlass worker")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._task is not None:
            await self._task


def _safely(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


async def _ended(task: asyncio.Task[Any], within: float) -> None:
    await asyncio.wait([task], timeout=within)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1.0)
