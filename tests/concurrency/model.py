"""The queue as plain Python: what every store has to do, in the fewest words.

Time is the store's, as near as it matters: whatever is waited for here ends half a minute away from every moment at
which something is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from windlass.job import Job, NewJob
from windlass.lifecycle import CANCELLED, FAILED, FINISHED, LIVE, PENDING, RUNNING, State, allows
from windlass.outcome import Settlement
from windlass.stores.store import Counts, Reason

Key = tuple[str, str]


@dataclass
class ModelJob:
    id: UUID
    queue: str
    tenant: str
    priority: int
    input: str
    run_at: datetime
    expires_at: datetime | None
    max_attempts: int
    keep_seconds: int
    key: Key | None
    until: str | None
    holds_key: bool
    state: State = PENDING
    attempt: int = 0
    token: UUID | None = None
    lease_ends: datetime | None = None
    cancel_requested: bool = False
    purge_at: datetime | None = None
    settled: dict[UUID, State] = field(default_factory=dict)  # what was accepted from whom, as long as it is known

    @property
    def order(self) -> tuple[int, datetime, UUID]:
        return -self.priority, self.run_at, self.id

    def is_last(self, attempt: int) -> bool:
        return attempt >= self.max_attempts


class Taken(Exception):
    """The key belongs to another, and the job asked to be told so."""


class Model:
    def __init__(self) -> None:
        self.offset = timedelta()
        self.jobs: dict[UUID, ModelJob] = {}
        self.kept_keys: dict[Key, tuple[UUID, datetime | None]] = {}
        self.paused: set[str] = set()

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    # Enqueueing

    def enqueue(self, batch: Sequence[NewJob]) -> list[tuple[UUID, bool]]:
        """(id, whether it was created) for each. Of those in a batch that share a key, the others follow the first."""
        before = deepcopy((self.jobs, self.kept_keys))
        leaders: dict[tuple[Key, bool], UUID] = {}
        try:
            return [self._add(new, leaders) for new in batch]
        except Taken:
            self.jobs, self.kept_keys = before
            raise

    def _add(self, new: NewJob, leaders: dict[tuple[Key, bool], UUID]) -> tuple[UUID, bool]:
        key = (new.tenant, new.unique_key) if new.unique_key else None
        kept = new.unique_until in ("forever", "window")
        holder = None
        if key is not None and new.id not in self.jobs:
            holder = leaders.get((key, kept)) or self.holder(key, kept)
        if holder is not None:
            answer = self._yield_to(holder, new), False
        elif new.id in self.jobs:
            answer = new.id, False
        else:
            answer = self._create(new, key, kept), True
        if key is not None:
            leaders.setdefault((key, kept), answer[0])
        return answer

    def _create(self, new: NewJob, key: Key | None, kept: bool) -> UUID:
        if key and kept:
            window = new.window_seconds
            self.kept_keys[key] = new.id, None if window is None else self.now + timedelta(seconds=window)
        self.jobs[new.id] = ModelJob(
            id=new.id,
            queue=new.queue,
            tenant=new.tenant,
            priority=-new.rank,
            input=new.input,
            run_at=self.now + timedelta(seconds=new.delay_seconds),
            expires_at=self._expiry(new),
            max_attempts=new.max_attempts or 20,
            keep_seconds=new.keep_seconds if new.keep_seconds is not None else 7 * 86_400,
            key=key,
            until=new.unique_until,
            holds_key=key is not None and not kept,
        )
        return new.id

    def _expiry(self, new: NewJob) -> datetime | None:
        return None if new.expires_seconds is None else self.now + timedelta(seconds=new.expires_seconds)

    def holder(self, key: Key, kept: bool) -> UUID | None:
        if not kept:
            return next((job.id for job in self.jobs.values() if job.holds_key and job.key == key), None)
        id, ends = self.kept_keys.get(key, (None, None))
        return None if ends is not None and ends <= self.now else id

    def _yield_to(self, id: UUID, new: NewJob) -> UUID:
        if new.on_conflict == "raise":
            raise Taken
        holder = self.jobs.get(id)
        if new.on_conflict == "replace" and holder is not None and holder.holds_key and holder.state == PENDING:
            holder.input, holder.priority = new.input, -new.rank
            holder.run_at = self.now + timedelta(seconds=new.delay_seconds)
            holder.expires_at = self._expiry(new)
        return id

    # A job's way

    def due(self, queue: str) -> list[ModelJob]:
        if queue in self.paused:
            return []
        late = {job.id for job in self.too_late()}
        waiting = [job for job in self.jobs.values() if job.queue == queue and job.state == PENDING]
        waiting = [job for job in waiting if job.id not in late]
        return sorted((job for job in waiting if job.run_at <= self.now), key=lambda job: job.order)

    def claimable(self, queue: str, limit: int, prefetch: bool) -> list[ModelJob]:
        return [job for job in self.due(queue) if not (prefetch and job.is_last(job.attempt + 1))][:limit]

    def claim(self, jobs: Sequence[ModelJob], token: UUID, lease_seconds: float) -> None:
        for job in jobs:
            job.state, job.token, job.attempt = RUNNING, token, job.attempt + 1
            job.lease_ends = self.now + timedelta(seconds=lease_seconds)
            job.holds_key = job.holds_key and job.until != "claimed"

    def holds(self, id: UUID, token: UUID) -> bool:
        job = self.jobs.get(id)
        return job is not None and job.state == RUNNING and job.token == token

    def refusal(self, settlement: Settlement) -> Reason | None:
        """Why a settlement is refused; None where it is accepted, or was before."""
        job = self.jobs.get(settlement.id)
        if job is None:
            return "not found"
        assert settlement.token is not None
        if self.holds(settlement.id, settlement.token):
            return None
        before = job.settled.get(settlement.token)
        if before == settlement.state or (before == CANCELLED and settlement.state == PENDING):
            return None
        return "already finished" if job.state in FINISHED else "taken by another"

    def settle(self, settlement: Settlement, *, rescued: bool = False) -> None:
        """An accepted one, of whoever holds the job, or of a rescuer."""
        job = self.jobs[settlement.id]
        assert job.token is not None
        state = CANCELLED if settlement.state == PENDING and job.cancel_requested else settlement.state
        job.settled = {} if rescued else {job.token: state}
        if state in FINISHED:
            self._finish(job, state)
            return
        job.state, job.token, job.lease_ends = PENDING, None, None
        job.attempt -= settlement.refund
        if settlement.delay_seconds is not None:
            job.run_at = self.now + timedelta(seconds=settlement.delay_seconds)

    def _finish(self, job: ModelJob, state: State) -> None:
        job.state, job.token, job.lease_ends = state, None, None
        job.holds_key, job.cancel_requested = False, False
        if job.keep_seconds == 0:
            del self.jobs[job.id]
        job.purge_at = None if job.keep_seconds < 0 else self.now + timedelta(seconds=job.keep_seconds)

    def renew(self, id: UUID, token: UUID, seconds: float) -> bool:
        if self.holds(id, token):
            self.jobs[id].lease_ends = self.now + timedelta(seconds=seconds)
            return True
        return False

    def expired(self) -> list[ModelJob]:
        now = self.now
        return [job for job in self.jobs.values() if job.lease_ends is not None and job.lease_ends < now]

    def too_late(self) -> list[ModelJob]:
        now = self.now
        waiting = [job for job in self.jobs.values() if job.state == PENDING]
        return [job for job in waiting if job.expires_at is not None and job.expires_at <= now]

    def expire(self, job: ModelJob) -> None:
        job.settled = {}
        self._finish(job, CANCELLED)

    # What people do: whether it was done, and the state that they are told of

    def act(self, event: str, id: UUID) -> tuple[bool, State | None]:
        job = self.jobs.get(id)
        if job is None:
            return False, None
        acts: dict[str, Callable[[ModelJob], tuple[bool, State | None]]] = {
            "cancel": self._cancel,
            "bring back": self._bring_back,
            "run now": self._run_now,
            "delete": self._delete,
        }
        return acts[event](job) if allows(event, job.state) else (False, job.state)  # type: ignore[arg-type]

    def _cancel(self, job: ModelJob) -> tuple[bool, State | None]:
        if job.state == RUNNING:
            job.cancel_requested = True
            return True, RUNNING
        job.settled = {}
        self._finish(job, CANCELLED)
        return True, CANCELLED

    def _bring_back(self, job: ModelJob) -> tuple[bool, State | None]:
        if job.until == "finished" and job.key is not None:
            if self.holder(job.key, kept=False) is not None:
                return False, job.state
            job.holds_key = True
        job.state, job.attempt, job.run_at, job.settled, job.expires_at = PENDING, 0, self.now, {}, None
        return True, PENDING

    def _run_now(self, job: ModelJob) -> tuple[bool, State | None]:
        job.run_at = min(job.run_at, self.now)
        return True, PENDING

    def _delete(self, job: ModelJob) -> tuple[bool, State | None]:
        del self.jobs[job.id]
        self.kept_keys = {key: kept for key, kept in self.kept_keys.items() if kept[0] != job.id}
        return True, job.state

    # Upkeep

    def to_prune(self) -> tuple[set[UUID], set[UUID]]:
        """Those that must go now, and those that may: what is kept for days goes when its last day is over."""
        now = self.now
        finished = [job for job in self.jobs.values() if job.state in FINISHED and job.purge_at is not None]
        over = [job for job in finished if job.purge_at is not None and job.purge_at <= now]
        may_wait = timedelta(days=1)
        late = {job.id for job in over if job.keep_seconds >= 86_400 and job.purge_at and now - job.purge_at < may_wait}
        return {job.id for job in over} - late, late

    # Comparing

    def check(self, found: Sequence[Job], counts: Counts, paused: Sequence[str]) -> None:
        assert {job.id for job in found} == self.jobs.keys()
        assert len(found) == len(self.jobs), "a job is there twice"
        for job in found:
            mine = self.jobs[job.id]
            theirs = (job.state, job.attempt, job.queue, job.tenant, job.priority, job.input_json)
            assert theirs == (mine.state, mine.attempt, mine.queue, mine.tenant, mine.priority, mine.input)
            assert job.cancel_requested == mine.cancel_requested
            assert job.unique_key == (mine.key[1] if mine.key else None)
            if job.state in LIVE:
                assert job.run_at == mine.run_at
            assert (job.lease_expires_at is not None) == (job.state == RUNNING)
            assert (job.finished_at is not None) == (job.state in FINISHED)
            assert job.error is not None or job.state != FAILED
        expected = Counter((job.queue, job.state) for job in self.jobs.values())
        assert tallied(counts) == expected
        assert sorted(self.paused) == list(paused)


def tallied(counts: Counts) -> Counter[tuple[str, State]]:
    found: Counter[tuple[str, State]] = Counter()
    for tally in counts.tallies:
        found[tally.queue, tally.state] += tally.count
    return found
