"""After outcomes are written: count them, log them, tell the hooks, and ring where jobs are ready next."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from .. import lifecycle
from ..attempt import Attempt
from ..job import Job, JobError, NewJob
from ..lifecycle import CANCELLED, COMPLETED, PENDING
from ..logs import Log, job_fields
from ..outcome import Settlement, is_due_again
from ..stores.store import Refusal
from ..stores.wakeup import Hint
from .bell import Reason
from .claimer import Claimer
from .events import Events
from .unwritten import Ended

log = Log("windlass.worker")


@dataclass
class Tally:
    """Attempts of this worker, by their outcome."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0


class Outcomes:
    def __init__(self, claimer: Claimer, tally: Tally, events: Events, poll_seconds: float) -> None:
        self.claimer, self.tally, self.events, self.poll_seconds = claimer, tally, events, poll_seconds
        self.app, self.bell = claimer.app, claimer.bell

    def written(self, batch: list[Ended], refusals: list[Refusal], *, has_next: bool) -> None:
        """`has_next`: this worker has the next job of the chain already."""
        if not has_next:
            self.bell.ring(Reason.ENDED)
        talkative = log.isEnabledFor(logging.DEBUG)
        quiet = not refusals and not talkative and "completed" not in self.app.hooks
        if quiet and all(
            one.state == COMPLETED and one.continues is None and not attempt.job.order_key for attempt, one in batch
        ):
            self.tally.completed += len(batch)
            return
        if not has_next:
            self._continue([one.continues for _, one in batch if one.continues is not None])
        if any(attempt.job.order_key for attempt, _ in batch):
            self.bell.ring(Reason.LOOK)
        # By the token, too: a batch may have the outcomes of two attempts at one job.
        refused = {(refusal.id, refusal.token): refusal.reason for refusal in refusals}
        for attempt, settlement in batch:
            if (reason := refused.get((settlement.id, settlement.token))) is not None:
                fields = job_fields(attempt.job)
                log.warning("job %s: the outcome was refused: %s", settlement.id, reason, extra=fields)
                if attempt.unconfirmed_settlement is None:  # else its handler may have settled the job itself
                    self.events.lease_lost(attempt)
                continue
            if talkative or settlement.error is not None:
                log_outcome(attempt.job, settlement)
            self._count(settlement)
            self.events.ended(attempt, settlement)
        pending = [one for one in batch if one[1].state == PENDING and (one[1].id, one[1].token) not in refused]
        self._ring_for_retries(pending)
        self._announce_given_back(pending)

    def settled_by_handler(self, attempt: Attempt, settlement: Settlement) -> None:
        """The handler has settled the job in its own transaction."""
        self._count(settlement)
        self.events.ended(attempt, settlement)
        self.bell.ring(Reason.ENDED)
        self.bell.ring(Reason.LOOK)

    def _count(self, settlement: Settlement) -> None:
        if settlement.state == COMPLETED:
            self.tally.completed += 1
        elif settlement.state == PENDING:
            self.tally.retried += settlement.error is not None
        elif settlement.state == CANCELLED:
            self.tally.cancelled += 1
        else:
            self.tally.failed += 1

    def _continue(self, jobs: list[NewJob]) -> None:
        """The next jobs of chains: this worker looks for them first, or other workers are notified."""
        elsewhere = set[str]()
        for job in jobs:
            served = job.queue in self.claimer.cursors
            self.bell.ring(Reason.CHAIN, job.queue if served else None)
            if not served or job.type not in self.app.tasks:
                elsewhere.add(job.queue)
        self._notify(elsewhere)

    def _announce_given_back(self, pending: list[Ended]) -> None:
        """Jobs that are due again at once: an idle worker would find them only when it polls."""
        self._notify({attempt.job.queue for attempt, settlement in pending if is_due_again(settlement)})

    def _notify(self, queues: set[str]) -> None:
        if queues and self.app.notify:
            self.app.store.wakeup.send([Hint("ready", queue) for queue in sorted(queues)])

    def _ring_for_retries(self, batch: list[Ended]) -> None:
        """When the first one of each queue is due, if that is before the next poll."""
        soonest: dict[str, float] = {}
        for attempt, settlement in batch:
            delay = settlement.delay_seconds or 0.0
            soonest[attempt.job.queue] = min(delay, soonest.get(attempt.job.queue, delay))
        for queue, delay in soonest.items():
            if delay < self.poll_seconds:
                asyncio.get_running_loop().call_later(delay, self.bell.ring, Reason.HINT, queue)


def log_outcome(job: Job, settlement: Settlement) -> None:
    """After it was written. The error's message alone: its traceback is kept with the job."""
    fields = job_fields(job)
    if settlement.error is None:
        how = "completed" if settlement.state == lifecycle.COMPLETED else "sent back"
        log.debug("job %s (%s) was %s", job.id, job.type, how, extra=fields)
        return
    error = msgspec.json.decode(settlement.error, type=JobError)
    match settlement.state:
        case lifecycle.CANCELLED:
            log.info("job %s (%s) was cancelled: %s", job.id, job.type, error, extra=fields)
        case lifecycle.PENDING:
            again = "job %s (%s) failed in attempt %d and is tried again in %s s: %s"
            delay = settlement.delay_seconds or 0.0
            seconds = f"{delay:.3g}" if delay < 100 else f"{delay:,.0f}"
            log.warning(again, job.id, job.type, job.attempt, seconds, error, extra=fields)
        case _:
            failed = "job %s (%s) has failed, in attempt %d: %s (its traceback: windlass jobs show %s jobs:app)"
            log.error(failed, job.id, job.type, job.attempt, error, job.id, extra=fields)
