"""What all operations of the MongoDB store share: the names of its collections, its clock, its commonest requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ...clock import EPOCH, Clock
from ...errors import SchemaMismatch
from ...operation import Operation, Request
from ..wakeup import Hint
from .documents import MILLISECOND, Document, round_down
from .wakeup import to_documents

# What a decision about a job needs to know of it, without its payloads.
BRIEF = dict.fromkeys(
    (
        *("state", "queue", "type", "tenant", "token", "previous_token", "run_at", "expires_at", "counted_by"),
        *("purge_at", "keep_seconds", "cancel_requested", "unique_key", "unique_until", "chain_id", "chain_index"),
        *("unique_scope", "order_key", "lane", "due_at", "linked", "blockers_left", "arriving", "if_failed"),
    ),
    1,
)

ANY_MOMENT = {"$gte": datetime(1, 1, 1, tzinfo=UTC)}  # of jobs that can be claimed, sooner or later; others have none


@dataclass(frozen=True, slots=True)
class Hurried(Request):
    """A write that need not wait until a majority has it: because one that waits comes after it, and the server keeps
    their order; or because to lose it does no harm."""


@dataclass(frozen=True, slots=True)
class Brief(Request):
    """A write that is given up soon: one of its documents may be locked by another's transaction, and the rest can be
    had without it."""

    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Fresh(Request):
    """A read that sees what the primary has, whether or not a majority has it. What is found may be undone yet: for
    what is fenced when it is written."""


class Base:
    clock: Clock

    def __init__(self, prefix: str, clock: Clock | None) -> None:
        self.clock = clock or Clock()
        self.notify = True
        self.prefix = prefix
        self.jobs = f"{prefix}jobs"
        self.edges = f"{prefix}edges"
        self.keys = f"{prefix}keys"
        self.queues = f"{prefix}queues"
        self.tallies = f"{prefix}tallies"
        self.hints = f"{prefix}hints"
        self.workers_seen = f"{prefix}workers"
        self.timetable = f"{prefix}schedules"
        self.migrations = f"{prefix}migrations"

    # Time

    @property
    def now_expression(self) -> Any:
        """The server's time, in an expression; moved only by tests."""
        return {"$add": ["$$NOW", self.clock.offset // MILLISECOND]} if self.clock.offset else "$$NOW"

    def by_our_clock(self, server_time: datetime) -> datetime:
        return round_down(server_time + self.clock.offset) if self.clock.offset else server_time

    def read_now(self) -> Operation[datetime]:
        """The server's time, by way of the one document that is always there."""
        rows = yield Request(self.migrations, "find", ({"_id": 1}, {"now": "$$NOW"}), alone=True)
        if not rows:
            raise no_schema()
        return self.by_our_clock(rows[0]["now"])

    def open_at(self, queue: str) -> Operation[datetime | None]:
        """The server's time; None if the queue is paused. In one look, by way of the one document that is there."""
        paused = {"from": self.queues, "pipeline": [{"$match": {"_id": queue, "paused": True}}], "as": "paused"}
        pipeline = [{"$match": {"_id": 1}}, {"$lookup": paused}, {"$project": {"now": "$$NOW", "paused": 1}}]
        rows = yield Request(self.migrations, "aggregate", (pipeline,), alone=True)
        if not rows:
            raise no_schema()
        return None if rows[0]["paused"] else self.by_our_clock(rows[0]["now"])

    # Requests

    def find_jobs(
        self, filter: Mapping[str, Any], projection: Mapping[str, Any] | None = None, *, size: int, alone: bool = True
    ) -> Request:
        """Up to about `size` documents, in one batch: the server's own first batch is 101."""
        return Request(self.jobs, "find", (filter, projection), {"batch_size": size + 1}, alone)

    def read_brief(
        self, ids: Iterable[UUID], *, alone: bool = False
    ) -> Operation[tuple[dict[UUID, Document], datetime]]:
        """What a decision needs of these jobs, and the time there.

        In the operation's transaction nothing of it can change until that ends without a write conflict, and then all
        is tried again. `alone`: as it is at this moment.
        """
        wanted = list(dict.fromkeys(ids))
        projection = {**BRIEF, "now": "$$NOW"}
        rows = yield self.find_jobs({"_id": {"$in": wanted}}, projection, size=len(wanted), alone=alone)
        now = self.by_our_clock(rows[0]["now"]) if rows else EPOCH
        return {row["_id"]: row for row in rows}, now

    def find_chains(self, chains: Sequence[UUID], projection: Mapping[str, Any], *, alone: bool) -> Request:
        """All jobs of these chains. The first of a chain is the one whose id it bears; an index has the others."""
        members = [{"_id": {"$in": chains}}, {"chain_id": {"$in": chains}, "chain_index": {"$gt": 0}}]
        return self.find_jobs({"$or": members}, projection, size=len(chains), alone=alone)

    def name_tenant(self, tenant: str) -> Operation[None]:
        return  # no rule about documents could ask for it
        yield

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        if hints and self.notify:
            yield Request(self.hints, "insert_many", (to_documents([*hints]),), {"ordered": False}, alone=True)


def no_schema() -> SchemaMismatch:
    return SchemaMismatch("the database has no Windlass collections yet: call migrate(), or `windlass migrate`")
