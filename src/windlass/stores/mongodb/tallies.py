"""How many finished jobs there are, without counting them.

Each settlement inserts a few tally documents, which say what was added to (queue, type, state); upkeep folds them
into one document each. Jobs expire, by a TTL index: therefore tallies expire too, with what they count. So that they
can be folded, their moments are rounded up to about half a percent of the time for which their jobs are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pymongo import UpdateOne

from ...clock import EPOCH
from ...lifecycle import State
from ...operation import Operation, Request
from .base import Base
from .documents import Document

FINEST, COARSEST = 1, 3600  # seconds
FOLDED_AT_ONCE = 10_000


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
        """Insert only: no two settlements ever wait for each other here."""
        documents = [{**_fields(slot), "count": count, "raw": True} for slot, count in counts.items() if count]
        if documents:
            yield Request(self.tallies, "insert_many", (documents,), {"ordered": False})

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
