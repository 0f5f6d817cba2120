"""The claimer: takes jobs from the store for this worker, and finds those of a claim whose answer was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from ..app import Windlass
from ..attempt import Attempt
from ..job import Job, NewJob, is_last_attempt
from ..logs import Log
from ..stores.store import ClaimRequest, Position
from .bell import ALWAYS, Reasons
from .buffer import Buffer
from .events import Events
from .kept_slots import KeptSlots
from .leases import Leases
from .ledger import Place, release
from .turn import LAST_ATTEMPTS_SECONDS
from .unanswered import Unanswered

log = Log("windlass.worker")

FRESH_SECONDS = 0.1
TIMES = 10
ROUND_SECONDS = 0.1  # for claims from many queues in one turn


@dataclass
class QueueCursor:
    """Where the last claim from a queue ended.

    Dead index entries pile up before the first live job while an old snapshot is open on the server: a claim that
    starts at the cursor skips them. Claims start from the very beginning often enough that late commits and higher
    priorities do not starve.
    """

    queue: str
    seen_at: float = 0.0  # when a look last saw a job in it
    after: Position | None = None
    stuck: bool = False  # this worker cannot run any job that is due there
    hinted: bool = False  # a hint has named the queue since
    claimed_at: float = 0.0  # when a claim from it was last sent
    slots_served_at: float = 0.0  # when a claim last took any job, also last attempts
    last_attempts: int = 0  # that it took
    kept_at: float = 0.0  # when slots were last kept for the queue
    _from_start_at: float = 0.0
    _took: float = 0.0

    def turn(self) -> tuple[bool, float]:
        """The lower, the sooner its turn in a round. A hint says nothing new of a queue that is known to be long."""
        return not (self.hinted and self.after is None), self.claimed_at

    def is_worth_a_claim(self) -> bool:
        hinted, self.hinted = self.hinted, False
        return hinted or not self.stuck

    def wake(self) -> None:
        """A hint names this queue. The job may be for later, so the queue is claimed from until that proves useless."""
        self.hinted, self.stuck = True, False

    def is_long(self, now: float) -> bool:
        """The last claim found as many jobs as it wanted. Not when it is time to look for last attempts."""
        return self.after is not None and now - self.slots_served_at < LAST_ATTEMPTS_SECONDS

    def position(self, now: float) -> Position | None:
        stale = now - self._from_start_at > max(FRESH_SECONDS, TIMES * self._took)
        return None if stale else self.after

    def claimed(self, jobs: list[Job], wanted: int, began: float, now: float, *, from_start: bool) -> None:
        if from_start:
            self._from_start_at, self._took = now, now - began
        if len(jobs) < wanted:
            self.after = None
        else:
            last = jobs[-1]
            self.after = Position(-last.priority, last.run_at, last.id)
        if jobs:
            self.stuck, self.seen_at = False, now


class Claimer:
    def __init__(
        self, app: Windlass, buffer: Buffer, leases: Leases, events: Events, name: str,
        queues: Mapping[str, int | None] | None,
    ) -> None:  # fmt: skip
        self.app, self.buffer, self.leases, self.events, self.name = app, buffer, leases, events, name
        self.ledger, self.bell = buffer.ledger, buffer.bell
        self.closed = False
        self.nothing_waits = False  # the last look claimed all jobs that it found
        self.all_queues = queues is None
        self.cursors = {queue: QueueCursor(queue) for queue in queues or ()}
        self.kept = KeptSlots(buffer, self.cursors)
        self.unanswered: list[Unanswered] = []

    def serves(self, queue: str) -> bool:
        return self.all_queues or queue in self.cursors

    def cursor(self, queue: str) -> QueueCursor:
        if queue not in self.cursors:
            self.cursors[queue] = QueueCursor(queue, seen_at=time.monotonic())
        return self.cursors[queue]

    def wake(self, reasons: Reasons) -> None:
        """Hints came for these queues, or for one that a hint did not name."""
        for queue in filter(self.serves, reasons.hinted):
            self.cursor(queue).wake()
        for cursor in self.cursors.values() if reasons.any_queue else ():
            cursor.hinted = True

    async def fill(self, queues: Iterable[str]) -> int:
        """Claim from each of these queues: how many jobs."""
        return sum([await self._fill_from(queue) for queue in queues if self.cursor(queue).is_worth_a_claim()])

    async def fill_round(self, queues: Iterable[str], done: Iterable[str]) -> tuple[int, bool]:
        """Claim from the queues in turn, without those that are `done` and of which no more was heard: how many jobs,
        and whether all queues had their turn. First come short queues that a hint has named, then those that were
        claimed from the longest time ago: a busy queue must not starve the others. While many queues have work, the
        round ends early: hints and admissions wait for it."""
        jobs, until = 0, time.monotonic() + ROUND_SECONDS
        for cursor in sorted(map(self.cursor, queues), key=self._turn):
            if cursor.queue in done and not cursor.hinted and not self.kept.is_for(cursor.queue):
                continue
            if jobs and time.monotonic() > until:
                return jobs, False
            if self.ledger.room(cursor.queue) > 0 and cursor.is_worth_a_claim():
                jobs += await self._fill_from(cursor.queue) + await self._fill_kept()
        return jobs, True

    async def _fill_kept(self) -> int:
        """A slot that is kept for last attempts need not wait until the round ends."""
        self.kept.keep_more(time.monotonic())
        queue = self.ledger.kept_for
        return await self._fill_from(queue) if queue is not None and self.kept.is_for(queue) else 0

    def _turn(self, cursor: QueueCursor) -> tuple[bool, bool, float]:
        return not self.kept.is_for(cursor.queue), *cursor.turn()

    @property
    def short_queues(self) -> frozenset[str]:
        """Those of which the last claim took all jobs that it could: a new job there would start at once."""
        return frozenset(queue for queue, cursor in self.cursors.items() if cursor.after is None)

    async def _fill_from(self, queue: str) -> int:
        """For free slots any job, also a last attempt; likewise for slots that are kept for this queue. Then jobs that
        may wait in the buffer. While the queue is long, one claim serves both."""
        is_long = self.cursor(queue).is_long(time.monotonic())
        prefetched = await self._prefetch(queue) if is_long or not self.ledger.room_for_slots(queue) else None
        wanted = self.ledger.room_for_slots(queue)  # perhaps for a slot that was kept meanwhile
        if wanted <= 0 or self.closed:
            return prefetched or 0
        is_kept = self.kept.is_for(queue)  # claims ahead have passed over last attempts: look from the start
        attempts = await self.claim(queue, wanted, prefetch=False, from_start=is_kept)
        self.buffer.hand(attempts)
        last = sum(is_last_attempt(attempt.job) for attempt in attempts)
        self.kept.looked(self.cursor(queue), last, time.monotonic())
        if prefetched is None and len(attempts) == wanted:
            prefetched = await self._prefetch(queue)
        return len(attempts) + (prefetched or 0)

    async def _prefetch(self, queue: str) -> int:
        ahead = self.ledger.room_ahead(queue)
        if ahead <= 0 or self.closed:
            return 0
        attempts = await self.claim(queue, ahead, prefetch=True)
        self.buffer.put(attempts)
        return len(attempts)

    async def claim(self, queue: str, limit: int, *, prefetch: bool, from_start: bool = False) -> list[Attempt]:
        """Up to `limit` attempts, each with its place. `prefetch`: they may wait, so last attempts are left alone."""
        cursor, token, began = self.cursor(queue), uuid4(), time.monotonic()
        if not from_start:  # a claim for a kept slot is not the queue's turn
            cursor.claimed_at = began
        request = ClaimRequest(
            queue=queue,
            limit=limit,
            token=token,
            worker=self.name,
            types=self.app.task_names,
            policies=self.app.policies,
            prefetch=prefetch,
            after=None if from_start else cursor.position(began),
            begun=False,
        )
        places = self.ledger.take(queue, limit)
        unanswered = Unanswered(token, queue, began)
        self.unanswered.append(unanswered)  # until the answer is here: the server may carry it out in any case
        try:
            jobs = await self.app.arun_for_worker(lambda: self.app.store.claim(request))
            answered = time.monotonic()
            self.unanswered.remove(unanswered)
            cursor.claimed(jobs, limit, began, answered, from_start=request.after is None)
            if self.app.hooks:
                self.events.claimed(queue, len(jobs), answered - began, prefetch=prefetch)
            return self._hold(jobs, token, began, places)
        finally:
            release(places)  # those that no job has taken
            if unanswered in self.unanswered:
                unanswered.reserve(limit, self.ledger)

    def _hold(self, jobs: list[Job], token: UUID, began: float, places: list[Place]) -> list[Attempt]:
        attempts = []
        for job in jobs:
            attempt = Attempt(self.app, self.app.bind(job), token)
            attempt.place = place = places.pop()
            place.hold(len(job.input_json))
            attempts.append(attempt)
        self.leases.hold(attempts, began)
        return attempts

    # The next job of a chain

    def place_for(self, job: NewJob) -> Place | None:
        """A place for it, if this worker may run it at once: as far as it knows no other job waits, so none is passed
        over. A last attempt is not buffered."""
        if self.closed or not self.nothing_waits or self.bell.has(ALWAYS) or job.max_attempts == 1:
            return None
        if job.queue not in self.cursors or job.type not in self.app.tasks or not self.ledger.free_slots:
            return None
        return self.ledger.take(job.queue, 1)[0] if self.ledger.room_for_slots(job.queue) > 0 else None

    def hold_next(self, job: Job, token: UUID, began: float, place: Place) -> Attempt:
        """The next job of a chain, which was claimed as the one before was completed."""
        return self._hold([job], token, began, [place])[0]

    # Claims whose answers were lost

    async def adopt(self, take: Callable[[list[Attempt]], None]) -> None:
        """Find the jobs that such claims took, if they were carried out, until it is too late for that. `take` gets the
        jobs of each claim at once: the look for the next claim may fail."""
        for claim in list(self.unanswered):
            jobs = await self.app.arun_for_worker(lambda: self.app.store.adopt(claim.token))  # noqa: B023
            new = claim.found(jobs, time.monotonic())
            if new:
                log.warning(
                    "%d jobs were claimed by a claim whose answer was lost", len(new), extra={"worker": self.name}
                )
                take(self._hold(new, claim.token, claim.began, claim.places_for(len(new), self.ledger)))
            if claim.is_over(time.monotonic()):
                self.unanswered.remove(claim)
                claim.free(claim.reserved, self.ledger)
