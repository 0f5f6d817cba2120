"""The context that all parts of the MongoDB store share: collections, clock, frequent requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ...clock import EPOCH, Clock
from ...errors import SchemaMismatch
from ...operation import Operation, Request
from ..columns import Columns
from ..wakeup import Hint
from .documents import MILLISECOND, Document, Documents, round_down
from .wakeup import to_documents

# The fields of a job that a decision needs, without its payloads.
BRIEF = dict.fromkeys(
    (
        *("state", "queue", "type", "tenant", "token", "previous_token", "run_at", "expires_at", "counted_by"),
        *("purge_at", "keep_seconds", "cancel_requested", "unique_key", "unique_until", "chain_id", "chain_index"),
        *("unique_scope", "order_key", "lane", "due_at", "linked", "blockers_left", "arriving", "if_failed"),
    ),
    1,
)

# `run_at` of jobs that can be claimed sooner or later. Other jobs have none.
ANY_MOMENT = {"$gte": datetime(1, 1, 1, tzinfo=UTC)}

IS_PAUSED = {"paused": True}  # of a queue's document


@dataclass(frozen=True, slots=True)
class Hurried(Request):
    """A write that does not wait for a majority. Either a write that waits follows it, and the server keeps their
    order; or its loss does no harm."""


@dataclass(frozen=True, slots=True)
class Brief(Request):
    """A write that is given up soon: another transaction may have locked one of its documents, and the others can be
    written without it."""

    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Fresh(Request):
    """A read of the newest data of the primary, whether or not a majority has it. A fail-over may undo that data, so
    the writes that follow are fenced."""


class Context:
    """One queue in one database: the names of its collections, its clock, its frequent requests."""

    def __init__(self, prefix: str, columns: Columns, clock: Clock) -> None:
        self.clock, self.documents = clock, Documents(columns)
        self.notify = True
        self.prefix = prefix
        self.jobs = f"{prefix}jobs"
        self.edges = f"{prefix}edges"
        self.keys = f"{prefix}keys"
        self.queues = f"{prefix}queues"
        self.tallies = f"{prefix}tallies"
        self.hints = f"{prefix}hints"
        self.workers = f"{prefix}workers"
        self.schedules = f"{prefix}schedules"
        self.migrations = f"{prefix}migrations"

    # Time

    @property
    def now_expression(self) -> Any:
        """The server's time, as an expression. Only tests move it."""
        return {"$add": ["$$NOW", self.clock.offset // MILLISECOND]} if self.clock.offset else "$$NOW"

    def by_our_clock(self, server_time: datetime) -> datetime:
        return round_down(server_time + self.clock.offset) if self.clock.offset else server_time

    def read_now(self) -> Operation[datetime]:
        """The server's time, read through the one document that always exists."""
        rows = yield Request(self.migrations, "find", ({"_id": 1}, {"now": "$$NOW"}), alone=True)
        if not rows:
            raise no_schema()
        return self.by_our_clock(rows[0]["now"])

    def open_at(self, queue: str) -> Operation[datetime | None]:
        """The server's time if the queue is open; None if it is paused. One request, through the one document that
        always exists."""
        paused = {"from": self.queues, "pipeline": [{"$match": {"_id": queue, **IS_PAUSED}}], "as": "paused"}
        pipeline = [{"$match": {"_id": 1}}, {"$lookup": paused}, {"$project": {"now": "$$NOW", "paused": 1}}]
        rows = yield Request(self.migrations, "aggregate", (pipeline,), alone=True)
        if not rows:
            raise no_schema()
        return None if rows[0]["paused"] else self.by_our_clock(rows[0]["now"])

    # Requests

    def find_jobs(
        self, filter: Mapping[str, Any], projection: Mapping[str, Any] | None = None, *, size: int, alone: bool = True
    ) -> Request:
        """Up to about `size` documents in one batch. By default the server's first batch has 101."""
        return Request(self.jobs, "find", (filter, projection), {"batch_size": size + 1}, alone)

    def read_brief(
        self, ids: Iterable[UUID], *, alone: bool = False
    ) -> Operation[tuple[dict[UUID, Document], datetime]]:
        """The fields of these jobs that a decision needs, and the server's time.

        In the operation's transaction they cannot change: a change by others is a write conflict, and the operation is
        tried again. `alone`: as they are at this moment.
        """
        wanted = list(dict.fromkeys(ids))
        projection = {**BRIEF, "now": "$$NOW"}
        rows = yield self.find_jobs({"_id": {"$in": wanted}}, projection, size=len(wanted), alone=alone)
        now = self.by_our_clock(rows[0]["now"]) if rows else EPOCH
        return {row["_id"]: row for row in rows}, now

    def find_chains(self, chains: Sequence[UUID], projection: Mapping[str, Any], *, alone: bool) -> Request:
        """All jobs of these chains. The id of a chain is that of its first job; an index has the others."""
        members = [{"_id": {"$in": chains}}, {"chain_id": {"$in": chains}, "chain_index": {"$gt": 0}}]
        return self.find_jobs({"$or": members}, projection, size=len(chains), alone=alone)

    def find_open_edges(self, ids: Sequence[UUID], *, alone: bool) -> Request:
        """The edges to chains that these jobs still wait for."""
        filter = {"job": {"$in": ids}, "done": False}
        options = {"hint": "by_job", "batch_size": 10_000}
        return Request(self.edges, "find", (filter, {"job": 1, "chain_id": 1}), options, alone)

    def name_tenant(self, tenant: str) -> Operation[None]:
        """Nothing: MongoDB has no rules about documents that could use it."""
        yield from ()

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        if hints and self.notify:
            yield Request(self.hints, "insert_many", (to_documents([*hints]),), {"ordered": False}, alone=True)


class Part:
    """Some operations of the MongoDB store."""

    def __init__(self, context: Context) -> None:
        self.context = context


def no_schema() -> SchemaMismatch:
    return SchemaMismatch("the database has no Windlass collections yet: call migrate(), or `windlass migrate`")
