"""Looking at jobs and queues."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...job import Job
from ...lifecycle import BLOCKED, FINISHED, PENDING, RUNNING
from ...operation import Operation, Request
from ..store import Bookmark, Counts, Filter, Tally
from .base import ANY_MOMENT, Base
from .documents import Document, to_job

BY_QUEUE_AND_TYPE = {"queue": "$queue", "type": "$type", "state": "$state"}


class Reads(Base):
    def get(self, ids: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        rows = yield self.find_jobs({"_id": {"$in": [*ids]}}, size=len(ids))
        return [to_job(row) for row in rows]

    def list(self, filter: Filter, limit: int, before: Bookmark | None = None) -> Operation[builtins.list[Job]]:
        if limit < 1:
            return []
        kept = (yield from self._kept_holders(filter.tenant or "", filter.unique)) if filter.unique is not None else []
        order = [("finished_at", -1), ("_id", -1)] if filter.by_end else [("_id", -1)]
        options = {"sort": order, "limit": limit, "batch_size": limit + 1}
        rows = yield Request(self.jobs, "find", (conditions(filter, before, kept),), options, alone=True)
        return [to_job(row) for row in rows]

    def _kept_holders(self, tenant: str, key: str) -> Operation[builtins.list[UUID]]:
        """Jobs of records that hold this key, whatever more a record's id says after tenant and key."""
        first = {"tenant": tenant, "key": key}
        between = {"$gte": first, "$lt": {"tenant": tenant, "key": key + "\0"}}
        rows = yield Request(self.keys, "find", ({"_id": between},), alone=True)
        if not any("ends_at" in row for row in rows):
            return [row["job_id"] for row in rows]
        now = yield from self.read_now()
        return [row["job_id"] for row in rows if row.get("ends_at") is None or row["ends_at"] > now]

    def counts(self) -> Operation[Counts]:
        """From one snapshot: what waits from the ready index alone, what runs by the index of that, what is
        finished from the tallies."""
        tallies: builtins.list[Tally] = []
        total: dict[str, Any] = {"$sum": 1}
        for state in (PENDING, RUNNING, BLOCKED):
            group = {"$group": {"_id": BY_QUEUE_AND_TYPE, "count": total}}
            rows = yield Request(self.jobs, "aggregate", ([{"$match": {"state": state}}, group],))
            tallies += [Tally(**row["_id"], count=row["count"]) for row in rows]
        group = {"$group": {"_id": BY_QUEUE_AND_TYPE, "count": {"$sum": "$count"}}}
        rows = yield Request(self.tallies, "aggregate", ([group],))
        return Counts([*tallies, *(Tally(**row["_id"], count=row["count"]) for row in rows)])

    def paused(self) -> Operation[builtins.list[str]]:
        rows = yield Request(self.queues, "find", ({"paused": True},), {"sort": [("_id", 1)]}, alone=True)
        return [row["_id"] for row in rows]

    def live_queues(self) -> Operation[builtins.list[str]]:
        """One step through the ready index for each queue, however many jobs it has."""
        pipeline = [{"$match": {"state": PENDING, "run_at": ANY_MOMENT}}, {"$group": {"_id": "$queue"}}]
        rows = yield Request(self.jobs, "aggregate", (pipeline,), {"hint": "ready"}, alone=True)
        return sorted(row["_id"] for row in rows)


def conditions(filter: Filter, before: Bookmark | None, kept: Sequence[UUID] = ()) -> Document:
    """`kept`: the jobs of records that hold the key that the filter asks for."""
    given = {"state": filter.state, "type": filter.type, "queue": filter.queue, "tenant": filter.tenant}
    query: Document = {name: value for name, value in given.items() if value is not None}
    either: builtins.list[Document] = []
    if filter.state in FINISHED:
        query["finished_at"] = {"$exists": True}  # so that the index of those serves
    if filter.since is not None:
        finished = {"finished_at": {"$gte": filter.since}}
        live = {"finished_at": None, "created_at": {"$gte": filter.since}}
        either.append({"$or": [finished, live]})
    if filter.unique is not None:
        query["tenant"] = filter.tenant or ""
        held = {"tenant": query["tenant"], "unique_key": filter.unique, "unique_held": True}
        either.append({"$or": [held, {"_id": {"$in": [*kept]}}]} if kept else held)
    if before is not None and filter.by_end:
        query["finished_at"] = {"$exists": True, "$lte": before.ended_at}
        together = {"finished_at": before.ended_at, "_id": {"$lt": before.id}}
        either.append({"$or": [{"finished_at": {"$lt": before.ended_at}}, together]})
    elif before is not None:
        query["_id"] = {"$lt": before.id}
    if either:
        query["$and"] = either
    if filter.chain is not None:  # the first of a chain is the job whose id it bears; the index has the others
        query["$or"] = [{"_id": filter.chain}, {"chain_id": filter.chain, "chain_index": {"$gt": 0}}]
    return query
