"""The differences between SQLite and PostgreSQL, as one contract; the parts of the SQL store are written against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import msgspec

from ...job import Job, NewJob
from ...operation import Operation, Statement
from ...outcome import Settlement
from ..store import Change, ClaimRequest, Enqueued, Finding
from ..wakeup import Hint
from .query import Queries, RowReader

OrderKey: TypeAlias = tuple[str, str]  # the tenant and the order key itself
SendHints: TypeAlias = Callable[[Sequence[Hint]], Operation[None]]  # `hint` of the store
ChainEnd: TypeAlias = tuple[UUID, str | None]  # a completed chain and its output

PLAIN = "AND NOT j.linked AND j.lane IS NULL"  # no other job depends on its end


class Dialect(Protocol):
    """One SQL database. The operations below are those that the two databases do in different ways."""

    queries: Queries
    rows: RowReader
    has_one_writer: bool  # then jobs are inserted in the order of their batch, and no two batches deadlock

    # Statements

    def array(self, values: Sequence[Any]) -> Any:
        """A list as this dialect takes it for a parameter."""

    def many(
        self, name: str, rows: Sequence[msgspec.Struct], *, alone: bool = False, now: Any | None = None
    ) -> Statement:
        """One query for many rows. `now`: the answer of `fixed_now`."""

    def fixed_now(self, count: int) -> Operation[Any | None]:
        """The time at which an operation on so many jobs makes them due. None: `now` of the database does not change
        within a transaction."""

    # Enqueue and claim

    def replace_job(self, job: NewJob, now: Any | None) -> Statement: ...

    def bulk(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued] | None]:
        """A quicker way to add many jobs that cannot collide with others; None where there is none."""

    def lock_cycle_check(self) -> Operation[None]: ...

    def claim_parts(self, request: ClaimRequest) -> dict[str, str]:
        """The parts of the claim query that depend on the request."""

    # End

    def finish(self, settlements: Sequence[Settlement], *, alone: bool, plain: bool = True) -> Operation[set[UUID]]:
        """Move jobs to history (keep=0: delete them), each fenced; the ids of the jobs that were refused. `plain`: only
        jobs on whose end no other job depends."""

    def finish_adds(self, job: NewJob) -> bool:
        """Whether `finish` itself adds this next job of a chain."""

    def hand_over(self, settlement: Settlement, token: UUID, worker: str) -> Operation[Job | None]:
        """Complete a job and claim the next job of its chain in one statement, where this dialect can. None: nothing
        was written."""

    def retry(self, ids: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        """Move failed and cancelled jobs from history to the live table, where their keys are free."""

    def remove(self, chains: Sequence[UUID]) -> Operation[dict[UUID, Change]]:
        """Delete chains with their keys and edges; a change for each deleted job."""

    # Order keys and dependents

    def lock_order_keys(self, keys: Sequence[OrderKey]) -> Operation[None]: ...

    def try_order_keys(self, keys: Sequence[OrderKey]) -> Operation[Sequence[OrderKey]]:
        """Lock the keys that no other transaction has locked; those are the answer."""

    def promote(self, keys: Sequence[OrderKey]) -> Statement:
        """Make the first job in the line of each key its head, where the key has no head."""

    def lock_ends(self, chains: Sequence[UUID]) -> Operation[set[UUID]]:
        """Until this transaction ends, no job of these chains is moved out of history. The chains of which another
        transaction has locked a job."""

    def arriving_ordered(self, limit: int, busy: Collection[OrderKey]) -> Statement:
        """Due jobs that are not in the line of their order key yet, without those of busy keys."""

    def arriving_blocked(self, limit: int, busy: Collection[UUID]) -> Statement:
        """Blocked jobs that are not admitted yet, without those that wait for busy chains."""

    def mark_done(self, ends: Sequence[ChainEnd], jobs: Sequence[UUID] | None) -> Statement:
        """The edges to these completed chains: all edges, or those of some jobs."""

    def unblock(self, counts: Counter[UUID]) -> Statement:
        """Each of these jobs waits for so many chains fewer."""

    def members(self, chains: Sequence[UUID], *, locked: bool) -> Statement:
        """All live jobs of these chains."""

    # Maintenance and hints

    def prune(self, limit: int) -> Operation[int]: ...

    def vacuum(self) -> Operation[None]: ...

    def examine(self) -> Operation[list[Finding]]: ...

    def hint(self, hints: Sequence[Hint]) -> Operation[None]: ...

    def name_tenant(self, tenant: str) -> Operation[None]: ...


class Part:
    """Some operations of the SQL store, with the dialect and its most frequent calls at hand."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.queries, self.rows = dialect, dialect.queries, dialect.rows
        self.statement, self.array, self.many = dialect.queries.statement, dialect.array, dialect.many
