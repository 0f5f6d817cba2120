"""Workers: which are alive, and when the next job is due for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ...lifecycle import PENDING
from ...operation import Operation, Request
from ..store import WorkerInfo
from .context import ANY_MOMENT, IS_PAUSED, Part
from .documents import Document


class Workers(Part):
    """Operations `now`, `next_due`, `stuck`, `beat`, `farewell`, `workers`."""

    def now(self) -> Operation[datetime]:
        return (yield from self.context.read_now())

    def stuck(self, queues: Sequence[str], types: Sequence[str]) -> Operation[list[str]]:
        due: Document = {"state": PENDING, "queue": {"$in": [*queues]}, "run_at": ANY_MOMENT}
        due["$expr"] = {"$lte": ["$run_at", self.context.now_expression]}
        known = {"$max": {"$in": ["$type", {"$literal": [*types]}]}}
        paused = {"from": self.context.queues, "localField": "_id", "foreignField": "_id", "as": "queue"}
        pipeline: list[Document] = [
            {"$match": due},
            {"$group": {"_id": "$queue", "known": known}},
            {"$lookup": paused},
            {"$match": {"$or": [{"known": False}, {"queue": {"$elemMatch": IS_PAUSED}}]}},
        ]
        rows = yield Request(self.context.jobs, "aggregate", (pipeline,), {"hint": "ready"}, alone=True)
        return sorted(row["_id"] for row in rows)

    def next_due(self, queues: Sequence[str]) -> Operation[float | None]:
        """Through the ready index, one probe for each priority in use, however many jobs wait. Jobs with an order key,
        of any queue, have to be admitted when they are due."""
        seconds: list[float] = []
        for queue in queues:
            pipeline = [
                {"$match": {"state": PENDING, "queue": queue, "run_at": ANY_MOMENT}},
                {"$sort": {"rank": 1, "run_at": 1}},
                {"$group": {"_id": "$rank", "run_at": {"$first": "$run_at"}}},
                {"$group": {"_id": None, "run_at": {"$min": "$run_at"}}},
                {"$project": self._seconds_until("$run_at")},
            ]
            rows = yield Request(self.context.jobs, "aggregate", (pipeline,), {"hint": "ready"}, alone=True)
            seconds += [float(row["seconds"]) for row in rows]
        later = {"$expr": {"$gt": ["$due_at", self.context.now_expression]}}
        first: list[Document] = [
            {"$match": {"arriving": "in line", **later}},
            {"$sort": {"arriving": 1, "due_at": 1}},
            {"$limit": 1},
            {"$project": self._seconds_until("$due_at")},
        ]
        rows = yield Request(self.context.jobs, "aggregate", (first,), {"hint": "arriving"}, alone=True)
        seconds += [float(row["seconds"]) for row in rows]
        return min(seconds, default=None)

    def _seconds_until(self, moment: str) -> Document:
        return {"seconds": {"$divide": [{"$subtract": [moment, self.context.now_expression]}, 1000]}}

    def beat(self, worker: WorkerInfo, gone_seconds: float) -> Operation[None]:
        now = yield from self.context.read_now()
        long_ago = {"heard_at": {"$lt": now - timedelta(seconds=gone_seconds)}}
        yield Request(self.context.workers, "delete_many", (long_ago,), alone=True)
        change = {
            "$set": {"details": msgspec.json.encode(worker).decode(), "heard_at": now},
            "$setOnInsert": {"started_at": now},
        }
        yield Request(self.context.workers, "update_one", ({"_id": worker.name}, change), {"upsert": True}, alone=True)

    def farewell(self, name: str) -> Operation[None]:
        yield Request(self.context.workers, "delete_one", ({"_id": name},), alone=True)

    def workers(self) -> Operation[list[WorkerInfo]]:
        options = {"sort": [("started_at", 1), ("_id", 1)]}
        rows = yield Request(self.context.workers, "find", ({},), options, alone=True)
        return [
            msgspec.structs.replace(
                msgspec.json.decode(row["details"], type=WorkerInfo),
                started_at=row["started_at"],
                heard_at=row["heard_at"],
            )
            for row in rows
        ]
