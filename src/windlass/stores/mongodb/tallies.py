"""How many finished jobs there are, without counting them.

Tally documents say what was added to (queue, type, state); upkeep folds them into one document each. Jobs expire, by
a TTL index: therefore tallies expire too, with what they count. So that they can be folded, their moments are rounded
up to about half a percent of the time for which their jobs are kept.

What is written in a transaction is counted in it. Plain settlements have none, so that they count in two steps:
before them a tally is announced, with the ids that it is about; after them it is confirmed. Each job bears the mark
of the batch that finished it. Where the process or its connection dies in between, upkeep finds what was announced
long ago, and counts which of its jobs bear the mark. Whoever takes a finished job away before that (it is deleted, or
brought back) notes it on the announcement: it bore the mark.
Neither step waits for a majority: the settlement between them does, and the server keeps the order. If a fail-over
undoes the confirmation, the announcement is left, and that is looked after.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from bson import ObjectId
from bson.binary import Binary
from pymongo import UpdateOne

from ...clock import EPOCH
from ...lifecycle import State
from ...operation import Operation, Request
from .context import Hurried, Part
from .documents import Document, to_key

FINEST, COARSEST = 1, 3600  # seconds
FOLDED_AT_ONCE = 10_000
FORGOTTEN = timedelta(minutes=5)  # an announcement that nobody will confirm any more
RECOUNTED_AT_ONCE = 100
ANNOUNCED = ("ids", "mark", "since", "taken_away")


class Slot(NamedTuple):
    """What is counted together. `purge_at` None: kept for ever."""

    queue: str
    type: str
    state: State
    purge_at: datetime | None


def slot_of(queue: str, type: str, state: State, purge_at: datetime | None, keep_seconds: int) -> Slot:
    """`keep_seconds`: as the job's document has it."""
    if purge_at is None:
        return Slot(queue, type, state, None)
    width = min(max(keep_seconds // 200, FINEST), COARSEST)
    seconds = -(-(purge_at - EPOCH) // timedelta(seconds=1))
    return Slot(queue, type, state, EPOCH + timedelta(seconds=-(-seconds // width) * width))


def slot_of_finished(document: Document) -> Slot:
    """Where a finished job was counted."""
    purge_at, keep_seconds = document.get("purge_at"), document.get("keep_seconds", 0)
    return slot_of(document["queue"], document["type"], document["state"], purge_at, keep_seconds)


class Tallies(Part):
    def add(self, counts: Mapping[Slot, int]) -> Operation[None]:
        """Insert only: no two transactions ever wait for each other here."""
        documents = [{**_fields(slot), "count": count, "raw": True} for slot, count in counts.items() if count]
        if documents:
            yield Request(self.context.tallies, "insert_many", (documents,), {"ordered": False})

    def uncount(self, gone: Sequence[Document]) -> Operation[None]:
        """Of finished jobs, as they were, that this transaction deletes or brings back."""
        counts = Counter[Slot]()
        counts.subtract(map(slot_of_finished, gone))
        yield from self.add(counts)
        taken_away: defaultdict[ObjectId, list[UUID]] = defaultdict(list)
        for document in gone:
            if "counted_by" in document:
                taken_away[document["counted_by"]].append(document["_id"])
        if not taken_away:
            return
        announced = {"since": {"$exists": True}, "mark": {"$in": [*taken_away]}}
        for one in (yield Request(self.context.tallies, "find", (announced, {"mark": 1}))):
            change = {"$push": {"taken_away": {"$each": taken_away[one["mark"]]}}}
            yield Request(self.context.tallies, "update_one", ({"_id": one["_id"], **announced}, change))

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
            yield Hurried(self.context.tallies, "insert_many", (documents,), {"ordered": False}, alone=True)
        return [document["_id"] for document in documents]

    def confirm(self, announced: Sequence[ObjectId]) -> Operation[None]:
        """It was done as it was announced."""
        if announced:
            change = {"$rename": {"announced": "count"}, "$set": {"raw": True}, "$unset": dict.fromkeys(ANNOUNCED, "")}
            filter = {"_id": {"$in": announced}, "since": {"$exists": True}}
            # A majority has it when the settlement returns: whoever counts then, with majority reads, sees it.
            yield Request(self.context.tallies, "update_many", (filter, change), alone=True)

    def correct(self, written: Mapping[ObjectId, Sequence[UUID]], *, alone: bool) -> Operation[None]:
        """It was done in part: these jobs of each announcement bear its mark, and those that were taken away did."""
        changes = [
            UpdateOne(
                {"_id": id, "since": {"$exists": True}},
                [
                    {"$set": {"count": _size_with_taken_away(jobs), "raw": True}},
                    {"$unset": ["announced", *ANNOUNCED]},
                ],
            )
            for id, jobs in written.items()
        ]
        if changes:
            yield Request(self.context.tallies, "bulk_write", (changes,), {"ordered": False}, alone)

    # Upkeep

    def recount_forgotten(self, now: datetime) -> Operation[None]:
        """Look at the jobs of what was announced and neither confirmed nor corrected."""
        filter = {"since": {"$lt": now - FORGOTTEN}}
        forgotten = yield Request(self.context.tallies, "find", (filter,), {"limit": RECOUNTED_AT_ONCE})
        written: dict[ObjectId, list[UUID]] = {}
        for one in forgotten:
            marked = {"_id": {"$in": one["ids"]}, "counted_by": one["mark"]}
            options = {"hint": "_id_", "batch_size": len(one["ids"]) + 1}
            rows = yield Request(self.context.jobs, "find", (marked, {"_id": 1}), options)
            written[one["_id"]] = [row["_id"] for row in rows]
        yield from self.correct(written, alone=False)

    def fold(self) -> Operation[None]:
        raw = yield Request(
            self.context.tallies, "find", ({"raw": True},), {"limit": FOLDED_AT_ONCE, "batch_size": 10_001}
        )
        if not raw:
            return
        sums: Counter[Slot] = Counter()
        for one in raw:
            sums[Slot(one["queue"], one["type"], one["state"], one.get("purge_at"))] += one["count"]
        folds = [
            UpdateOne({"_id": _fields(slot)}, {"$inc": {"count": count}, "$setOnInsert": _fields(slot)}, upsert=True)
            for slot, count in sums.items()
        ]
        yield Request(self.context.tallies, "bulk_write", (folds,), {"ordered": False})
        yield Request(self.context.tallies, "delete_many", ({"_id": {"$in": [one["_id"] for one in raw]}},))


def _fields(slot: Slot) -> dict[str, Any]:
    return {name: value for name, value in slot._asdict().items() if value is not None}


def _size_with_taken_away(jobs: Sequence[UUID]) -> dict[str, Any]:
    """As an expression. A job may be among both, if it was taken away after we looked; and of what was taken away from
    the batch, some may be counted elsewhere."""
    taken_away = {"$setIntersection": ["$ids", {"$ifNull": ["$taken_away", []]}]}
    return {"$size": {"$setUnion": [{"$literal": [to_key(id) for id in jobs]}, taken_away]}}
