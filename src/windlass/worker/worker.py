"""The worker: a pump claims jobs into a buffer, slots run them, an outbox writes their outcomes.

bell ──▶ pump ── claim ──▶ buffer ──▶ slots ── execute ──▶ outbox ── settle ──▶ outcomes ──▶ bell
            ledger: every limit        leases: a thread that renews the leases of all attempts
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ..app import Windlass
from ..attempt import Attempt, Stop
from ..duration import Duration, to_seconds
from ..errors import InvalidInput, StoreUnavailable, WindlassError
from ..identity import Identity
from ..logs import Log
from ..outcome import Settlement, give_back
from ..stores.store import Refusal, Renewal, WorkerInfo, may_be_handed_over
from ..stores.urls import without_password
from ..stores.wakeup import Hint
from ..working import Queues
from .bell import Bell, Reason
from .buffer import Buffer
from .claimer import Claimer
from .cursor import queue_limits
from .events import Events
from .executor import Executor
from .leases import Leases
from .ledger import Ledger
from .loops import keep_on
from .outbox import BYTES_WAITING, ROWS_WAITING, NextJob, Outbox
from .outcomes import Outcomes, Tally
from .processes import refuse_in_child
from .pump import Pump
from .scheduler import Scheduler
from .shutdown import shut_down
from .slots import Slots
from .starting import Starting
from .stopping import Stopping
from .upkeep import Upkeep
from .watchdog import Watchdog
from .writer import Ended

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
        self.ledger = Ledger(
            concurrency, self.queues, max_jobs=max_jobs, unwritten_rows=ROWS_WAITING, unwritten_bytes=BYTES_WAITING
        )
        self.tally = Tally()
        self.report: Callable[..., None] | None = None
        self.alone = False  # whether its event loop is there for nothing else
        self.watchdog: Watchdog | None = None  # where the process is to end with the worker
        self.left_behind = 0  # attempts that did not end in time, or whose outcome could not be written
        self.over = False
        self._task: asyncio.Task[int] | None = None

    async def run(self) -> int:
        """Work until stopped (or idle, or `max_jobs` were run): how many jobs were run."""
        await self._open()
        self.slots.start()
        helpers = [
            asyncio.create_task(keep_on(work, is_over), name=f"windlass {name}")
            for name, work, is_over in (
                ("watch", self._until_end, lambda: self.over),
                ("pump", self.pump.run, lambda: self.pump.stopping),
                ("outbox", self.outbox.run, lambda: self.over),
                ("upkeep", self.upkeep.run, lambda: self.over),
                ("scheduler", self.scheduler.run, lambda: self.over),
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
            await shut_down(self, helpers)
        return self.started

    def _say_if_done(self) -> None:
        """A supervisor replaces a process that has ended, unless that was since nothing was left to do."""
        enough = self.ledger.reached_max_jobs
        if self.report is not None and self.until_idle and not enough and not self.stopping.asked.is_set():
            self.report(done=True)

    async def _open(self) -> None:
        refuse_in_child()
        await self.app.aprepare()
        loop, name = asyncio.get_running_loop(), self.identity.name
        self.bell = Bell()
        self.buffer = Buffer(self.ledger, self.bell)
        self.events = Events(self.app)
        self.executor = Executor(self.app)
        self.starting = Starting(self.app, self.executor.execute)
        self.leases = Leases(self.app, lambda *news: _safely(loop, _interrupt, *news), self.report)
        self.claimer = Claimer(self.app, self.ledger, self.leases, name, self.queues)
        self.outcomes = Outcomes(self.app, self.tally, self.events, self.bell, self.claimer, self.poll_seconds)
        self.outbox = Outbox(self.app, self.ledger, self.bell, self._written, name)
        self.slots = Slots(self.ledger, self.buffer, self.outbox, self.starting.execute, self._begins, self._ended)
        self.pump = Pump(
            self.app, self.claimer, self.ledger, self.bell, self.buffer,
            give_back=self.give_back, poll_seconds=self.poll_seconds, until_idle=self.until_idle,
        )  # fmt: skip
        self.upkeep = Upkeep(self.app, self.describe, self._rescued, self.events.expired, self.rescue_seconds)
        self.scheduler = Scheduler(self.app, lambda: self.bell.ring(Reason.LOOK), self.poll_seconds)
        await self.scheduler.open()
        try:
            await self.upkeep.beat()  # before its first job, so that every job's worker is on the list of workers
        except StoreUnavailable as error:
            log.warning("the first heartbeat failed: %s", error, extra={"worker": name})
        self.leases.start()
        if self.report is not None:
            self.report(ready=True)
        self.stop_listening = self.app.store.wakeup.listen(self._heard)
        serves = "all queues" if self.queues is None else ", ".join(self.queues)
        log.info(
            "worker %s serves %s, %d jobs at once, of %s", name, serves, self.concurrency,
            without_password(self.app.url), extra={"worker": name},
        )  # fmt: skip

    async def _until_end(self) -> None:
        """Until the worker is stopped, or has no more to do."""
        if not self.until_idle and self.max_jobs is None:
            await self.stopping.asked.wait()
            return
        all_ended = False  # also jobs that have expired
        while not self.stopping.asked.is_set():
            busy = len(self.buffer) or self.running or not self.outbox.is_empty
            if not busy and self.ledger.reached_max_jobs:
                return
            if not busy and self.until_idle and self.pump.nothing_left:
                if not self.pump.turn.all_slots_were_free:
                    self.bell.ring(Reason.LOOK)  # a job for which no slot was free may still be there
                elif not all_ended:
                    with contextlib.suppress(WindlassError):  # then the next worker does it
                        await self.upkeep.expire()
                    all_ended = True
                    continue
                elif not self.pump.seems_locked:
                    return
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        """Claim no more, give back jobs that were not started, let the others end (within `grace`). Again: at once."""
        if self.stopping.asked.is_set():
            self.stopping.hurry_up()
        self.stopping.begin()

    # Attempts

    def _begins(self, attempt: Attempt) -> None:
        self.running.add(attempt)
        if attempt.place is not None:
            attempt.place.start()
        if self.app.hooks:
            self.events.started(attempt)

    def _ended(self, attempt: Attempt, settlement: Settlement | None) -> None:
        attempt.ended = True  # a thread that has outlived its handler cannot settle the job any more
        self.running.discard(attempt)
        self._release(attempt)
        if settlement is None:
            self._ended_without(attempt)
        elif self.over:
            log.warning("job %s: ended after its worker: its outcome is not written", attempt.job.id)
        else:
            if settlement.continues is not None and self.outbox.is_empty and may_be_handed_over(settlement.continues):
                attempt.next_place = self.pump.place_for(settlement.continues)
            self.outbox.add(attempt, settlement)

    def _release(self, attempt: Attempt) -> None:
        if attempt.place is not None:
            attempt.place.release()
        if self.ledger.limits and attempt.job.queue in self.ledger.limits:
            self.bell.ring(Reason.LOOK)  # its queue has room again

    def _ended_without(self, attempt: Attempt) -> None:
        """There is nothing to write: another worker has the job, or the handler has settled it itself."""
        self.leases.let_go([attempt])
        if attempt.settled and attempt.recorded is not None:
            self.outcomes.settled_by_handler(attempt, attempt.recorded)

    def give_back(self, attempts: list[Attempt]) -> None:
        """Jobs that were claimed and not started. No attempt is spent."""
        for attempt in attempts:
            self._release(attempt)
            self.outbox.add(attempt, give_back(attempt.job, attempt.token))

    def _written(self, batch: list[Ended], refusals: list[Refusal], next_job: NextJob | None) -> None:
        self.leases.let_go(attempt for attempt, _ in batch)
        if next_job is not None:
            attempt = self.claimer.hold_next(next_job.job, next_job.token, next_job.began, next_job.place)
            if self.stopping.asked.is_set():
                self.give_back([attempt])
            else:
                self.buffer.put([attempt])
        if batch:
            self.outcomes.written(batch, refusals, has_next=next_job is not None)

    @property
    def started(self) -> int:
        return self.ledger.started

    @property
    def completed(self) -> int:
        return self.tally.completed

    @property
    def failed(self) -> int:
        return self.tally.failed

    @property
    def retried(self) -> int:
        return self.tally.retried

    # News from outside

    def _heard(self, hint: Hint | None) -> None:
        """On the listener's thread. None: something has changed, and the store cannot say what."""
        if hint is None:
            self.leases.ask_all()
            self.bell.ring_from_thread(Reason.HINT)
        elif hint.kind == "ready" and self.claimer.serves(hint.name):
            self.bell.ring_from_thread(Reason.HINT, hint.name)
        elif hint.kind == "told":
            self.leases.ask(UUID(hint.name))

    def _rescued(self, settlements: list[Settlement]) -> None:
        self.events.rescued(settlements)
        self.bell.ring(Reason.LOOK)

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


def _interrupt(attempt: Attempt, renewal: Renewal) -> None:
    """Its lease is lost, or someone has cancelled the job."""
    if renewal.expires_at is None:
        attempt.interrupt(Stop.LEASE_LOST, renewal.reason)
    elif renewal.cancel_requested:
        attempt.interrupt(Stop.CANCEL, "cancelled while it ran")
