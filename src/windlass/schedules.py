"""Schedules: enqueue calls by a cron line.

The app keeps the schedules that its code declares. They are written when a worker starts, or before the app reads or
changes schedules. An app that is in use already writes a schedule at once. Workers fire them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from .call import Call, check_name
from .cron import read_cron
from .engine import Engine
from .enqueue import enqueue_new
from .errors import InvalidInput, ScheduleNotFound
from .job import Job
from .operation import Flow, Operation, transact
from .policy import Unset
from .schedule import NO_ID, CatchUp, Schedule, call_json, check_catch_up
from .stores.wakeup import Hint
from .task import Task

T = TypeVar("T")

# Declare


class Declaration(NamedTuple):
    """The arguments of `app.schedule`, checked: a call is still needed."""

    cron: str
    timezone: str
    catch_up: CatchUp
    name: str | None
    declared_at: str

    def make(self, target: Any) -> Schedule:
        """The schedule of a call, or of a task that needs no arguments."""
        call = _as_call(target)
        options = call.options
        if options.id is not None or options.run_at is not None or not isinstance(options.after, Unset):
            raise InvalidInput(
                "a schedule's call has no id=, run_at= or after=: each tick is a job of its own, with its time"
            )
        job = call.new_job(lambda: NO_ID)
        if job.on_conflict == "raise":
            raise InvalidInput("a schedule has no caller that could catch an error: on_conflict is 'keep' or 'replace'")
        return Schedule(
            name=self.name or call.type,
            cron=" ".join(self.cron.split()),
            timezone=self.timezone,
            catch_up=self.catch_up,
            call=call_json(job),
            declared=self.declared_at,
        )

    def add(self, engine: Engine, made: Schedule) -> None:
        """Keep it until it is written. A name that was not given may belong to another schedule."""
        there = engine.declared_schedules.get(made.name)
        if there is not None and self.name is None and _meaning(there) != _meaning(made):
            raise InvalidInput(
                f"there is a schedule {made.name!r} already, declared at {there.declared}: give this one a name, "
                "app.schedule(…, name='…')"
            )
        engine.declared_schedules[made.name] = made
        engine.unwritten_schedules.add(made.name)


def check_declaration(cron: str, timezone: str, catch_up: CatchUp, name: str | None) -> Declaration:
    """Refuse wrong arguments before there is a task."""
    read_cron(cron, timezone)
    check_catch_up(catch_up)
    if name is not None:
        check_name("schedule", name)
    return Declaration(cron, timezone, catch_up, name, _caller())


# Write


def write_schedules(engine: Engine, *, all: bool = True) -> Flow[None]:
    """Write the declared schedules, or those that are not written yet. Workers do this when they start."""
    names = sorted(engine.declared_schedules if all else engine.unwritten_schedules)
    if names:
        written = yield from transact(lambda: _write(engine, names))
        for name in names:
            engine.unwritten_schedules.discard(name)
            if engine.declared_schedules.get(name) is not written.get(name):
                engine.unwritten_schedules.add(name)  # another thread has declared it again meanwhile


def _write(engine: Engine, names: list[str]) -> Operation[dict[str, Schedule]]:
    """The clock of the store says which tick is the next. The answer: the declarations that were written."""
    timetable = yield from engine.store.schedules()
    declared = {name: one for name in names if (one := engine.declared_schedules.get(name)) is not None}
    yield from engine.store.put_schedules(
        [msgspec.structs.replace(one, next_at=one.ticks.after(timetable.now)) for one in declared.values()]
    )
    yield from engine.store.hint([Hint("scheduled", name) for name in names])
    return declared


def _after_writing(engine: Engine, make: Callable[[], Operation[T]]) -> Flow[T]:
    yield from write_schedules(engine, all=False)
    return (yield from transact(make))


# Read and change


def schedules(engine: Engine) -> Flow[list[Schedule]]:
    """All schedules by name: `next_runs` has the next five ticks, `paused` says whether they will happen."""

    def read() -> Operation[list[Schedule]]:
        return (yield from engine.store.schedules()).schedules

    return (yield from _after_writing(engine, read))


def pause_schedule(engine: Engine, name: str) -> Flow[None]:
    """Pause it: it makes no jobs until it is resumed. Jobs that it has made are not touched."""

    def change() -> Operation[None]:
        _found(name, (yield from engine.store.pause_schedule(check_name("schedule", name))))

    yield from _after_writing(engine, change)


def resume_schedule(engine: Engine, name: str) -> Flow[None]:
    """Resume it with the next tick from now. Ticks that fell into the pause make no jobs."""

    def change() -> Operation[None]:
        timetable = yield from engine.store.schedules()
        schedule = next((one for one in timetable.schedules if one.name == name), None)
        if schedule is None:
            raise _not_found(name)
        next_at = schedule.ticks.after(timetable.now)
        _found(name, (yield from engine.store.resume_schedule(name, next_at)))
        yield from engine.store.hint([Hint("scheduled", name)])

    yield from _after_writing(engine, change)


def run_schedule(engine: Engine, name: str) -> Flow[Job]:
    """Enqueue its call now, beside its ticks, also while it is paused: the job."""
    check_name("schedule", name)
    schedule = next((one for one in (yield from schedules(engine)) if one.name == name), None)
    if schedule is None:
        raise _not_found(name)
    (job,) = yield from enqueue_new(engine, [msgspec.structs.replace(schedule.job, id=engine.make_id())])
    return job


def delete_schedule(engine: Engine, name: str) -> Flow[None]:
    """Remove it. If the code still declares it, the next worker that starts writes it again."""

    def change() -> Operation[None]:
        _found(name, (yield from engine.store.delete_schedule(name)))

    check_name("schedule", name)
    declared = engine.declared_schedules.get(name)
    yield from _after_writing(engine, change)
    if engine.declared_schedules.get(name) is declared:  # no other thread has declared it again meanwhile
        engine.declared_schedules.pop(name, None)


def _as_call(what: Any) -> Call:
    if isinstance(what, Call):
        return what
    if isinstance(what, Task):
        return what.call()
    raise InvalidInput(f"a schedule takes a call, as task.call(…) makes it, not {type(what).__name__}")


def _meaning(schedule: Schedule) -> tuple[str, ...]:
    return schedule.cron, schedule.timezone, schedule.catch_up, schedule.call


def _caller() -> str:
    """Module and line of the code that called Windlass."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"


def _found(name: str, found: bool) -> None:
    if not found:
        raise _not_found(name)


def _not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"there is no schedule {name!r}")
