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
import random
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from ..app import Queues, Windlass
from ..attempt import Attempt, Stop
from ..call import check_name
from ..duration import Duration, to_seconds
from ..errors import InvalidInput, WindlassError
from ..identity import Identity
from ..job import Job, NewJob
from ..lifecycle import COMPLETED, PENDING
from ..logs import Log, job_fields
from ..outcome import Settlement, decide, give_back
from ..stores.store import Refusal, Renewal, WorkerInfo
from ..stores.urls import without_password
from ..stores.wakeup import Hint
from .buffer import Buffer
from .events import Events
from .executor import Executor
from .leases import Leases
from .outcomes import log_outcome
from .processes import refuse_in_child
from .pump import Pump
from .scheduler import Scheduler
from .settler import Ended, Settler
from .starting import Starting
from .upkeep import Upkeep

log = Log("windlass.worker")

BREATH = 64  # jobs that a slot runs before it lets the others of the loop have their turn


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
        self.queues = _queue_limits(queues)
        self.poll_seconds, self.rescue_seconds = to_seconds(poll_interval), to_seconds(rescue_interval)
        self.grace_seconds = to_seconds(grace)
        self.identity = Identity()
        self.running: set[Attempt] = set()
        self.started = self.completed = self.failed = self.retried = 0
        self.report: Callable[..., None] | None = None
        self._held_up = False
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[int] | None = None

    # Its life

    async def run(self) -> int:
        """Work until stopped (or idle, or `max_jobs` were run): how many jobs were run."""
        await self._open()
        helpers = [
            asyncio.create_task(work, name=f"windlass {name}")
            for name, work in (
                ("settler", self.settler.run()),
                ("upkeep", self.upkeep.run()),
                ("scheduler", self.scheduler.run()),
            )
        ]
        slots = [asyncio.create_task(self._slot(), name="windlass slot") for _ in range(self.concurrency)]
        pump = asyncio.create_task(self.pump.run(), name="windlass pump")
        watch = asyncio.create_task(self._until_end(), name="windlass watch")
        try:
            await asyncio.wait([watch, pump, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for task in (pump, *helpers):
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        finally:
            await self._shut_down(pump, watch, slots, helpers)
        return self.started

    async def _open(self) -> None:
        refuse_in_child()
        await self.app.aprepare()
        loop = asyncio.get_running_loop()
        self.buffer = Buffer(self.concurrency)
        self.events = Events(self.app)
        self.executor = Executor(self.app, self.concurrency)
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
        self.upkeep = Upkeep(self.app, self.describe, self._rescued, self.events.expired, self.rescue_seconds)
        self.scheduler = Scheduler(self.app, self.pump.wake, self.poll_seconds)
        await self.scheduler.open()
        await self.upkeep.beat()  # whoever holds a job is on the list of workers
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
            await self._stopping.wait()
            return
        all_ended = False  # also what has expired
        while not self._stopping.is_set():
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
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def end(self) -> None:
        """Stop, however often it is said."""
        self._stopping.set()

    async def _shut_down(self, pump: Any, watch: Any, slots: list[Any], helpers: list[Any]) -> None:
        self._stopping.set()
        self.pump.stop()
        await _ended(pump, within=5.0)
        await _ended(asyncio.create_task(self.pump.release_unanswered()), within=4.0)
        log.info("worker %s claims no more", self.identity.name, extra={"worker": self.identity.name})
        self._give_back(self.buffer.clear())
        await self._let_end()
        await _ended(asyncio.create_task(self.settler.drained()), within=self.grace_seconds if self.running else 10.0)
        for task in (watch, *slots, *helpers):
            task.cancel()
        await asyncio.wait([watch, *slots, *helpers], timeout=1.0)
        self._deafen()
        await asyncio.to_thread(self.leases.stop)
        with contextlib.suppress(Exception):  # it will be missed, and struck off the list
            await self.upkeep.farewell()
        await self.executor.close()
        await self.events.close()
        log.info(
            "worker %s has ended: %d done, %d retried, %d failed", self.identity.name, self.completed, self.retried,
            self.failed, extra={"worker": self.identity.name},
        )  # fmt: skip

    async def _let_end(self) -> None:
        """First by themselves, then interrupted; who does not listen is left behind, and its lease fences it."""
        await self._quiet(self.grace_seconds, unless_hurried=True)
        for attempt in list(self.running):
            attempt.interrupt(Stop.SHUTDOWN)
        await self._quiet(0.5 if self._hurry.is_set() else 2.0)
        for attempt in self.running:
            log.error(
                "job %s does not end; it is left behind, and another worker will run it again", attempt.job.id,
                extra=job_fields(attempt.job),
            )  # fmt: skip

    async def _quiet(self, seconds: float, *, unless_hurried: bool = False) -> None:
        """Until nothing runs, for so long at most. Looks now and then: an event would cost every job a little."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline and not (unless_hurried and self._hurry.is_set()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    # A slot

    async def _slot(self) -> None:
        buffer, settler, execute, count = self.buffer, self.settler, self.starting.execute, 0
        slot = cast("asyncio.Task[Any]", asyncio.current_task())
        while True:
            if settler.full:
                await settler.room()
            attempt = buffer.pop() or await buffer.take()
            self.running.add(attempt)
            self.started += 1
            if self.app.hooks:
                self.events.started(attempt)
            began = time.perf_counter()
            try:
                settlement = await execute(attempt, slot, began)
            except asyncio.CancelledError as error:
                if slot.cancelling():
                    raise  # the slot itself is to end
                # The handler's own: it awaited what someone had cancelled. An error like any other.
                settlement = decide(attempt.job, attempt.token, error, random=random.random)
            finally:
                self.running.discard(attempt)
                if self.pump.limited:
                    self.pump.ended(attempt)
            buffer.ran(time.perf_counter() - began)
            if settlement is None:
                self._ended_without(attempt)
            else:
                self.settler.add(attempt, settlement)
            count += 1
            if count % BREATH == 0:
                await asyncio.sleep(0)

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
        soonest: float | None = None
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
                soonest = delay if soonest is None else min(soonest, delay)
            self.events.settled(attempt, settlement)
        if soonest is not None and soonest < self.poll_seconds:
            asyncio.get_running_loop().call_later(soonest, self.pump.wake)

    def _handed(self, job: Job, token: UUID, began: float) -> None:
        """The next job of a chain, which we have claimed as we completed the one before."""
        attempt = Attempt(self.app, self.app.bind(job), token)
        self.leases.hold([attempt], began)
        if self._stopping.is_set():
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

    def heed_signals(self) -> None:
        """SIGTERM and SIGINT stop; the second one at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.stop)


def _queue_limits(queues: Queues | None) -> dict[str, int | None] | None:
    if queues is None:
        return None
    if isinstance(queues, str):
        raise InvalidInput("queues is a list of names, or a mapping of names to limits")
    limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
    for name, limit in limits.items():
        check_name("queue", name)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidInput(f"queue {name}: a limit is a number from 1 on, not {limit!r}")
    return limits


def _safely(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


async def _ended(task: asyncio.Task[Any], within: float) -> None:
    await asyncio.wait([task], timeout=within)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1.0)
