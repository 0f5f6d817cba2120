"""Tallies: the number of finished jobs, without counting them.

A tally document has the number of jobs that were added to (queue, type, state); maintenance folds them into one
document each. A TTL index deletes finished jobs, so it deletes their tallies at the same time. So that tallies can be
folded, their times are rounded up to about half a percent of the time for which the jobs are kept.

Writes in a transaction are counted in it. Plain settlements have no transaction, so they are counted in two steps:
before the settlement a tally is announced, with the ids of its jobs; after it the tally is confirmed. Each job has the
mark of the batch that finished it. If the process or its connection dies in between, maintenance finds the old
announcement and counts the jobs that have the mark. An operation that removes a finished job before that (delete,
retry) notes it on the announcement. Neither step waits for a majority: the settlement between them does, and the server
keeps the order. If a fail-over undoes the confirmation, the announcement remains, and maintenance counts it.
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
from ...policy import KEEP_SECONDS
from .context import Hurried, Part
from .documents import Document, keep_seconds_of, to_key

FINEST, COARSEST = 1, 3600  # seconds
FOLDED_AT_ONCE = 10_000
FORGOTTEN = timedelta(minutes=5)  # after this time an announcement will not be confirmed any more
RECOUNTED_AT_ONCE = 100
ANNOUNCED = ("ids", "mark", "since", "taken_away")


class Slot(NamedTuple):
    """Jobs that are counted together. `purge_at` None: kept for ever."""

    queue: str
    type: str
    state: State
    purge_at: datetime | None


def slot_of(queue: str, type: str, state: State, purge_at: datetime | None, keep_seconds: int | None) -> Slot:
    """`keep_seconds`: that of the job's document. The state does not change the width."""
    if purge_at is None:
        return Slot(queue, type, state, None)
    seconds_kept = KEEP_SECONDS if keep_seconds is None else keep_seconds
    width = min(max(seconds_kept // 200, FINEST), COARSEST)
    seconds = -(-(purge_at - EPOCH) // timedelta(seconds=1))
    return Slot(queue, type, state, EPOCH + timedelta(seconds=-(-seconds // width) * width))


def slot_of_finished(document: Document) -> Slot:
    """The slot in which a finished job was counted."""
    kind = document["queue"], document["type"], document["state"]
    return slot_of(*kind, document.get("purge_at"), keep_seconds_of(document))


class Tallies(Part):
    def add(self, counts: Mapping[Slot, int]) -> Operation[None]:
        """Insert only, so that no two transactions wait for each other here."""
        documents = [{**_fields(slot), "count": count, "raw": True} for slot, count in counts.items() if count]
        if documents:
            yield Request(self.context.tallies, "insert_many", (documents,), {"ordered": False})

    def uncount(self, gone: Sequence[Document]) -> Operation[None]:
        """Subtract finished jobs that this transaction deletes or retries; `gone`: the jobs as they were."""
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
        """Announce the jobs that will be finished with this mark; one id for each slot, to confirm it with."""
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
            # A majority has it when the settlement returns, so a majority read after that sees it.
            yield Request(self.context.tallies, "update_many", (filter, change), alone=True)

    def correct(self, written: Mapping[ObjectId, Sequence[UUID]], *, alone: bool) -> Operation[None]:
        """A batch was written in part: of each announcement, these jobs have the mark, and removed jobs had it."""
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

    # Maintenance

    def recount_forgotten(self, now: datetime) -> Operation[None]:
        """Count the jobs of announcements that were neither confirmed nor corrected."""
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
    """As an expression. A job may be in both lists, if it was removed after our read; and some of the removed jobs of
    the batch may be counted in another tally."""
    taken_away = {"$setIntersection": ["$ids", {"$ifNull": ["$taken_away", []]}]}
    return {"$size": {"$setUnion": [{"$literal": [to_key(id) for id in jobs]}, taken_away]}}
