"""The queue as plain Python: what every store has to do, in the fewest words.

Time is the store's, as near as it matters: whatever is waited for here ends half a minute away from every moment at
which something is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from uuid import UUID

from windlass.job import Job, NewJob
from windlass.lifecycle import BLOCKED, CANCELLED, COMPLETED, FAILED, FINISHED, LIVE, PENDING, RUNNING, State, allows
from windlass.outcome import Settlement
from windlass.policy import kept_seconds
from windlass.stores.store import Blocker, Counts, Reason

from .dependents import HEAD, NOT_DUE, Edge, Entanglement, Key, ModelJob


class Taken(Exception):
    """The key belongs to another, and the job asked to be told so."""


class Model(Entanglement):
    def __init__(self) -> None:
        super().__init__()
        self.kept_keys: dict[Key, tuple[UUID, datetime | None]] = {}
        self.paused: set[str] = set()

    # Enqueueing

    def enqueue(self, batch: Sequence[NewJob]) -> list[tuple[UUID, bool]]:
        """(id, whether it was created) for each. Of those in a batch that share a key, the others follow the first."""
        chains = self.chains_of(batch)
        before = deepcopy((self.jobs, self.kept_keys))
        leaders: dict[tuple[Key, bool], UUID] = {}
        try:
            return [self._add(new, leaders, chains) for new in batch]
        except Taken:
            self.jobs, self.kept_keys = before
            raise

    def _add(
        self, new: NewJob, leaders: dict[tuple[Key, bool], UUID], chains: Mapping[UUID, UUID]
    ) -> tuple[UUID, bool]:
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
            answer = self._create(new, key, kept, chains), True
        if key is not None:
            leaders.setdefault((key, kept), answer[0])
        return answer

    def _create(self, new: NewJob, key: Key | None, kept: bool, chains: Mapping[UUID, UUID]) -> UUID:
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
            chain_id=new.chain_id or new.id,
            chain_index=new.chain_index,
            order_key=new.order_key,
            arrival=self.next_number(),
            edges=[Edge(chains[blocker]) for blocker in new.blockers],
            arriving=new.state == BLOCKED,
            lane=None if new.order_key is None else NOT_DUE,
            state=new.state,
            max_attempts=new.max_attempts or 20,
            keep_seconds=new.keep_seconds,
            key=key,
            until=new.unique_until,
            holds_key=key is not None and not kept,
        )
        self.retimed.add(new.id)
        return new.id

    def _expiry(self, new: NewJob) -> datetime | None:
        return None if new.expires_seconds is None else self.now + timedelta(seconds=new.expires_seconds)

    def holder(self, key: Key, kept: bool) -> UUID | None:
        if not kept:
            return next((job.id for job in self.jobs.values() if job.holds_key and job.key == key), None)
        id, ends = self.kept_keys.get(key, (None, None))
        return None if ends is not None and ends <= self.now else id

    def _yield_to(self, id: UUID, new: NewJob) -> UUID:
        if (
            new.on_conflict == "raise" and id != new.id
        ):  # its own key can outlive it, and is the answer when it comes again
            raise Taken
        holder = self.jobs.get(id)
        if new.on_conflict == "replace" and holder is not None and holder.holds_key and holder.state == PENDING:
            holder.input, holder.priority = new.input, -new.rank
            self.set_time(holder, self.now + timedelta(seconds=new.delay_seconds))
            holder.expires_at = self._expiry(new)
        return id

    # A job's way

    def due(self, queue: str) -> list[ModelJob]:
        if queue in self.paused:
            return []
        late = {job.id for job in self.too_late()}
        waiting = [job for job in self.jobs.values() if job.queue == queue and job.state == PENDING]
        waiting = [job for job in waiting if job.id not in late and job.lane in (None, HEAD)]
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
            job.output = settlement.output if state == COMPLETED else None
            self._finish(job, state, settlement.continues)
            return
        job.state, job.token, job.lease_ends = PENDING, None, None
        job.attempt -= settlement.refund
        if settlement.delay_seconds is not None:
            self.set_time(job, self.now + timedelta(seconds=settlement.delay_seconds))

    def _finish(self, job: ModelJob, state: State, continues: NewJob | None = None) -> None:
        job.state, job.token, job.lease_ends = state, None, None
        job.holds_key, job.cancel_requested = False, False
        if continues is not None:
            self.enqueue([continues])
        elif state == COMPLETED:
            self.complete_chain(job.chain_id, job.output)
        self.promote(job.line)
        if job.keep_seconds == 0:
            del self.jobs[job.id]
        stays = kept_seconds(job.keep_seconds, state)
        job.purge_at = None if stays < 0 else self.now + timedelta(seconds=stays)

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
        waiting = [job for job in self.jobs.values() if job.state in (PENDING, BLOCKED)]
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
        job.state, job.attempt, job.settled, job.expires_at = PENDING, 0, {}, None
        self.set_time(job, self.now)
        if job.undone:
            job.state, job.arriving = BLOCKED, True
        if job.order_key is not None:
            job.lane, job.arrival = NOT_DUE, self.next_number()
        return True, job.state

    def _run_now(self, job: ModelJob) -> tuple[bool, State | None]:
        self.set_time(job, min(job.run_at, self.now))
        return True, job.state

    def delete(self, ids: Sequence[UUID]) -> list[tuple[bool, State | None]]:
        """Whole chains, and only together with those that wait for them."""
        there = {id: self.jobs[id] for id in ids if id in self.jobs}
        chains = {job.chain_id for job in there.values()}
        refused = self.refused(chains)
        gone = [job for chain in chains - refused.keys() for job in self.members(chain)]
        for job in gone:
            del self.jobs[job.id]
        for job in gone:
            self.promote(job.line)
        left = {job.id for job in gone}
        self.kept_keys = {key: kept for key, kept in self.kept_keys.items() if kept[0] not in left}
        answers: list[tuple[bool, State | None]] = []
        for id in ids:
            if id not in there:
                answers.append((False, None))
            else:
                reason = refused.get(there[id].chain_id)
                answers.append((reason is None, reason or there[id].state))
        return answers

    # Upkeep

    def to_prune(self) -> tuple[set[UUID], set[UUID]]:
        """Those that must go now, and those that may: what is kept for days goes when its last day is over."""
        now = self.now
        finished = [job for job in self.jobs.values() if job.state in FINISHED and job.purge_at is not None]
        over = [job for job in finished if job.purge_at is not None and job.purge_at <= now]
        may_wait = timedelta(days=1)
        for_days = [job for job in over if kept_seconds(job.keep_seconds, job.state) >= 86_400]
        late = {job.id for job in for_days if job.purge_at and now - job.purge_at < may_wait}
        return {job.id for job in over} - late, late

    # Comparing

    def learn(self, found: Sequence[Job], slack: timedelta) -> None:
        """When the store made jobs due, which must be about when the model did."""
        for job in found:
            mine = self.jobs.get(job.id)
            if mine is not None and job.id in self.retimed and job.state in LIVE:
                assert abs(job.run_at - mine.run_at) < slack
                mine.run_at = job.run_at
        self.retimed.clear()

    def check(self, found: Sequence[Job], counts: Counts, paused: Sequence[str]) -> None:
        assert {job.id for job in found} == self.jobs.keys()
        assert len(found) == len(self.jobs), "a job is there twice"
        for job in found:
            mine = self.jobs[job.id]
            theirs = (job.state, job.attempt, job.queue, job.tenant, job.priority, job.input_json)
            assert theirs == (mine.state, mine.attempt, mine.queue, mine.tenant, mine.priority, mine.input)
            assert job.cancel_requested == mine.cancel_requested
            assert job.unique_key == (mine.key[1] if mine.key else None)
            assert (job.chain_id, job.chain_index) == (mine.chain_id, mine.chain_index)
            assert job.order_key == mine.order_key
            assert job.output_json == (mine.output if mine.state == COMPLETED else None)
            if job.state in LIVE:
                assert job.run_at == mine.run_at
                if mine.edges and not mine.arriving:
                    assert job.blockers_left == len(mine.undone)
            assert (job.lease_expires_at is not None) == (job.state == RUNNING)
            assert (job.finished_at is not None) == (job.state in FINISHED)
            assert job.error is not None or job.state != FAILED
        expected = Counter((job.queue, job.state) for job in self.jobs.values())
        assert tallied(counts) == expected
        assert sorted(self.paused) == list(paused)

    def check_blockers(self, found: Mapping[UUID, Sequence[Blocker]]) -> None:
        for job in self.waiting_for_others():
            assert [tuple(one)[:3] for one in found[job.id]] == [(one.chain, one.done, one.output) for one in job.edges]

    def waiting_for_others(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.edges]


def tallied(counts: Counts) -> Counter[tuple[str, State]]:
    found: Counter[tuple[str, State]] = Counter()
    for tally in counts.tallies:
        found[tally.queue, tally.state] += tally.count
    return found
