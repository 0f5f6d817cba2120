"""Lanes: the jobs of one order key, in one line, with one of them at the head.

No write spans a line. Whoever lets a job into it writes on its head afterwards; whoever ends the head does so in a
transaction. So either he that ends it sees who is in line, or the two collide: then he tries again, and sees it; or the
other waits for his commit, finds no head any more, and makes one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pymongo import UpdateOne

from ...lifecycle import PENDING
from ...operation import Operation, Request, Transient
from .base import Base
from .documents import HEAD, IN_LINE, NOT_DUE, Document, Lane, lane_of
from .failures import Duplicate

TO_HEAD: list[dict[str, Any]] = [{"$set": {"lane": HEAD, "run_at": "$due_at"}}]
TRIES = 5  # for a line whose first is gone whenever we look


class First(NamedTuple):
    """Who is next in a line."""

    id: UUID
    queue: str


class Lanes(Base):
    def line_up(self, arrivals: Sequence[Document]) -> Operation[set[str]]:
        """Let due jobs into the lines of their keys; the queues of those that are heads now.

        They count as arriving until all is done: whoever comes after a crash does it again.
        """
        ids = [document["_id"] for document in arrivals]
        lanes = {lane_of(document) for document in arrivals}
        due = {"_id": {"$in": ids}, "state": PENDING, "lane": NOT_DUE, **self.due_by_now}
        placed = [{"$set": {"lane": IN_LINE, "place": "$due_at"}}]
        yield Request(self.jobs, "update_many", (due, placed), alone=True)
        for heads in of_lanes(lanes, HEAD):
            yield Request(self.jobs, "update_many", (heads, {"$inc": {"followed": 1}}), alone=True)
        queues: set[str] = set()
        for _ in range(TRIES):
            first = yield from self._first_without_head(lanes)
            made = (yield from self._make_heads(first)) if first else 0
            queues |= {one.queue for one in first}
            if made == len(first):
                arrived = {"_id": {"$in": ids}, "arriving": "in line", "lane": {"$ne": NOT_DUE}}
                yield Request(self.jobs, "update_many", (arrived, {"$unset": {"arriving": ""}}), alone=True)
                break
        return queues

    @property
    def due_by_now(self) -> Document:
        return {"$expr": {"$lte": ["$due_at", self.now_expression]}}

    def _first_without_head(self, lanes: Collection[Lane]) -> Operation[list[First]]:
        led: set[Lane] = set()
        for heads in of_lanes(lanes, HEAD):
            rows = yield Request(self.jobs, "find", (heads, {"tenant": 1, "order_key": 1}), alone=True)
            led |= {lane_of(row) for row in rows}
        return (yield from self._first_in(set(lanes) - led, alone=True))

    def _first_in(self, lanes: Collection[Lane], *, alone: bool) -> Operation[list[First]]:
        """One step through the index for each line, however long it is."""
        first: list[First] = []
        order = {"order_key": 1, "place": 1, "arrival": 1}
        group = {"_id": "$order_key", "id": {"$first": "$_id"}, "queue": {"$first": "$queue"}}
        for line in of_lanes(lanes, IN_LINE):
            pipeline = [{"$match": line}, {"$sort": order}, {"$group": group}]
            rows = yield Request(self.jobs, "aggregate", (pipeline,), {"hint": "line"}, alone)
            first += [First(row["id"], row["queue"]) for row in rows]
        return first

    def _make_heads(self, first: Sequence[First]) -> Operation[int]:
        """How many became heads; others may be quicker, with another first."""
        writes = [UpdateOne({"_id": one.id, "lane": IN_LINE}, TO_HEAD) for one in first]
        try:
            (result,) = yield Request(self.jobs, "bulk_write", (writes,), {"ordered": False}, alone=True)
        except Duplicate:
            return -1
        return int(result.matched_count)

    def promote(self, lanes: Collection[Lane]) -> Operation[set[str]]:
        """Give lanes whose head has ended, in this transaction, their next one; the queues of those."""
        first = yield from self._first_in(lanes, alone=False)
        if first:
            filter = {"_id": {"$in": [one.id for one in first]}, "lane": IN_LINE}
            (result,) = yield Request(self.jobs, "update_many", (filter, TO_HEAD), {"hint": "_id_"})
            if result.matched_count != len(first):
                raise Transient("the next in line has gone")
        return {one.queue for one in first}


def of_lanes(lanes: Collection[Lane], place: int) -> list[Document]:
    """Filters for the jobs that have this place in one of these lanes."""
    by_tenant: defaultdict[str, list[str]] = defaultdict(list)
    for tenant, order_key in sorted(lanes):
        by_tenant[tenant].append(order_key)
    return [{"lane": place, "tenant": tenant, "order_key": {"$in": keys}} for tenant, keys in by_tenant.items()]
