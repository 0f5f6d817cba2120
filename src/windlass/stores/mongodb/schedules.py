"""Schedules: one document each, under its name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...operation import Operation, Request, Transient
from ...schedule import Firing, Schedule, Timetable
from ..store import Enqueued
from .context import Context, Part
from .documents import Document
from .enqueue import Enqueue
from .errors import Duplicate

WRITTEN = ("cron", "timezone", "catch_up", "call", "declared")
RUNNING_ONES: Document = {"paused_at": None}
TRIES = 5


class Schedules(Part):
    """All operations on schedules."""

    def __init__(self, context: Context, enqueue: Enqueue) -> None:
        super().__init__(context)
        self.enqueue = enqueue

    def schedules(self) -> Operation[Timetable]:
        now = yield from self.context.read_now()
        rows = yield Request(self.context.schedules, "find", ({},), {"sort": [("_id", 1)]}, alone=True)
        return Timetable(now, [to_schedule(row) for row in rows])

    def due_schedules(self, limit: int) -> Operation[Timetable]:
        now = yield from self.context.read_now()
        options: dict[str, Any] = {"sort": [("next_at", 1), ("_id", 1)]}
        first = yield Request(
            self.context.schedules, "find", (RUNNING_ONES, {"next_at": 1}), {**options, "limit": 1}, alone=True
        )
        if not first or first[0]["next_at"] > now:
            return Timetable(now, [], first[0]["next_at"] if first else None)
        due = {**RUNNING_ONES, "next_at": {"$lte": now}}
        rows = yield Request(self.context.schedules, "find", (due,), {**options, "limit": limit}, alone=True)
        return Timetable(now, [to_schedule(row) for row in rows], first[0]["next_at"])

    def put_schedules(self, schedules: Sequence[Schedule]) -> Operation[None]:
        for schedule in sorted(schedules, key=lambda schedule: schedule.name):
            yield from self._put(schedule)

    def _put(self, schedule: Schedule) -> Operation[None]:
        said = {name: {"$literal": getattr(schedule, name)} for name in WRITTEN}
        same = {"$and": [{"$eq": [f"${name}", said[name]]} for name in ("cron", "timezone")]}
        fields = {
            **said,
            "declared_at": self.context.now_expression,
            "next_at": {"$cond": [same, "$next_at", schedule.next_at]},
        }
        for _ in range(TRIES):
            try:
                yield Request(
                    self.context.schedules,
                    "update_one",
                    ({"_id": schedule.name}, [{"$set": fields}]),
                    {"upsert": True},
                    alone=True,
                )
                return
            except Duplicate:  # another process has added it at this moment: then there is one to renew
                continue
        raise Transient(f"the schedule {schedule.name!r} changed each time we looked")

    def fire(self, firing: Firing) -> Operation[Sequence[Enqueued] | None]:
        """In a transaction: of two processes that fire, one meets a write conflict, tries again, and finds the tick
        moved."""
        as_it_was = {**RUNNING_ONES, "_id": firing.name, "next_at": firing.due_at}
        moved = {"next_at": firing.next_at} | ({"last_at": firing.last_at} if firing.last_at else {})
        (result,) = yield Request(self.context.schedules, "update_one", (as_it_was, {"$set": moved}))
        if not result.matched_count:
            return None
        answers = yield from self.enqueue.enqueue(firing.jobs)
        made = [answer.job.id for answer in answers if answer.created]
        if made:
            mark = {"$set": {"schedule": firing.name}}
            yield Request(self.context.jobs, "update_many", ({"_id": {"$in": made}}, mark))
        return answers

    def pause_schedule(self, name: str) -> Operation[bool]:
        at = {"$ifNull": ["$paused_at", self.context.now_expression]}
        return (yield from self._change(name, {"paused_at": at}))

    def resume_schedule(self, name: str, next_at: datetime) -> Operation[bool]:
        is_running = {"$eq": [{"$ifNull": ["$paused_at", None]}, None]}
        changes = {"paused_at": None, "next_at": {"$cond": [is_running, "$next_at", next_at]}}
        return (yield from self._change(name, changes))

    def _change(self, name: str, fields: Document) -> Operation[bool]:
        (result,) = yield Request(self.context.schedules, "update_one", ({"_id": name}, [{"$set": fields}]), alone=True)
        return bool(result.matched_count)

    def delete_schedule(self, name: str) -> Operation[bool]:
        (result,) = yield Request(self.context.schedules, "delete_one", ({"_id": name},), alone=True)
        return bool(result.deleted_count)


def to_schedule(document: Document) -> Schedule:
    fields = {name: document.get(name) for name in Schedule.__struct_fields__}
    return Schedule(**{**fields, "name": document["_id"]})
