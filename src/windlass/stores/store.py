"""The contract of a store: the promises of each operation, in words that hold on every database.

Each operation is a generator of steps (see `windlass.operation`). On a connection of Windlass one operation is one
transaction. On a connection of the caller it opens no transaction and commits nothing. *Atomic* in a docstring means:
no other client sees a part of the operation, and a crash leaves all of it or nothing.

Locks are taken in id order. Every write to a claimed job is fenced by the pair (id, lease token): where the token is
no longer the newest, nothing changes, and the answer says so. The store's clock decides which jobs are due.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ..clock import Clock
from ..job import Job, NewJob
from ..operation import Operation
from ..outcome import Settlement
from ..schedule import Firing, Schedule, Timetable
from .records import (
    Admitted,
    Blocker,
    Bookmark,
    ChainRecord,
    Change,
    ClaimRequest,
    Counts,
    Enqueued,
    Failure,
    Filter,
    Finding,
    HandedOver,
    Lease,
    Note,
    Position,
    Reason,
    Refusal,
    Renewal,
    Tally,
    WorkerInfo,
    may_be_handed_over,
)
from .wakeup import Hint, Wakeup

T = TypeVar("T")

__all__ = [
    "Admitted",
    "Blocker",
    "Bookmark",
    "ChainRecord",
    "Change",
    "ClaimRequest",
    "Connections",
    "Counts",
    "Enqueued",
    "Failure",
    "Filter",
    "Finding",
    "HandedOver",
    "Lease",
    "Note",
    "Position",
    "Reason",
    "Refusal",
    "Renewal",
    "Store",
    "Tally",
    "WorkerInfo",
    "may_be_handed_over",
]


class Purpose(Enum):
    """The purpose of a connection of Windlass. A connection of one purpose is never used for another, so that an
    operation that waits (for a lock, for a slow server) does not delay the others."""

    CALLS = "calls"  # of users: an enqueue, a read
    BLOCKS = "blocks"  # the same inside `attempt.transaction()`: others may wait for the locks of that block
    WORKER = "worker"  # claims, settlements, leases, maintenance and schedules


class Connections(Protocol):
    """The connections of a store. They are opened when they are needed, and opened again in a forked child. An
    operation on them gets its answer within a bounded time, or is broken off as `Interrupted`."""

    def run(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        """Run one operation as one transaction, and again where the database asks for it."""

    async def arun(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        """The same without blocking the event loop."""

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Run one operation in the caller's transaction. It begins, commits and sets nothing there."""

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T: ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection with a transaction for the caller: committed at the end, rolled back on an exception. `run_on`
        accepts it."""

    def atransaction(self) -> AbstractAsyncContextManager[Any]: ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether the database asks for another try of the transaction: a deadlock, a serialisation failure, a write
        conflict."""

    def was_undone(self, error: BaseException) -> bool:
        """Whether the database had rolled back the transaction before the statement that met this error."""

    def is_unwilling(self, error: BaseException, *, committing: bool = False) -> bool:
        """Whether a statement of Windlass in such a transaction failed for a reason that is not in the data: no
        privilege, a read-only server, a full disk, a broken connection. `committing`: it failed at the commit, which
        also checks constraints and triggers of the caller's tables."""

    def close(self) -> None: ...

    async def aclose(self) -> None: ...

    async def aclose_loop(self) -> None:
        """Close the connections of the running event loop, before the loop ends."""


