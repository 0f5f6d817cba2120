"""The contract of a store: what each operation promises, in words that hold on every database.

Each operation is a generator of steps (see `windlass.operation`). On a connection of ours one operation is one
transaction; on a borrowed one it opens none and commits nothing. Where a docstring says *atomic*, no other client
sees a part of it, and a crash leaves all or nothing.

Locks are taken in id order. Every write to a claimed job is fenced by the pair (id, lease token): where the token is
no longer the newest, nothing changes, and the caller is told. The store's clock decides what is due.
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
    """What a connection of ours is for. Those of one purpose are never taken for another, so that what waits in one
    place (for a lock, for a slow server) holds up nothing elsewhere."""

    CALLS = "calls"  # of users: an enqueue, a look
    BLOCKS = "blocks"  # the same inside `attempt.transaction()`: others may wait for what that block holds
    WORKER = "worker"  # claims, settlements, leases, upkeep and schedules


class Connections(Protocol):
    """How a store reaches its database: lazily, and anew in a forked child. An operation of ours gets its answer within
    a bounded time, or is broken off as `Interrupted`."""

    def run(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        """Drive one operation as one transaction; tried again where the database asks for it."""

    async def arun(self, make: Callable[[], Operation[T]], purpose: Purpose = Purpose.CALLS) -> T:
        """The same without blocking the event loop."""

    def run_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T:
        """Drive one operation in the caller's transaction: nothing is begun, committed or set for the session."""

    async def arun_on(self, connection: Any, make: Callable[[], Operation[T]]) -> T: ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection for the caller to write on, in a transaction of its own: committed at the end, rolled back on
        an exception. `run_on` takes it."""

    def atransaction(self) -> AbstractAsyncContextManager[Any]: ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether the database asked for another try of that transaction: a deadlock, a serialisation failure, a write
        conflict."""

    def was_undone(self, error: BaseException) -> bool:
        """Whether that transaction had been undone already when the statement came that met this error."""

    def is_unwilling(self, error: BaseException, *, committing: bool = False) -> bool:
        """Whether a statement of ours in such a transaction failed for a reason that is not in the data: no privilege,
        a read-only server, a full disk, a broken connection. `committing`: at its commit, where constraints and
        triggers of the caller's own tables are heard too."""

    def close(self) -> None: ...

    async def aclose(self) -> None: ...

    async def aclose_loop(self) -> None:
        """Let go of what belongs to the running event loop alone, before it ends."""


