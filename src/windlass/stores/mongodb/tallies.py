"""How many finished jobs there are, without counting them.

Tally documents say what was added to (queue, type, state); upkeep folds them into one document each. Jobs expire, by
a TTL index: therefore tallies expire too, with what they count. So that they can be folded, their moments are rounded
up to about half a percent of the time for which their jobs are kept.

What is written in a transaction is counted in it. Plain settlements have none, so that they count in two steps:
before them a tally is announced, with the ids that it is about; after them it is confirmed. Each job bears the mark
of the batch that finished it. Where the process or its connection dies in between, upkeep finds what was announced
long ago, and counts which of its jobs bear the mark.
Neither step waits for a majority: the settlement between them does, and the server keeps the order. If a fail-over
undoes the confirmation, the announcement is left, and that is looked after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from bson import ObjectId
from bson.binary import Binary
from pymongo import UpdateOne

from ...clock import EPOCH
from ...lifecycle import State
from ...operation import Operation, Request
from .base import Base, Hurried
from .documents import Document

FINEST, COARSEST = 1, 3600  # seconds
FOLDED_AT_ONCE = 10_000
FORGOTTEN = timedelta(minutes=5)  # an announcement that nobody will confirm any more
RECOUNTED_AT_ONCE = 100
ANNOUNCED = dict.fromkeys(("ids", "mark", "since"), "")


class Slot(NamedTuple):
    """What is counted together. `purge_at` None: kept for ever."""

    queue: str
    type: str
    state: State
    purge_at: datetime | None


def slot_of(queue: str, type: str, state: State, purge_at: datetime | None, keep_seconds: int) -> Slot:
    if purge_at is None:
        return Slot(queue, type, state, None)
    width = min(max(keep_seconds // 200, FINEST), COARSEST)
    seconds = -(-(purge_at - EPOCH) // timedelta(seconds=1))
    return Slot(queue, type, state, EPOCH + timedelta(seconds=-(-seconds // width) * width))


def slot_of_finished(document: Document) -> Slot:
    """Where a finished job was counted."""
    purge_at, keep_seconds = document.get("purge_at"), document.get("keep_seconds", 0)
    return slot_of(document["queue"], document["type"], document["state"], purge_at, keep_seconds)


class Tallies(Base):
    def add_tallies(self, counts: Mapping[Slot, int]) -> Operation[None]:
        """Insert only: no two transactions ever wait for each other here."""
        documents = [{**_fields(slot), "count": count, "raw": True} for slot, count in counts.items() if count]
        if documents:
            yield Request(self.tallies, "insert_many", (documents,), {"ordered": False})

    # Outside transactions

    def announce(
        self, members: Mapping[Slot, Sequence[Binary]], mark: ObjectId, now: datetime
    ) -> Operation[list[ObjectId]]:
        """What is going to be finished, and bear this mark; one answer for each slot, to confirm it with."""
        documents = [
            {"_id": ObjectId(), **_fields(slot), "announced": len(ids), "ids": ids, "mark": mark, "since": now}
            for slot, ids in members.items()
        ]
        if documents:
            yield Hurried(self.tallies, "insert_many", (documents,), {"ordered": False}, alone=True)
        return [document["_id"] for document in documents]

    def confirm(self, announced: Sequence[ObjectId]) -> Operation[None]:
        """It was done as it was announced."""
        if announced:
            change = {"$rename": {"announced": "count"}, "$set": {"raw": True}, "$unset": ANNOUNCED}
            filter = {"_id": {"$in": announced}, "since": {"$exists": True}}
            # A majority has it when the settlement returns: whoever counts then, with majority reads, sees it.
            yield Request(self.tallies, "update_many", (filter, change), alone=True)

    def correct(self, counted: Mapping[ObjectId, int], *, alone: bool) -> Operation[None]:
        """It was done in part."""
        changes = [
            UpdateOne(
                {"_id": id, "since": {"$exists": True}},
                {"$set": {"count": count, "raw": True}, "$unset": {"announced": "", **ANNOUNCED}},
            )
            for id, count in counted.items()
        ]
        if changes:
            yield Request(self.tallies, "bulk_write", (changes,), {"ordered": False}, alone)

    # Upkeep

    def recount_forgotten(self, now: datetime) -> Operation[None]:
        """Look at the jobs of what was announced and neither confirmed nor corrected: it counts those that bear its
        mark. (A job that was deleted or brought back since bears it no more, and that was counted too: by such a job
        the count stays off.)"""
        filter = {"since": {"$lt": now - FORGOTTEN}}
        forgotten = yield Request(self.tallies, "find", (filter,), {"limit": RECOUNTED_AT_ONCE})
        counted: dict[ObjectId, int] = {}
        for one in forgotten:
            marked = {"_id": {"$in": one["ids"]}, "counted_by": one["mark"]}
            pipeline = [{"$match": marked}, {"$count": "count"}]
            rows = yield Request(self.jobs, "aggregate", (pipeline,), {"hint": "_id_"})
            counted[one["_id"]] = rows[0]["count"] if rows else 0
        yield from self.correct(counted, alone=False)

    def fold_tallies(self) -> Operation[None]:
        raw = yield Request(self.tallies, "find", ({"raw": True},), {"limit": FOLDED_AT_ONCE, "batch_size": 10_001})
        if not raw:
            return
        sums: Counter[Slot] = Counter()
        for one in raw:
            sums[Slot(one["queue"], one["type"], one["state"], one.get("purge_at"))] += one["count"]
        folds = [
            UpdateOne({"_id": _fields(slot)}, {"$inc": {"count": count}, "$setOnInsert": _fields(slot)}, upsert=True)
            for slot, count in sums.items()
        ]
        yield Request(self.tallies, "bulk_write", (folds,), {"ordered": False})
        yield Request(self.tallies, "delete_many", ({"_id": {"$in": [one["_id"] for one in raw]}},))


def _fields(slot: Slot) -> dict[str, Any]:
    return {name: value for name, value in slot._asdict().items() if value is not None}
