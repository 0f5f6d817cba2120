"""Order keys: the jobs of one key stand in one line, with one of them at the head.

Admission puts a job into the line and writes on the head in the same transaction. The end of the head is a transaction,
too. So either the end sees the jobs in line, or the two conflict. Then the end tries again and sees them; or admission
leaves that line for later, when there is another head, or none, and then makes one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pymongo import UpdateMany, UpdateOne

from ...lifecycle import PENDING
from ...operation import Operation, Request, Transient
from .context import Part
from .documents import HEAD, IN_LINE, NOT_DUE, Document, OrderKey, order_key_of
from .skip_locked import by_halves

TO_HEAD: list[dict[str, Any]] = [{"$set": {"lane": HEAD, "run_at": "$due_at"}}]
TRIES = 5  # for a line whose first job is gone after each read


class First(NamedTuple):
    """The first job in a line."""

    id: UUID
    queue: str
    key: OrderKey


class LinedUp(NamedTuple):
    """The result for arriving jobs: the queues of the new heads, the number of jobs that are in line now, and the keys
    whose lines could not be changed."""

    queues: set[str]
    placed: int
    busy: set[OrderKey]


class OrderKeys(Part):
    def line_up(self, arrivals: Sequence[Document]) -> Operation[LinedUp]:
        """Put due jobs into the lines of their keys.

        They count as arriving until all is done: after a crash, the next admission does it again. If another
        transaction has locked the head of a line, or an arriving job, that line stays as it is.
        """
        arriving: defaultdict[OrderKey, list[UUID]] = defaultdict(list)
        for document in arrivals:
            arriving[order_key_of(document)].append(document["_id"])
        _, locked = yield from by_halves(sorted(arriving), lambda keys: self._put_in_line(keys, arriving))
        keys, busy = arriving.keys() - set(locked), set(locked)
        queues: set[str] = set()
        for _ in range(TRIES):
            first = yield from self._first_without_head(keys)
            made, locked_first = yield from by_halves(first, self._make_heads)
            queues |= {one.queue for one in first if one not in locked_first}
            if sum(made) == len(first):
                break
        else:
            first = yield from self._first_without_head(keys)
            busy |= {one.key for one in first}
        ids = [id for key in keys - busy for id in arriving[key]]
        _, unsure = yield from by_halves(ids, self._arrived)
        return LinedUp(queues, len(ids) - len(unsure), busy)

    def _put_in_line(self, keys: Sequence[OrderKey], arriving: Mapping[OrderKey, Sequence[UUID]]) -> Operation[None]:
        """Put the jobs of some keys into their lines, and mark the head of each line that gets longer."""
        ids = [id for key in keys for id in arriving[key]]
        due = {"_id": {"$in": ids}, "state": PENDING, "lane": NOT_DUE, **self.due_by_now}
        rows = yield self.context.find_jobs(due, {"tenant": 1, "order_key": 1}, size=len(ids), alone=False)
        if not rows:
            return  # another process was quicker
        placed = [{"$set": {"lane": IN_LINE, "place": "$due_at"}}]
        heads = in_lane({order_key_of(row) for row in rows}, HEAD)
        marks = [UpdateMany(head, {"$inc": {"followed": 1}}) for head in heads]
        found = {"_id": {"$in": [row["_id"] for row in rows]}}
        yield Request(self.context.jobs, "bulk_write", ([UpdateMany(found, placed, hint="_id_"), *marks],))

    def _arrived(self, ids: Sequence[UUID]) -> Operation[None]:
        in_line = {"_id": {"$in": [*ids]}, "arriving": "in line", "lane": {"$ne": NOT_DUE}}
        yield Request(self.context.jobs, "update_many", (in_line, {"$unset": {"arriving": ""}}))

    @property
    def due_by_now(self) -> Document:
        return {"$expr": {"$lte": ["$due_at", self.context.now_expression]}}

    def _first_without_head(self, keys: Collection[OrderKey]) -> Operation[list[First]]:
        led: set[OrderKey] = set()
        for heads in in_lane(keys, HEAD):
            rows = yield Request(self.context.jobs, "find", (heads, {"tenant": 1, "order_key": 1}), alone=True)
            led |= {order_key_of(row) for row in rows}
        return (yield from self._first_in(set(keys) - led, alone=True))

    def _first_in(self, keys: Collection[OrderKey], *, alone: bool) -> Operation[list[First]]:
        """One step through the index for each line, however long it is."""
        first: list[First] = []
        order = {"order_key": 1, "place": 1, "arrival": 1}
        group = {"_id": "$order_key", "id": {"$first": "$_id"}, "queue": {"$first": "$queue"}}
        for line in in_lane(keys, IN_LINE):
            pipeline = [{"$match": line}, {"$sort": order}, {"$group": group}]
            rows = yield Request(self.context.jobs, "aggregate", (pipeline,), {"hint": "line"}, alone)
            first += [First(row["id"], row["queue"], (line["tenant"], row["_id"])) for row in rows]
        return first

    def _make_heads(self, first: Sequence[First]) -> Operation[int]:
        """The number of new heads; another process may have been quicker, with another first job."""
        writes = [UpdateOne({"_id": one.id, "lane": IN_LINE}, TO_HEAD) for one in first]
        (result,) = yield Request(self.context.jobs, "bulk_write", (writes,), {"ordered": False})
        return int(result.matched_count)

    def promote(self, keys: Collection[OrderKey]) -> Operation[set[str]]:
        """Make the first job in line the head, for keys whose head has ended in this transaction; the queues of the new
        heads."""
        first = yield from self._first_in(keys, alone=False)
        if first:
            filter = {"_id": {"$in": [one.id for one in first]}, "lane": IN_LINE}
            (result,) = yield Request(self.context.jobs, "update_many", (filter, TO_HEAD), {"hint": "_id_"})
            if result.matched_count != len(first):
                raise Transient("the next in line has gone")
        return {one.queue for one in first}


def in_lane(keys: Collection[OrderKey], lane: int) -> list[Document]:
    """Filters for the jobs of these keys that are in this lane."""
    by_tenant: defaultdict[str, list[str]] = defaultdict(list)
    for tenant, order_key in sorted(keys):
        by_tenant[tenant].append(order_key)
    return [{"lane": lane, "tenant": tenant, "order_key": {"$in": those}} for tenant, those in by_tenant.items()]
