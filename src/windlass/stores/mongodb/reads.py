"""Reads: jobs, the ends of chains, queues, counts."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ...job import Job
from ...lifecycle import BLOCKED, FINISHED, LIVE, PENDING, RUNNING
from ...operation import Operation, Request
from ..store import Blocker, Bookmark, Counts, Filter, Tally
from .context import ANY_MOMENT, IS_PAUSED, Part
from .documents import HEAD, Document, last_of_each

BY_QUEUE_AND_TYPE = {"queue": "$queue", "type": "$type", "state": "$state"}


class Reads(Part):
    """Operations `get`, `list`, `counts`, `paused`, `live_queues`, `head`, `ends`, `watch`, `blockers`."""

    def get(self, ids: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        rows = yield self.context.find_jobs({"_id": {"$in": [*ids]}}, size=len(ids))
        return [self.context.documents.to_job(row) for row in rows]

    def list(self, filter: Filter, limit: int, before: Bookmark | None = None) -> Operation[builtins.list[Job]]:
        if limit < 1:
            return []
        kept = (yield from self._kept_holders(filter.tenant or "", filter.unique)) if filter.unique is not None else []
        order = [("finished_at", -1), ("_id", -1)] if filter.by_end else [("_id", -1)]
        options = {"sort": order, "limit": limit, "batch_size": limit + 1}
        rows = yield Request(self.context.jobs, "find", (conditions(filter, before, kept),), options, alone=True)
        return [self.context.documents.to_job(row) for row in rows]

    def _kept_holders(self, tenant: str, key: str) -> Operation[builtins.list[UUID]]:
        """The jobs of the records that hold this key, in any scope."""
        first = {"tenant": tenant, "key": key}
        between = {"$gte": first, "$lt": {"tenant": tenant, "key": key + "\0"}}
        rows = yield Request(self.context.keys, "find", ({"_id": between},), alone=True)
        if not any("ends_at" in row for row in rows):
            return [row["job_id"] for row in rows]
        now = yield from self.context.read_now()
        return [row["job_id"] for row in rows if row.get("ends_at") is None or row["ends_at"] > now]

    def counts(self) -> Operation[Counts]:
        """From one snapshot. Waiting jobs are counted in the ready index alone, running jobs through their index,
        finished jobs from the tallies."""
        tallies: builtins.list[Tally] = []
        total: dict[str, Any] = {"$sum": 1}
        for state in (PENDING, RUNNING, BLOCKED):
            group = {"$group": {"_id": BY_QUEUE_AND_TYPE, "count": total}}
            rows = yield Request(self.context.jobs, "aggregate", ([{"$match": {"state": state}}, group],))
            tallies += [Tally(**row["_id"], count=row["count"]) for row in rows]
        group = {"$group": {"_id": BY_QUEUE_AND_TYPE, "count": {"$sum": "$count"}}}
        rows = yield Request(self.context.tallies, "aggregate", ([group],))
        return Counts([*tallies, *(Tally(**row["_id"], count=row["count"]) for row in rows)])

    def paused(self) -> Operation[builtins.list[str]]:
        rows = yield Request(self.context.queues, "find", (IS_PAUSED,), {"sort": [("_id", 1)]}, alone=True)
        return [row["_id"] for row in rows]

    def live_queues(self) -> Operation[builtins.list[str]]:
        """One step through the ready index for each queue, however many jobs it has."""
        pipeline = [{"$match": {"state": PENDING, "run_at": ANY_MOMENT}}, {"$group": {"_id": "$queue"}}]
        rows = yield Request(self.context.jobs, "aggregate", (pipeline,), {"hint": "ready"}, alone=True)
        return sorted(row["_id"] for row in rows)

    def head(self, tenant: str, order_key: str) -> Operation[Job | None]:
        filter = {"tenant": tenant, "order_key": order_key, "lane": HEAD}
        rows = yield Request(self.context.jobs, "find", (filter,), alone=True)
        return self.context.documents.to_job(rows[0]) if rows else None

    def ends(self, chains: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        found = yield from self._ends(chains)
        # A read outside a transaction is no snapshot: a chain may have got its next job during the read.
        gone_on = [job.chain_id for job in found if job.went_on]
        if gone_on:
            found = [job for job in found if not job.went_on] + (yield from self._ends(gone_on))
        return found

    def _ends(self, chains: Sequence[UUID]) -> Operation[builtins.list[Job]]:
        rows = yield self.context.find_chains([*chains], {"state": 1, "chain_id": 1, "chain_index": 1}, alone=True)
        last = [row["_id"] for row in last_of_each(rows) if row["state"] in FINISHED]
        ended = {"_id": {"$in": last}, "state": {"$in": sorted(FINISHED)}}
        rows = (yield self.context.find_jobs(ended, size=len(last))) if last else ()
        return [self.context.documents.to_job(row) for row in rows]

    def watch(self, chains: Sequence[UUID]) -> Operation[None]:
        if chains:
            members = [{"_id": {"$in": [*chains]}}, {"chain_id": {"$in": [*chains]}, "chain_index": {"$gt": 0}}]
            live = {"$or": members, "state": {"$in": sorted(LIVE)}}
            yield Request(self.context.jobs, "update_many", (live, {"$inc": {"linked": 1}}), alone=True)

    def blockers(self, ids: Sequence[UUID]) -> Operation[dict[UUID, builtins.list[Blocker]]]:
        options = {"sort": [("job", 1), ("position", 1)], "batch_size": 10_000}
        edges = yield Request(self.context.edges, "find", ({"job": {"$in": [*ids]}},), options, alone=True)
        found: dict[UUID, builtins.list[Blocker]] = {}
        for edge in edges:
            more = edge.get("output"), edge.get("failed", False), edge.get("trace")
            found.setdefault(edge["job"], []).append(Blocker(edge["chain_id"], edge["done"], *more))
        return found


def conditions(filter: Filter, before: Bookmark | None, kept: Sequence[UUID] = ()) -> Document:
    """`kept`: the jobs of the records that hold the filter's unique key."""
    given = {"state": filter.state, "type": filter.type, "queue": filter.queue, "tenant": filter.tenant}
    query: Document = {name: value for name, value in given.items() if value is not None}
    either: builtins.list[Document] = []
    if filter.state in FINISHED:
        query["finished_at"] = {"$exists": True}  # so that the server uses the index of finished jobs
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
    if filter.chain is not None:  # the id of a chain is that of its first job; the index has the others
        query["$or"] = [{"_id": filter.chain}, {"chain_id": filter.chain, "chain_index": {"$gt": 0}}]
    return query