class Store(Protocol):
    """One database as a job queue."""

    clock: Clock
    notify: bool  # False: `hint` tells nobody

    @property
    def connections(self) -> Connections: ...

    @property
    def wakeup(self) -> Wakeup: ...

    def migrate(self) -> Operation[list[str]]:
        """Bring the schema up to date; the names of what was applied. Idempotent, and safe when many start at once:
        one does the work, the others wait for it and then find nothing to do. Refuses as `check_schema` does."""

    def check_schema(self) -> Operation[bool]:
        """Whether the schema is as new as this code. `SchemaMismatch` where it no longer admits code this old."""

    def script(self) -> str:
        """The migrations as a text that can be read, and run by hand where the store has a language for it."""

    def enqueue(self, jobs: Sequence[NewJob], *, resent: bool = False) -> Operation[list[Enqueued]]:
        """Add jobs, atomically; one answer for each, in order.

        A job whose id exists, live or finished, is not added again: the answer is the one that is there, whoever has
        its unique key by now (`resent` says that the ids may have been sent before even though we made them; ids that
        we made are otherwise known to be new). Of jobs that share a unique key, in this batch or with those that are
        there, one exists, the first; the others get it as their answer, or rewrite it, or the whole batch is undone
        with `Conflict`, as each asks. A due time that has gone by is now, here and where a job is sent back, but for
        ticks of schedules. To rewrite is to renew input, due time, priority, labels and expiry of a job
        that waits (due no later than `window_seconds` after it was created, where that is given); one that runs and
        still has its key stays as it is, and is the answer.

        A key counts among jobs of one tenant and `unique_scope`. Keys that a live job holds (until `claimed`, until
        `finished`) and keys that outlive it (`forever`, for a time) are two sets: the same text in both is two keys.
        The answer for a key whose job is gone has the job's id and little else. A conflict never spoils the caller's
        transaction. Keys are taken in order; a key held by another open transaction is waited for. Jobs of one order
        key run in the order in which they were given, whatever their unique keys and ids.
        """

    def free_own_key(self, id: UUID, token: UUID, scope: str, key: str) -> Operation[None]:
        """Let a running job, fenced by its token, let go of its unique key if it is this one: for what it enqueues in
        the transaction that completes it."""

    def claim(self, request: ClaimRequest) -> Operation[list[Job]]:
        """Take due jobs of one queue, at most `limit` and `max_bytes` of input (but at least one): by priority, then
        due time, then id. Each is running afterwards, its attempt counted, its key freed if it was unique until
        claimed, its lease and the request's token written on it.

        Two claimers never get the same job and never wait for each other: a locked row is skipped. A paused queue
        gives nothing. A claim may be lost in a crash of the server (the job is pending then) unless it took a job's
        last attempt, which counts as begun; those are durable when they are returned.
        """

    def begin(self, leases: Sequence[Lease]) -> Operation[list[Refusal]]:
        """These attempts begin now: written for those that were claimed with `begun=False`, each fenced by its
        (id, token), and durable when it returns. The ones that were refused, with the reason: "locked" where the row
        is held by another transaction at this moment, so that the caller may ask again. To begin twice is to begin."""

    def admit(self, limit: int) -> Operation[Admitted]:
        """Let in what has arrived: jobs that wait for others, and due jobs with an order key. At most `limit` of
        either: call again while any are let in.

        It waits for no lock: a job that another transaction has locked, one that waits for such a job, and one whose
        order key is being given on by another transaction stay on their way in and are counted as left. Call again
        later. One that the database cannot hold in its order is failed, with the reason, and holds up no other.

        A job that waits for chains is free when all of them have completed, those that had before included; what it
        waits for is marked, so that the end of it is told. When such a chain fails or is cancelled, or has been before,
        the job's `if_failed` counts: None, it waits on, for the chain may be brought back; "cancel", it is cancelled in
        the transaction that ends the chain, and so on along what waits for it; "run", the chain counts as done, without
        an output, for good. Jobs of one order key get their places: one that was committed before another was begun is
        ahead of it; the first becomes the head, and only a head is claimed.
        """

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        """Have a hint sent when one of these chains ends."""

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        """The job that holds this order key: it runs, or is the next to run."""

    def now(self) -> Operation[datetime]:
        """The store's clock."""

    def ends(self, chains: Sequence[UUID]) -> Operation[list[Job]]:
        """The last job of each of these chains that has ended."""

    def seize(self, ids: Sequence[UUID], token: UUID) -> Operation[list[Job]]:
        """Take running jobs from their workers, whose word counts no longer: those that were running."""

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, list[Blocker]]]:
        """What these jobs wait, or have waited, for: in the order that was given."""

    def dependents(self, chain: UUID, limit: int, after: UUID | None = None) -> Operation[builtins.list[Job]]:
        """The jobs that wait, or have waited, for this chain, as far as they are kept: by id, those that come `after`
        that one. Through an index, however many edges there are."""

    def chains(self, filter: Filter, limit: int, before: UUID | None = None) -> Operation[builtins.list[ChainRecord]]:
        """Chains whose first job is kept, the newest first, those that come after the one that began with `before`.
        `type`, `queue` and `tenant` of the filter are those of the first job, `state` is that of the newest."""

    def adopt(self, token: UUID) -> Operation[list[Job]]:
        """What a claim with this token took: for a claimer whose answer was lost with its connection."""

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        """End attempts, each atomically and fenced by its own (id, token); the ones that were refused, with the reason.
        Two attempts of one job in one batch are told apart.

        A settlement that is sent again after its answer was lost is accepted if the first one was, and changes nothing
        (until the job's next attempt has ended, or someone has cancelled it or brought it back; not for keep=0, which
        leaves no trace, nor without a token, which anyone may have sent). Another outcome of an attempt that has ended
        is refused. One that sends a job back whose cancelling was asked for cancels it. A job that is sent back keeps
        the error of an attempt before where it brings none; one that ends keeps what its end says, and the story of
        its attempts.
        """

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[HandedOver]:
        """`settle` for one that continues, and at once, as `claim` would, take the job that it continues with; it says
        itself how long its lease is. No job is given where the settlement was refused, its queue is paused, or the next
        job is for later, has one attempt only, or waits for others, its turn or its key (`may_be_handed_over`): then it
        waits like any other. Both are written, or neither is.
        """

    def renew(self, leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        """Prolong leases from now on, each fenced by its (id, token); an answer for each, in order. One that has run
        out can be renewed as long as nobody has taken the job. A job that another transaction has locked holds up no
        other: its answer is `locked`, its lease stays as it was."""

    def note(self, notes: Sequence[Note]) -> Operation[None]:
        """Write what handlers have said of their progress, each fenced by its (id, token); leases stay as they are. A
        row that another has locked is skipped where the store can tell, and one that is refused is no error: the next
        note, or the outcome, will have it all. May be lost in a crash of the server."""

    def anyone_lost(self) -> Operation[bool]:
        """Whether some lease has run out. One cheap look."""

    def rescue(self, limit: int, *, stale_before: datetime | None = None) -> Operation[list[Settlement]]:
        """Settle jobs whose lease has run out (or, with `stale_before`, whose worker was last heard of before
        that): back to pending by their backoff, staggered; failed where that was the last attempt, but back to pending
        with the attempt given back where that had not begun (`begin`); cancelled where that was asked for. A job that
        is being settled at this moment is left alone. Whatever the worker that was given up has to say afterwards is
        refused. At most `limit`: call again."""

    def expire(self, limit: int) -> Operation[list[Settlement]]:
        """Cancel jobs that wait, pending or blocked, and were not started by their `expires_at`, atomically; the error
        says so, the story of earlier attempts stays. Those whose time went by first go first. What runs is left to end
        as it will, what is being claimed or rewritten at this moment is left alone: of a claim and an expiry that
        meet, one has the job and the other has nothing. At most `limit`: call again."""

    def get(self, ids: Sequence[UUID]) -> Operation[list[Job]]:
        """Those that exist, in any order. A job on its way from live to finished is found once."""

    def counts(self) -> Operation[Counts]:
        """By state, queue and type; cheap however many are finished."""

    def cancel(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Waiting jobs are cancelled at once; for running ones it is noted, and their worker told. For these and the
        next three: an answer for each, in order."""

    def retry(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Bring failed and cancelled jobs back, due now, with all their attempts and no expiry; error and story stay.
        A key until `finished` is held again: `done` is False also where another job has it by now."""

    def run_now(self, ids: Sequence[UUID]) -> Operation[list[Change]]:
        """Make pending jobs due now; one that is due already keeps its place. Not one that is blocked: it waits for
        others, not for its time."""

    def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Operation[list[Change]]:
        """Remove the chains of these jobs, all that belongs to them and the keys that they hold. Not one that is
        running, nor one that another chain, outside of these, still waits for. `cascade`: with each chain that goes,
        the chains that it waits or has waited for, under the same conditions; those that may not go stay, silently."""

    def pause(self, queue: str) -> Operation[None]:
        """No claim that begins after this takes anything from the queue."""

    def resume(self, queue: str) -> Operation[None]: ...

    def paused(self) -> Operation[list[str]]:
        """The names of the paused queues."""

    def live_queues(self) -> Operation[list[str]]:
        """The queues in which jobs are waiting, paused or not."""

    def next_due(self, queues: Sequence[str]) -> Operation[float | None]:
        """Seconds until the first job that waits in these queues is due, negative for one that is; None if none
        waits."""

    def stuck(self, queues: Sequence[str], types: Sequence[str]) -> Operation[list[str]]:
        """Those of these queues in which a job is due, but none that can be claimed by who knows these types alone: it
        is of other types, or the queue is paused."""

    def hold(self, tokens: Sequence[UUID]) -> Operation[int]:
        """Prolong the leases of all jobs that were claimed with these tokens, each by its own length: for a worker that
        cannot do it itself. How many there were; a job that another transaction has locked is passed by."""

    def beat(self, worker: WorkerInfo, gone_seconds: float) -> Operation[None]:
        """A worker says that it is alive; those that were not heard of for so long are forgotten."""

    def farewell(self, name: str) -> Operation[None]:
        """A worker ends."""

    def workers(self) -> Operation[list[WorkerInfo]]:
        """Those that are alive."""

    def prune(self, limit: int) -> Operation[int]:
        """Remove finished jobs and key records that are no longer to be kept, and fold the counts' records. How many
        jobs went; call again while it is not zero. What is kept for a day or longer may stay until that day is over
        (UTC)."""

    def vacuum(self) -> Operation[None]:
        """Reclaim space now. Runs outside a transaction; blocks neither readers nor writers where the store can."""

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        """Tell listeners, when the transaction it runs in commits; none where `notify` is False."""

    def name_tenant(self, tenant: str) -> Operation[None]:
        """Tell the database, until the end of the transaction it runs in, for which tenant that one writes: where it
        has rules about rows that can ask for it."""

    def schedules(self) -> Operation[Timetable]:
        """All schedules, by name."""

    def due_schedules(self, limit: int) -> Operation[Timetable]:
        """Those that are due and not paused, the longest due first; `next_at` is the next tick of all, due or not."""

    def put_schedules(self, schedules: Sequence[Schedule]) -> Operation[None]:
        """Write schedules, each atomically. One that is there under that name is renewed, but stays paused; its next
        tick stays what it is where neither its cron line nor its timezone has changed."""

    def fire(self, firing: Firing) -> Operation[Sequence[Enqueued] | None]:
        """Enqueue a schedule's jobs and move its next tick, atomically, where that still is `due_at`; an answer for
        each job. None, and nothing done, where another was quicker, or it was paused, renewed or deleted meanwhile: so
        each tick makes its jobs once, however many fire, also when those jobs have run and are no longer kept."""

    def pause_schedule(self, name: str) -> Operation[bool]:
        """No tick of it makes a job from now on. For these three: False where there is no such schedule."""

    def resume_schedule(self, name: str, next_at: datetime) -> Operation[bool]:
        """Go on with that tick; one that is not paused stays as it is."""

    def delete_schedule(self, name: str) -> Operation[bool]:
        """Jobs that it has made stay."""

    # Last, since from here on `list` means this.
    def list(self, filter: Filter, limit: int, before: Bookmark | None = None) -> Operation[list[Job]]:
        """Newest id first or, of failed or cancelled ones alone, the one that ended last; those that come after
        `before`. With `unique`, those that hold that key of the tenant, live or kept, through the index of keys."""
