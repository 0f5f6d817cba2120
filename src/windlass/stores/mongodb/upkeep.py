"""Removing what is no longer kept. The server's TTL monitor does the same, about once a minute; this is at once, and
by our clock."""

from __future__ import annotations

from collections import Counter

from ...operation import Operation, Request
from .tallies import Slot, Tallies, slot_of_finished

COUNTED = dict.fromkeys(("queue", "type", "state", "purge_at", "keep_seconds"), 1)


class Upkeep(Tallies):
    def prune(self, limit: int) -> Operation[int]:
        now = yield from self.read_now()
        past = {"batch_size": max(limit, 1) + 1, "limit": max(limit, 1)}
        rows = yield Request(self.jobs, "find", ({"purge_at": {"$lte": now}}, COUNTED), past)
        if rows:
            counts: Counter[Slot] = Counter()
            for row in rows:
                counts[slot_of_finished(row)] -= 1
            yield Request(self.jobs, "delete_many", ({"_id": {"$in": [row["_id"] for row in rows]}},))
            yield from self.add_tallies(counts)
        ended = yield Request(self.keys, "find", ({"ends_at": {"$lte": now}}, {"_id": 1}), past)
        if ended:
            yield Request(self.keys, "delete_many", ({"_id": {"$in": [row["_id"] for row in ended]}},))
        yield from self.recount_forgotten(now)
        yield from self.fold_tallies()
        return len(rows)

    def vacuum(self) -> Operation[None]:
        """Nothing: the storage engine reuses the space of what was deleted by itself. Giving it back to the operating
        system is `compact`, which needs an administrator's rights and is an administrator's decision."""
        yield from ()
