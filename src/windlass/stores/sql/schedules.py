"""Schedules in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...operation import Operation, Rows
from ...schedule import Firing, Schedule, Timetable
from ..store import Enqueued
from .dialect import Dialect, Part
from .enqueue import Enqueue

FIELDS = Schedule.__struct_fields__
MOMENTS = ("declared_at", "paused_at", "next_at", "last_at")
WRITTEN = ("name", "cron", "timezone", "catch_up", "call", "declared", "next_at")


class Schedules(Part):
    """All operations on schedules."""

    def __init__(self, dialect: Dialect, enqueue: Enqueue) -> None:
        super().__init__(dialect)
        self.enqueue = enqueue

    def schedules(self) -> Operation[Timetable]:
        return self._timetable((yield self.statement("schedules", alone=True)))

    def due_schedules(self, limit: int) -> Operation[Timetable]:
        return self._timetable((yield self.statement("due_schedules", alone=True, limit=limit)))

    def _timetable(self, rows: Rows) -> Timetable:
        """Each row contains the time. There is a row even if there is no schedule."""
        found = [dict(zip(FIELDS, row[2:], strict=True)) for row in rows if row[2] is not None]
        for fields in found:
            fields |= {name: self._moment(fields[name]) for name in MOMENTS}
        schedules = [Schedule(**fields) for fields in found]
        return Timetable(self.rows.to_datetime(rows[0][0]), schedules, self._moment(rows[0][1]))

    def _moment(self, raw: Any) -> datetime | None:
        return None if raw is None else self.rows.to_datetime(raw)

    def put_schedules(self, schedules: Sequence[Schedule]) -> Operation[None]:
        for schedule in sorted(schedules, key=lambda schedule: schedule.name):
            yield self.statement("put_schedule", **{name: getattr(schedule, name) for name in WRITTEN})

    def fire(self, firing: Firing) -> Operation[Sequence[Enqueued] | None]:
        moved = yield self.statement(
            "fire_schedule", name=firing.name, due_at=firing.due_at, next_at=firing.next_at, last_at=firing.last_at
        )
        if not moved:
            return None
        if not firing.jobs:
            return []
        answers = yield from self.enqueue.enqueue(firing.jobs)
        made: list[UUID] = sorted(answer.job.id for answer in answers if answer.created)
        yield self.statement("mark_scheduled", name=firing.name, ids=self.array(made))
        return answers

    def pause_schedule(self, name: str) -> Operation[bool]:
        return bool((yield self.statement("pause_schedule", alone=True, name=name)))

    def resume_schedule(self, name: str, next_at: datetime) -> Operation[bool]:
        return bool((yield self.statement("resume_schedule", alone=True, name=name, next_at=next_at)))

    def delete_schedule(self, name: str) -> Operation[bool]:
        return bool((yield self.statement("delete_schedule", alone=True, name=name)))
