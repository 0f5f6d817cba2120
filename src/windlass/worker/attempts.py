"""The attempts of a worker, from the slot in which they begin to the outbox in which they end."""

from __future__ import annotations

from ..attempt import Attempt, Stop
from ..logs import Log
from ..outcome import Settlement, give_back
from ..stores.store import Refusal, may_be_handed_over
from .bell import Reason
from .claimer import Claimer
from .cursor import Unanswered
from .events import Events
from .outbox import NextJob, Outbox
from .outcomes import Outcomes
from .stopping import Stopping
from .writer import Ended

log = Log("windlass.worker")


class Attempts:
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
        self.leases.let_go(attempt for attempt, _ in batch)
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