class Store(Protocol):
    """One database as a job queue."""

    clock: Clock
    notify: bool  # False: `hint` sends nothing

    @property
    def connections(self) -> Connections: ...

    @property
    def wakeup(self) -> Wakeup: ...

    def migrate(self) -> Operation[list[str]]:
        """Bring the schema up to date; the names of the applied migrations. Idempotent, and safe when many processes
        start at once: one does the work, the others wait for it and then find nothing to do. Raises as `check_schema`
        does."""

    def check_schema(self) -> Operation[bool]:
        """Whether the schema is as new as this code. `SchemaMismatch` where it no longer admits code as old as this."""

    def script(self) -> str:
        """The migrations as text, to be read, and to be run by hand where the store has a language for it."""

    def enqueue(self, jobs: Sequence[NewJob], *, resent: bool = False) -> Operation[list[Enqueued]]:
        """Add jobs, atomically; one answer for each, in order.

        A job whose id exists, live or finished, is not added again: the answer is the existing job, even if another job
        holds its unique key by now. `resent`: the ids may have been sent before, though Windlass made them; other ids
        that Windlass made are known to be new. Of jobs that share a unique key, in this batch or with existing jobs,
        only the first exists. Each of the others says what follows: the existing job is its answer, or it replaces that
        job, or the whole batch is undone with `Conflict`. A due time in the past means now, here and where a job
        becomes pending again, but not for ticks of schedules. To replace is to renew input, due time, priority, labels
        and expiry of a waiting job (due no later than `window_seconds` after it was created, where that is given). A
        running job that still holds its key stays as it is, and is the answer.

        A key is unique among jobs of one tenant and `unique_scope`. Keys that a live job holds (until `claimed`, until
        `finished`) and keys that outlive it (`forever`, for a time) are two sets: the same text in both is two keys.
        The answer for a key whose job is gone has the job's id and little else. A conflict never spoils the caller's
        transaction. Keys are taken in order; the operation waits for a key that another open transaction holds. Jobs of
        one order key run in the order in which they were given, whatever their unique keys and ids.
        """

    def free_own_key(self, id: UUID, token: UUID, scope: str, key: str) -> Operation[None]:
        """A running job, fenced by its token, gives up its unique key if it is this one. So it can enqueue a job with
        the same key in the transaction that completes it."""

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        """Take due jobs of one queue, at most `limit` and `max_bytes` of input (but at least one): by priority, then
        due time, then id. Each is running afterwards, its attempt counted, its key freed if it was unique until
        claimed, its lease and the request's token written on it.

        Two claimers never get the same job and never wait for each other: a locked row is skipped. A claim on a paused
        queue returns nothing. A crash of the server may undo a claim: then the job is pending. A claim that took a
        job's last attempt, which counts as begun, is durable when it returns.
        """

    def begin(self, leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        """These attempts begin now. The mark is written for attempts that were claimed with `begun=False`, each fenced
        by its (id, token), and durable when this returns. The answer: the refused ones, with the reason; "locked" where
        another transaction has locked the row at this moment, so that the caller may ask again. To begin an attempt
        twice changes nothing."""

    def admit(self, limit: int) -> Operation[Admitted]:
        """Admit arriving jobs: jobs that wait for others, and due jobs with an order key. At most `limit` of each kind:
        call again while any are admitted.

        It waits for no lock. A job that another transaction has locked, a job that waits for such a job, and a job
        whose order key another transaction has locked stay arriving and are counted as left: call again later. A job
        that the database cannot hold in its order fails, with the reason, and stops no other.

        A job that waits for chains is free when all of them have completed, before or after it was enqueued. Admission
        marks those chains, so that their end is seen. When such a chain fails or is cancelled, the job's `if_failed`
        decides. None: the job continues to wait, for the chain may be retried. "cancel": it is cancelled in the
        transaction that ends the chain, and so are the jobs that wait for it. "run": the chain counts as done, without
        an output, for good. Jobs of one order key get their places: a job that was committed before another was begun
        is ahead of it. The first becomes the head, and only a head is claimed.
        """

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        """A hint is sent when one of these chains ends."""

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        """The head of this order key: it runs, or is the next to run."""

    def now(self) -> Operation[datetime]:
        """The store's clock."""

    def ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        """The last job of each of these chains that has ended."""

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        """Take running jobs from their workers, which are fenced from now on. The jobs that were running."""

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, list[Blocker]]]:
        """The chains that these jobs wait, or have waited, for: in the order in which they were given."""

    def dependents(self, chain: UUID, limit: int, after: UUID | None = None) -> Operation[builtins.list[Job]]:
        """The jobs that wait, or have waited, for this chain, as far as they are kept: by id, those `after` that id.
        Through an index, however many edges there are."""

    def chains(self, filter: Filter, limit: int, before: UUID | None = None) -> Operation[builtins.list[ChainRecord]]:
        """Chains whose first job is kept, the newest first; with `before`, those that are older than that chain.
        `type`, `queue` and `tenant` of the filter are those of the first job, `state` is that of the newest."""

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        """The jobs that a claim with this token took: for a claimer whose answer was lost with its connection."""

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        """Settle attempts, each atomically and fenced by its own (id, token); the refused ones, with the reason. Two
        attempts of one job in one batch are told apart.

        A settlement that is sent again after its answer was lost is accepted if the first one was, and changes nothing.
        This holds until the job's next attempt has ended, or someone has cancelled or retried it. It does not hold for
        keep=0, which leaves no record, nor without a token, since any client may send that. Another outcome of a
        settled attempt is refused. A settlement that sends a job back whose cancellation was requested cancels it. A
        job that is sent back keeps its earlier error where the settlement has none. A job that ends has the error of
        its settlement, and the records of its attempts.
        """

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        """`settle` for a job that continues its chain, and at once claim the next job, whose own fields say how long
        its lease is. No job is returned where the settlement was refused, where the queue is paused, or where the next
        job is due later, has one attempt only, or waits for others, its turn or its key (`may_be_handed_over`): then it
        waits as any other. Both are written, or neither is.
        """

    def renew(self, leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        """Renew leases from now on, each fenced by its (id, token); an answer for each, in order. An expired lease can
        be renewed as long as no other worker has taken the job. A job that another transaction has locked delays no
        other: its answer is `locked`, its lease stays as it was."""

    def note(self, notes: Sequence[Note]) -> Operation[None]:
        """Write the progress that handlers have reported, each fenced by its (id, token); leases stay as they are. A
        locked row is skipped where the store can see it, and a refusal is no error: the next note, or the outcome, has
        the whole progress. A crash of the server may undo it."""

    def anyone_lost(self) -> Operation[bool]:
        """Whether a lease has expired. One cheap read."""

    def rescue(self, limit: int, *, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        """Settle jobs whose lease has expired (or, with `stale_before`, whose worker last renewed before that time).
        They become pending after their backoff, staggered. A job fails if this was its last attempt; if that attempt
        had not begun (`begin`), the job becomes pending and the attempt is not counted. A job whose cancellation was
        requested is cancelled. A job that is being settled at this moment is left alone. Later writes of the lost
        worker are refused. At most `limit`: call again."""

    def expire(self, limit: int) -> Operation[list[Settlement]]:
        """Cancel waiting jobs, pending or blocked, that were not started by their `expires_at`, atomically; the error
        says so, and the records of earlier attempts stay. The earliest `expires_at` goes first. Running jobs, and jobs
        that are being claimed or replaced at this moment, are left alone: of a claim and an expiry at the same time,
        one gets the job and the other nothing. At most `limit`: call again."""

    def get(self, ids: Sequence[UUID]) -> Operation[list[Job]]:
        """The jobs that exist, in any order. A job that moves from live to finished meanwhile is found once."""

    def counts(self) -> Operation[Counts]:
        """Jobs by state, queue and type; cheap however many are finished."""

    def cancel(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Waiting jobs are cancelled at once. On a running job the request is noted, and its worker gets a hint. For
        this and the next three operations: an answer for each job, in order."""

    def retry(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Failed and cancelled jobs become pending again, due now, with all their attempts and no expiry. Their error
        and the records of their attempts stay. A key until `finished` is held again: `done` is False also where another
        job holds it by now."""

    def run_now(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Make pending jobs due now; a job that is due already keeps its place. Not blocked jobs: they wait for other
        jobs, not for a time."""

    def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Operation[list[Change]]:
        """Delete the chains of these jobs, with all their records and keys. A chain stays if one of its jobs runs, or
        if another chain, outside of these, still waits for it. `cascade`: with each deleted chain, also delete the
        chains that it waits or has waited for, under the same conditions; those that have to stay are no error."""

    def pause(self, queue: str) -> Operation[None]:
        """No claim that begins after this takes a job from the queue."""

    def resume(self, queue: str) -> Operation[None]: ...

    def paused(self) -> Operation[list[str]]:
        """The names of the paused queues."""

    def live_queues(self) -> Operation[list[str]]:
        """The queues with waiting jobs, paused or not."""

    def next_due(self, queues: Sequence[str]) -> Operation[float | None]:
        """Seconds until the first job that waits in these queues is due, negative for one that is; None if none
        waits."""

    def stuck(self, queues: Sequence[str], types: Sequence[str]) -> Operation[list[str]]:
        """Those of these queues in which a job is due, but none that a worker of these types can claim: the job is of
        another type, or the queue is paused."""

    def hold(self, tokens: Sequence[UUID]) -> Operation[int]:
        """Renew the leases of all jobs that were claimed with these tokens, each by its own length: for a worker that
        cannot do it itself. The number of renewed leases; a job that another transaction has locked is skipped."""

    def beat(self, worker: WorkerInfo, gone_seconds: float) -> Operation[None]:
        """The heartbeat of a worker. Workers without a heartbeat for `gone_seconds` are removed from the list."""

    def farewell(self, name: str) -> Operation[None]:
        """A worker ends: it is removed from the list."""

    def workers(self) -> Operation[list[WorkerInfo]]:
        """The workers that are alive."""

    def prune(self, limit: int) -> Operation[int]:
        """Delete finished jobs and records of keys whose time is over, and fold the records of the counts. The number
        of deleted jobs; call again while it is not zero. A job that is kept for a day or longer may stay until the end
        of the day (UTC)."""

    def vacuum(self) -> Operation[None]:
        """Reclaim space now. Runs outside a transaction; blocks neither readers nor writers where the store can."""

    def examine(self) -> Operation[builtins.list[Finding]]:
        """What an administrator of this database should know: its version and settings, missing indexes, locks and
        space. It reads only, and reads little."""

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        """Send hints to listeners when the surrounding transaction commits; nothing where `notify` is False."""

    def name_tenant(self, tenant: str) -> Operation[None]:
        """Set the tenant for which the surrounding transaction writes: for databases with rules about rows (row-level
        security) that read it."""

    def schedules(self) -> Operation[Timetable]:
        """All schedules, by name."""

    def due_schedules(self, limit: int) -> Operation[Timetable]:
        """The schedules that are due and not paused, the longest due first. `next_at` is the next tick of all
        schedules, due or not."""

    def put_schedules(self, schedules: Sequence[Schedule]) -> Operation[None]:
        """Write schedules, each atomically. A schedule that exists under that name is renewed, but stays paused. Its
        next tick stays the same if neither its cron line nor its timezone has changed."""

    def fire(self, firing: Firing) -> Operation[Sequence[Enqueued] | None]:
        """Enqueue a schedule's jobs and move its next tick, atomically, if that tick still is `due_at`; an answer for
        each job. None, and nothing is written, if another process was quicker, or the schedule was paused, renewed or
        deleted meanwhile. So each tick makes its jobs once, even if many processes fire it, and even if those jobs have
        run and are no longer kept."""

    def pause_schedule(self, name: str) -> Operation[bool]:
        """Its ticks make no jobs from now on. For this and the next two: False where there is no such schedule."""

    def resume_schedule(self, name: str, next_at: datetime) -> Operation[bool]:
        """Continue with that tick; a schedule that is not paused stays as it is."""

    def delete_schedule(self, name: str) -> Operation[bool]:
        """The jobs that it has made stay."""

    # Last, since from here on `list` means this.
    def list(self, filter: Filter, limit: int, before: Bookmark | None = None) -> Operation[list[Job]]:
        """Newest id first, or, for failed or cancelled jobs alone, the last end first; the page after `before`. With
        `unique`, the jobs that hold that key of the tenant, live or kept, through the index of keys."""
