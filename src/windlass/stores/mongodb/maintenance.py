"""Maintenance: delete jobs that are no longer kept. The server's TTL monitor does the same about once a minute; this
happens at once, and by the store's clock."""

from __future__ import annotations

from ...operation import Operation, Request
from .context import Context, Part
from .tallies import Tallies

EDGES_LOOKED_AT = 1000
ROUNDS = 10
COUNTED = dict.fromkeys(("queue", "type", "state", "purge_at", "keep_seconds", "counted_by"), 1)


class Maintenance(Part):
    """Operations `prune` and `vacuum`."""

    def __init__(self, context: Context, tallies: Tallies) -> None:
        super().__init__(context)
        self.tallies = tallies

    def prune(self, limit: int) -> Operation[int]:
        yield from self._prune_edges()
        now = yield from self.context.read_now()
        past = {"batch_size": max(limit, 1) + 1, "limit": max(limit, 1)}
        rows = yield Request(self.context.jobs, "find", ({"purge_at": {"$lte": now}}, COUNTED), past)
        if rows:
            ids = [row["_id"] for row in rows]
            yield Request(self.context.jobs, "delete_many", ({"_id": {"$in": ids}},))
            yield Request(self.context.edges, "delete_many", ({"job": {"$in": ids}},))
            yield from self.tallies.uncount(rows)
        ended = yield Request(self.context.keys, "find", ({"ends_at": {"$lte": now}}, {"_id": 1}), past)
        if ended:
            yield Request(self.context.keys, "delete_many", ({"_id": {"$in": [row["_id"] for row in ended]}},))
        yield from self.tallies.recount_forgotten(now)
        yield from self.tallies.fold()
        return len(rows)

    def _prune_edges(self) -> Operation[None]:
        """Delete the edges of jobs that the TTL monitor has deleted. It reads a sample of edges, and more samples as
        long as many edges have to go."""
        sample = [{"$sample": {"size": EDGES_LOOKED_AT}}, {"$group": {"_id": "$job"}}]
        for _ in range(ROUNDS):
            rows = yield Request(self.context.edges, "aggregate", (sample,), alone=True)
            jobs = {row["_id"] for row in rows}
            found = (
                (yield self.context.find_jobs({"_id": {"$in": [*jobs]}}, {"_id": 1}, size=len(jobs))) if jobs else ()
            )
            gone = jobs.difference(row["_id"] for row in found)
            if gone:
                yield Request(self.context.edges, "delete_many", ({"job": {"$in": [*gone]}},), alone=True)
            if len(gone) * 4 <= len(jobs):
                break

    def vacuum(self) -> Operation[None]:
        """Nothing: the storage engine reuses the space of deleted documents by itself. `compact` would return it to the
        operating system; that needs the rights of an administrator, and is an administrator's decision."""
        yield from ()
