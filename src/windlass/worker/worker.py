"""The worker: a pump claims jobs into a buffer, slots run them, an outbox writes their outcomes.

bell ──▶ pump ── claim ──▶ buffer ──▶ slots ── execute ──▶ outbox ── settle ──▶ outcomes ──▶ bell
            ledger: every limit        leases: a thread that renews the leases of all attempts
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from uuid import UUID

from ..app import Queues, Windlass
from ..attempt import Attempt
from ..duration import Duration, to_seconds
from ..errors import InvalidInput, StoreUnavailable
from ..identity import Identity
from ..logs import Log
from ..outcome import Settlement
from ..stores.store import WorkerInfo
from ..stores.urls import without_password
from ..stores.wakeup import Hint
from .bell import Bell, Reason
from .buffer import Buffer
from .claimer import Claimer
from .events import Events
from .executor import Executor
from .leases import Leases, interrupt_in
from .ledger import Ledger
from .loops import keep_on
from .maintenance import Maintenance
from .outbox import BYTES_WAITING, ROWS_WAITING
from .outcomes import Outcomes, Tally
from .processes import refuse_in_child
from .pump import Pump
from .queues import queue_limits
from .scheduler import Scheduler
from .shutdown import shut_down, until_end
from .slots import Attempts, Slots
from .starting import Starting
from .stopping import Stopping
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
        self.ledger = Ledger(
            concurrency, self.queues, max_jobs=max_jobs, unwritten_rows=ROWS_WAITING, unwritten_bytes=BYTES_WAITING
        )
        self.tally = Tally()
        self.report: Callable[..., None] | None = None
        self.alone = False  # whether its event loop is there for nothing else
        self.watchdog: Watchdog | None = None  # where the process is to end with the worker
        self.left_behind = 0  # attempts that did not end in time, or whose outcome could not be written
        self.has_parts = False  # a shutdown has to end them
        self.stop_listening: Callable[[], None] = lambda: None
        self._task: asyncio.Task[int] | None = None

    async def run(self) -> int:
        """Work until stopped (or idle, or `max_jobs` were run): how many jobs were run."""
        helpers: list[asyncio.Task[None]] = []
        try:
            if await self._opened():
                self.slots.start()
                helpers += self._start_helpers()
                await self._until_one_ends(helpers)
        finally:
            if helpers:
                self._say_if_done()
            await shut_down(self, helpers)
        return self.started

    def _start_helpers(self) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(keep_on(work, is_over), name=f"windlass {name}")
            for name, work, is_over in (
                ("watch", lambda: until_end(self), lambda: self.attempts.closed),
                ("pump", self.pump.run, lambda: self.claimer.closed),
                ("outbox", self.outbox.run, lambda: self.attempts.closed),
                ("maintenance", self.maintenance.run, lambda: self.attempts.closed),
                ("scheduler", self.scheduler.run, lambda: self.attempts.closed),
            )
        ]

    async def _until_one_ends(self, helpers: list[asyncio.Task[None]]) -> None:
        wait = partial(asyncio.wait, helpers, return_when=asyncio.FIRST_COMPLETED)
        await keep_on(wait, lambda: not self.alone)
        for task in helpers:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    def _say_if_done(self) -> None:
        """A supervisor replaces a process that has ended, unless the process had nothing left to do."""
        enough = self.ledger.reached_max_jobs
        if self.report is not None and self.until_idle and not enough and not self.stopping.asked.is_set():
            self.report(done=True)

    async def _opened(self) -> bool:
        """False if the worker is stopped before its store has answered."""
        opening, stopped = asyncio.create_task(self._open()), asyncio.create_task(self.stopping.asked.wait())
        try:
            await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:  # also if this task is cancelled: a worker that opens alone would run without an end
            stopped.cancel()
            is_open = opening.done()
            if not is_open:
                opening.cancel()
                await asyncio.wait([opening], timeout=1.0)
        if is_open:
            await opening
        return is_open

    async def _open(self) -> None:
        refuse_in_child()
        await self.app.aprepare()
        self._make_parts()
        await self.scheduler.open()
        try:
            await self.maintenance.beat()  # before its first job, so that every job's worker is on the list of workers
        except StoreUnavailable as error:
            log.warning("the first heartbeat failed: %s", error, extra={"worker": self.identity.name})
        self.leases.start()
        if self.report is not None:
            self.report(ready=True)
        self.stop_listening = self.app.store.wakeup.listen(self._heard)
        serves = "all queues" if self.queues is None else ", ".join(self.queues)
        log.info(
            "worker %s serves %s, %d jobs at once, of %s", self.identity.name, serves, self.concurrency,
            without_password(self.app.url), extra={"worker": self.identity.name},
        )  # fmt: skip

    def _make_parts(self) -> None:
        name = self.identity.name
        self.bell = Bell()
        self.buffer = Buffer(self.ledger, self.bell)
        self.events = Events(self.app, name)
        self.executor = Executor(self.app)
        self.starting = Starting(self.app, self.executor.execute)
        self.leases = Leases(self.app, interrupt_in(asyncio.get_running_loop()), self.report)
        self.claimer = Claimer(self.app, self.buffer, self.leases, self.events, name, self.queues)
        self.outcomes = Outcomes(self.claimer, self.tally, self.events, self.poll_seconds)
        self.attempts = Attempts(self.claimer, self.outcomes, self.events, self.stopping)
        self.outbox = self.attempts.outbox
        self.slots = Slots(self.buffer, self.executor.execute, self.starting.execute, self.attempts)
        self.pump = Pump(
            self.claimer, self.bell, self.attempts.give_back, poll_seconds=self.poll_seconds, until_idle=self.until_idle
        )
        self.maintenance = Maintenance(
            self.app, self.describe, self._rescued, self.events.expired, self.rescue_seconds, lambda: self.started
        )
        self.scheduler = Scheduler(self.app, lambda: self.bell.ring(Reason.LOOK), self.poll_seconds)
        self.has_parts = True

    def stop(self) -> None:
        """Claim no more, give back jobs that were not started, let the others end (within `grace`). Again: at once."""
        if self.stopping.asked.is_set():
            self.stopping.hurry_up()
        self.stopping.begin()

    # How it stands

    @property
    def running(self) -> set[Attempt]:
        return self.attempts.running if hasattr(self, "attempts") else set()

    @property
    def leaves_nothing(self) -> bool:
        """It has run no job, and holds none: if the process ended now, no job would wait for its lease to end."""
        is_open = hasattr(self, "outbox")
        is_clean = not self.started and self.ledger.is_empty and not self.left_behind
        return is_clean and not (is_open and (self.claimer.unanswered or not self.outbox.is_empty))

    @property
    def started(self) -> int:
        return self.ledger.started

    @property
    def completed(self) -> int:
        return self.tally.completed

    @property
    def failed(self) -> int:
        return self.tally.failed + self.tally.cancelled

    @property
    def retried(self) -> int:
        return self.tally.retried

    # News from outside

    def _heard(self, hint: Hint | None) -> None:
        """On the listener's thread. None: something has changed, and the store cannot say what."""
        if hint is None:
            self.leases.ask_all()
            self.scheduler.heard(None)
            self.bell.ring_from_thread(Reason.HINT)
        elif hint.kind == "ready" and self.claimer.serves(hint.name):
            self.bell.ring_from_thread(Reason.HINT, hint.name)
        elif hint.kind == "told":
            self.leases.ask(UUID(hint.name))
        elif hint.kind == "scheduled":
            self.scheduler.heard(hint)

    def _rescued(self, settlements: list[Settlement]) -> None:
        self.events.rescued(settlements)
        self.bell.ring(Reason.ENDED)
        self.bell.ring(Reason.LOOK)

    def describe(self) -> WorkerInfo:
        queues = None if self.queues is None else list(self.queues)
        return WorkerInfo(
            name=self.identity.name, host=socket.gethostname(), pid=os.getpid(), queues=queues,
            types=sorted(self.app.tasks), concurrency=self.concurrency, running=len(self.running),
        )  # fmt: skip

    async def __aenter__(self) -> Worker:
        self._task = asyncio.create_task(self.run(), name="windlass worker")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._task is not None:
            await self._task
