"""Enqueue in SQL: in bulk where nothing can collide; otherwise insert, find the holders of the keys, and try again.

A conflict is never an error in the database, so the caller's transaction stays usable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from ...errors import Conflict
from ...job import Job, NewJob
from ...operation import Current, Operation
from ..blockers import with_chains
from ..store import Enqueued
from .dialect import Dialect, Part
from .reads import Reads

Key: TypeAlias = tuple[str, str, str, str]  # tenant, scope, key, and whether it ends with its job or outlives it

TRIES = 10  # to insert, or to find the holder of the key: it can vanish between the two


class NumberedJob(NewJob, kw_only=True, gc=False):
    """A job that got its number among the jobs of its order key before it is inserted."""

    seq: int


class Enqueue(Part):
    """Operations `enqueue` and `free_own_key`; it answers the questions of `ChainLookup`."""

    def __init__(self, dialect: Dialect, reads: Reads) -> None:
        super().__init__(dialect)
        self.reads = reads

    def enqueue(self, jobs: Sequence[NewJob], *, resent: bool = False) -> Operation[list[Enqueued]]:
        if any(job.blockers for job in jobs):
            jobs = yield from with_chains(jobs, self)
        if resent or any(job.id_given for job in jobs):
            yield Current("an id that was given (id=) is looked for among the jobs that have ended")
        sure = not resent and not any(job.id_given or job.unique_key or job.order_key or job.blockers for job in jobs)
        if sure and len(jobs) == 1:  # as most are
            rows = yield self.many("add_jobs", jobs, alone=True)
            if rows:
                return [Enqueued(self.added(jobs[0], rows[0]), True)]
        elif sure:
            done = yield from self.dialect.bulk(jobs)
            if done is not None:
                return done
        answers = yield from _Adding(self, jobs, resent=resent).run()
        return [answers[position] for position in range(len(jobs))]

    def free_own_key(self, id: UUID, token: UUID, scope: str, key: str) -> Operation[None]:
        yield self.statement("free_own_key", id=id, token=token, scope=scope, key=key)

    def chains_of(self, ids: Collection[UUID]) -> Operation[dict[UUID, UUID]]:
        rows = yield self.statement("find_chains", ids=self.array(sorted(ids)))
        return {self.rows.to_uuid(id): self.rows.to_uuid(chain) for id, chain in rows}

    def awaited_by(self, chains: Collection[UUID]) -> Operation[set[UUID]]:
        rows = yield self.statement("awaited_by", ids=self.array(sorted(chains)))
        return {self.rows.to_uuid(row[0]) for row in rows}

    def lock_cycle_check(self) -> Operation[None]:
        yield from self.dialect.lock_cycle_check()

    def add_edges(self, jobs: Sequence[NewJob]) -> Operation[None]:
        for job in jobs:
            if job.blockers:
                yield self.statement("add_edges", id=job.id, chains=self.array(job.blockers))

    def added(self, job: NewJob, row: Sequence[Any]) -> Job:
        _, run_at, created_at, expires_at = row
        return self.rows.new_job(job, run_at, created_at, expires_at)


class Holder(NamedTuple):
    """The job that holds a key; `until` is None where the key outlives the job."""

    id: UUID
    until: str | None


class _Adding:
    """One batch: which jobs are added, and which find another job with their id or key."""

    def __init__(self, part: Enqueue, jobs: Sequence[NewJob], *, resent: bool) -> None:
        self.part, self.dialect, self.rows = part, part.dialect, part.rows
        self.jobs, self.resent = list(jobs), resent
        self.answers: dict[int, Enqueued] = {}
        self.created: list[UUID] = []

    def run(self) -> Operation[dict[int, Enqueued]]:
        self.now = yield from self.dialect.fixed_now(len(self.jobs))
        waiting = self._leaders()
        if not self.dialect.has_one_writer:
            waiting = yield from self._sort(waiting)
        alone = len(self.jobs) == 1 and not self.resent and not self._by_window(waiting)
        alone = alone and not self.jobs[0].id_given and not self.jobs[0].blockers
        for _ in range(TRIES):
            waiting = yield from self._insert(waiting, alone=alone)
            if not waiting:
                break
            waiting = yield from self._look(waiting)
            if not waiting:
                break
        else:
            raise Conflict(f"the unique key {self.jobs[waiting[0]].unique_key!r} is held by a job that cannot be seen")
        yield from self._follow()
        return self.answers

    # In one batch, the first job of a key or an id leads; the others follow it.

    def _leaders(self) -> list[int]:
        self.leader: dict[int, int] = {}
        seen: dict[object, int] = {}
        for position, job in enumerate(self.jobs):
            keys = [("id", job.id), *([_key(job)] if job.unique_key else [])]
            self.leader[position] = next((seen[key] for key in keys if key in seen), position)
            for key in keys:
                seen.setdefault(key, self.leader[position])
        for position, leader in self.leader.items():
            job = self.jobs[position]
            if position != leader and job.id != self.jobs[leader].id and job.on_conflict == "raise":
                raise _conflict(job)
        return [position for position, leader in self.leader.items() if position == leader]

    def _sort(self, positions: list[int]) -> Operation[list[int]]:
        """By key, then by id: concurrent batches take these in the same order, so that they do not deadlock.

        Jobs of one order key run in the order of the batch. The INSERT numbers them. Where it may insert them in
        another order, or only at the second try (a job whose unique key was held), they get their numbers here.
        """
        in_order = sorted(positions, key=lambda position: (_key(self.jobs[position]), self.jobs[position].id))
        by_key: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for position in in_order:
            job = self.jobs[position]
            if job.order_key is not None:
                by_key[job.tenant, job.order_key].append(position)
        numbered = [position for line in by_key.values() if self._may_change_order(line) for position in line]
        if numbered:
            rows = yield self.part.statement("draw_numbers", count=len(numbered))
            for position, (seq,) in zip(sorted(numbered), sorted(rows), strict=True):
                self.jobs[position] = NumberedJob(**msgspec.structs.asdict(self.jobs[position]), seq=seq)
        return in_order

    def _may_change_order(self, line: list[int]) -> bool:
        is_keyed = any(self.jobs[position].unique_key is not None for position in line)
        return len(line) > 1 and (is_keyed or line != sorted(line))

    def _by_window(self, positions: Sequence[int]) -> list[int]:
        return [position for position in positions if self.jobs[position].unique_until in ("forever", "window")]

    def _insert(self, positions: list[int], *, alone: bool) -> Operation[list[int]]:
        """The jobs that could not be added."""
        part = self.part
        held = self._by_window(positions)
        if held:
            keyed = [self.jobs[position] for position in held]
            yield part.many("free_keys", keyed, now=self.now)
            taken = yield part.many("add_keys", keyed, now=self.now)
            mine = {part.rows.to_uuid(row[0]) for row in taken}
        else:
            mine = set()
        stuck = {position for position in held if self.jobs[position].id not in mine}
        free = [position for position in positions if position not in stuck]
        by_id = {self.jobs[position].id: position for position in free}
        new_jobs = [self.jobs[position] for position in free]
        rows = yield part.many("add_jobs", new_jobs, alone=alone, now=self.now)
        added = {part.rows.to_uuid(row[0]): row for row in rows}
        doubled = yield from self._drop_doubles(added)
        for id in added.keys() - doubled:
            position = by_id[id]
            self.answers[position] = Enqueued(part.added(self.jobs[position], added[id]), True)
            self.created.append(id)
        new = [self.jobs[by_id[id]] for id in added.keys() - doubled]
        yield from part.add_edges(new)
        in_vain = mine.difference(self.created)
        if in_vain:  # these ids exist already; their keys were decided when they were added
            yield part.statement("delete_keys", ids=part.array(sorted(in_vain)))
        return [position for position in positions if position not in self.answers]

    def _drop_doubles(self, added: dict[UUID, Any]) -> Operation[set[UUID]]:
        """A job whose id is in history has run already, and must not run again."""
        suspects = [job.id for job in self.jobs if (job.id_given or self.resent) and job.id in added]
        if not suspects:
            return set()
        rows = yield self.part.statement("drop_doubles", ids=self.part.array(sorted(suspects)))
        return {self.rows.to_uuid(row[0]) for row in rows}

    def _look(self, positions: list[int]) -> Operation[list[int]]:
        """Answer the jobs whose id or key exists already; the others may try again."""
        jobs = [self.jobs[position] for position in positions]
        holders = yield from self._holders([job for job in jobs if job.unique_key])
        ids = {job.id for job in jobs} | {holder.id for holder in holders.values()}
        found = {job.id: job for job in (yield from self.part.reads.get(sorted(ids)))}
        left = set()
        # Jobs that may undo the whole batch go first.
        for position in sorted(positions, key=lambda position: self.jobs[position].on_conflict != "raise"):
            job = self.jobs[position]
            holder = holders.get(_key(job))
            if job.id in found:
                self.answers[position] = Enqueued(found[job.id], False)
            elif holder is None or not (yield from self._yield_to(holder, position, found.get(holder.id))):
                left.add(position)  # the holder is gone
        return [position for position in positions if position in left]

    def _holders(self, jobs: Sequence[NewJob]) -> Operation[dict[Key, Holder]]:
        if not jobs:
            return {}
        rows = yield self.part.many("key_holders", jobs)
        return {
            (tenant, scope, key, "live" if until else "kept"): Holder(self.rows.to_uuid(id), until)
            for tenant, scope, key, id, until in rows
        }

    def _yield_to(self, holder: Holder, position: int, there: Job | None) -> Operation[bool]:
        """Do as the job asks where another job holds its key. False: that job is gone meanwhile, try again."""
        job = self.jobs[position]
        if holder.id != job.id and job.on_conflict == "raise":
            yield self.part.statement("undo_enqueue", ids=self.part.array(sorted(self.created)))
            raise _conflict(job)
        if job.on_conflict == "replace":
            rows = yield self.dialect.replace_job(job, self.now)
            if rows:
                there = (yield from self.part.reads.get([holder.id]))[0]
            elif holder.until == "claimed" or there is None or there.finished:
                return False
        if there is None and holder.until is not None:
            return False
        # A key can outlive its job.
        self.answers[position] = Enqueued(there or _gone(job, holder.id), False)
        return True

    def _follow(self) -> Operation[None]:
        for position, leader in self.leader.items():
            if position == leader:
                continue
            answer = self.answers[leader]
            job = self.jobs[position]
            if job.on_conflict == "replace" and job.id != self.jobs[leader].id and not answer.job.finished:
                yield self.dialect.replace_job(job, self.now)
                found = yield from self.part.reads.get([answer.job.id])
                answer = Enqueued(found[0] if found else answer.job, answer.created)
                self.answers[leader] = answer
            self.answers[position] = Enqueued(answer.job, False)


def _key(job: NewJob) -> Key:
    family = "live" if job.unique_until in ("claimed", "finished") else "kept"
    return (job.tenant, job.unique_scope, job.unique_key or "", family if job.unique_key else "")


def _conflict(job: NewJob) -> Conflict:
    return Conflict(f"the unique key {job.unique_key!r} is taken by another job")


def _gone(job: NewJob, id: UUID) -> Job:
    """A pruned job whose key is still held: all that is known of it."""
    now = datetime.fromtimestamp(0, tz=UTC)
    return Job(id, job.type, job.queue, job.tenant, "completed", 0, now, now, "{}", unique_key=job.unique_key)
