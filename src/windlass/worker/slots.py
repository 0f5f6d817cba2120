"""Slots: tasks that run one attempt after another; and the attempts, from their slot to the outbox.

A handler shares its slot's task, which saves a task for each job. A task whose cancellation or context variables a
handler has touched is of no use to the next job: it ends, and another takes its place. So does one that dies.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections.abc import Awaitable, Callable
from typing import cast

from ..attempt import Attempt, Stop, current
from ..job import JobError, is_last_attempt
from ..logs import Log, job_fields
from ..outcome import Described, Settlement, decide, give_back, name_of
from ..stores.store import Refusal, may_be_handed_over
from .bell import Reason
from .buffer import Buffer
from .claimer import Claimer
from .events import Events
from .hand_over import NextJob
from .loops import SlotTask
from .outbox import Outbox
from .outcomes import Outcomes
from .stopping import Stopping
from .unanswered import Unanswered
from .unwritten import Ended

log = Log("windlass.worker")

BREATH = 64  # jobs that a slot runs before it lets the others of the loop have their turn

Execute = Callable[[Attempt, SlotTask, float], Awaitable[Settlement | None]]


class Attempts:
    """The attempts of a worker, from their slot to the outbox."""

    def __init__(self, claimer: Claimer, outcomes: Outcomes, events: Events, stopping: Stopping) -> None:
        self.claimer, self.outcomes, self.events, self.stopping = claimer, outcomes, events, stopping
        self.ledger, self.bell, self.buffer, self.leases = claimer.ledger, claimer.bell, claimer.buffer, claimer.leases
        self.hooks = claimer.app.hooks
        self.outbox = Outbox(claimer.app, self.ledger, self.bell, self.written, self.lost, events, claimer.name)
        self.running: set[Attempt] = set()
        self.closed = False  # the worker has ended

    def begin(self, attempt: Attempt) -> None:
        """Its handler is about to be called."""
        self.running.add(attempt)
        if attempt.place is not None:
            attempt.place.start()
        if self.hooks:
            self.events.started(attempt)

    def end(self, attempt: Attempt, settlement: Settlement | None) -> None:
        attempt.ended = True  # a thread that has outlived its handler cannot settle the job any more
        self.running.discard(attempt)
        self._release(attempt)
        if settlement is None:
            self._end_without_outcome(attempt)
        elif self.closed:
            log.warning("job %s: ended after its worker: its outcome is not written", attempt.job.id)
        else:
            next_job = settlement.continues
            if next_job is not None and self.outbox.is_empty and may_be_handed_over(next_job):
                attempt.next_place = self.claimer.place_for(next_job)
            self.outbox.add(attempt, settlement)

    def _end_without_outcome(self, attempt: Attempt) -> None:
        """Another worker has the job, or the handler has settled it itself."""
        self.leases.let_go([attempt])
        if attempt.settled and attempt.unconfirmed_settlement is not None:
            self.outcomes.settled_by_handler(attempt, attempt.unconfirmed_settlement)
        elif attempt.stop is Stop.LEASE_LOST:
            self.events.lease_lost(attempt)

    def give_back(self, attempts: list[Attempt]) -> None:
        """Jobs that were claimed and not started. No attempt is spent."""
        for attempt in attempts:
            self._release(attempt)
            self.outbox.add(attempt, give_back(attempt.job, attempt.token))

    def _release(self, attempt: Attempt) -> None:
        if attempt.place is not None:
            attempt.place.release()
        if self.ledger.limits and attempt.job.queue in self.ledger.limits:
            self.bell.ring(Reason.LOOK)  # its queue has room again

    def written(self, batch: list[Ended], refusals: list[Refusal], next_job: NextJob | None) -> None:
        """The store has taken these outcomes. `next_job`: this worker has claimed it with them."""
        self.leases.let_go([attempt for attempt, _ in batch])
        if next_job is not None:
            attempt = self.claimer.hold_next(next_job.job, next_job.token, next_job.began, next_job.place)
            if self.stopping.asked.is_set():
                self.give_back([attempt])
            else:
                self.buffer.put([attempt])
        if batch:
            self.outcomes.written(batch, refusals, has_next=next_job is not None)

    def lost(self, claim: Unanswered) -> None:
        """The pump looks for the job of this claim, as for those of its own claims."""
        self.claimer.unanswered.append(claim)
        self.bell.ring(Reason.LOOK)


class Slots:
    """`execute` runs an attempt. `prepare` does so for a job that has blockers, or whose last attempt it is."""

    def __init__(self, buffer: Buffer, execute: Execute, prepare: Execute, attempts: Attempts) -> None:
        self.buffer, self.execute, self.prepare = buffer, execute, prepare
        self.attempts, self.ledger = attempts, buffer.ledger
        self.ending = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._context.run(current.set, None)
        self._variables = [(variable, value) for variable, value in self._context.items() if variable is not current]

    def start(self) -> None:
        for _ in range(self.ledger.slots):
            self._add()

    def _add(self) -> None:
        loop, context = asyncio.get_running_loop(), self._context.copy()
        task = SlotTask(self._run(), loop=loop, name="windlass slot", context=context)
        self.tasks.add(task)
        task.add_done_callback(self._replace)

    def _replace(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a slot died and is replaced: %r", error, exc_info=error)
        if not self.ending:
            self._add()

    async def end(self, within: float) -> None:
        """No slot takes another job; what still runs is cancelled."""
        self.ending = True
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=within)

    async def _run(self) -> None:
        """Until its task is of no use to another job, or the worker ends."""
        ledger, buffer, execute, count = self.ledger, self.buffer, self.execute, 0
        task = cast("SlotTask", asyncio.current_task())
        while not self.ending:
            if ledger.is_full:
                await self.attempts.outbox.room()
            attempt = buffer.pop() or await buffer.take()
            began = time.perf_counter()
            try:
                self.attempts.begin(attempt)
                job = attempt.job
                run = execute if job.blockers_left is None and not is_last_attempt(job) else self.prepare
                settlement = await run(attempt, task, began)
            except BaseException as error:  # the executor's own, or what even it cannot describe
                settlement = _settle_unrun(attempt, error)
            attempt.task = None
            attempt.ran_seconds = seconds = time.perf_counter() - began
            ledger.ran(seconds)
            self.attempts.end(attempt, settlement)
            if task.cancelling() or self._has_changed(contextvars.copy_context()):
                return
            count += 1
            if count % BREATH == 0:
                await asyncio.sleep(0)

    def _has_changed(self, context: contextvars.Context) -> bool:
        """Whether a handler has set a variable. Compared by identity: to compare values might run code of theirs."""
        if len(context) != len(self._variables) + 1:  # beside the attempt's own
            return True
        for variable, value in self._variables:  # noqa: SIM110 - for each job: a loop is quicker than any()
            if context.get(variable) is not value:
                return True
        return False


def _settle_unrun(attempt: Attempt, error: BaseException) -> Settlement | None:
    """The executor settles all that a handler does: this ended before its handler was called, or is a fault of ours."""
    job = attempt.job
    if attempt.stop is Stop.LEASE_LOST:
        return None
    # No isinstance, no traceback: an error's class may raise as it is looked at.
    if attempt.stop is Stop.SHUTDOWN or issubclass(type(error), asyncio.CancelledError):
        return give_back(job, attempt.token)
    described = Described(JobError(name_of(error), "the worker could not tell how the attempt ended"))
    log.error(
        "job %s: its attempt ended in an error of the worker's: %s", job.id, described.error, extra=job_fields(job)
    )
    return decide(job, attempt.token, described, random=random.random)
