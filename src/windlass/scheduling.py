"""Schedules: the part of the public face that says what is to be enqueued when.

What the code declares is kept here, and written when a worker starts, or as soon as someone looks at the schedules or
acts on one. In an app that is in use already, a schedule is written as it is declared. Workers fire them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec

from .acting import Acting
from .call import Call, check_name
from .cron import read_cron
from .declaring import Declaring
from .decorator import Decorator
from .errors import InvalidInput, ScheduleNotFound
from .operation import Operation
from .policy import Unset
from .schedule import NO_ID, CatchUp, Schedule, call_json, check_catch_up
from .stores.wakeup import Hint
from .task import Task
from .twins import twins

P = ParamSpec("P")
T = TypeVar("T")


S = TypeVar("S", bound="Scheduling")


def _declared_first(
    operation: Callable[Concatenate[S, P], Operation[T]],
) -> tuple[Callable[Concatenate[S, P], T], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]]:
    """`twins`, where what the code has declared so far is written before."""
    sync, asynchronous = twins(operation)

    @wraps(sync)
    def declared(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.write_schedules(all=False)
        return sync(self, *args, **kwargs)

    @wraps(asynchronous)
    async def adeclared(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        await self.awrite_schedules(all=False)
        return await asynchronous(self, *args, **kwargs)

    return declared, adeclared


class Scheduling(Declaring, Acting):
    """Part of `Windlass`."""

    _ready: bool

    @cached_property
    def _declared(self) -> dict[str, Schedule]:
        return {}

    @cached_property
    def _unwritten(self) -> set[str]:
        return set()

    # Declaring

    @overload
    def schedule(
        self, cron: str, call: None = None, *, timezone: str = ..., catch_up: CatchUp = ..., name: str | None = ...
    ) -> Decorator: ...
    @overload
    def schedule(
        self, cron: str, call: Call | Task[[], Any], *, timezone: str = ..., catch_up: CatchUp = ...,
        name: str | None = ...,
    ) -> Schedule: ...  # fmt: skip
    def schedule(
        self,
        cron: str,
        call: Call | Task[[], Any] | None = None,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "one",
        name: str | None = None,
    ) -> Any:
        """Enqueue a call at each tick of a cron line: `app.schedule("0 3 * * *", report.call(day="today"))`, or
        `@app.schedule("@hourly")` over a task that needs no arguments.

        Five fields, `@hourly`, `@daily`, …, or `@every 90s`. `catch_up` says what becomes of ticks for which no worker
        was there: "skip" them, make up for them all by "one" job, or run "all". Its name is the task's unless one is
        given; a name that is given again replaces the schedule.
        """
        _check(cron, timezone, catch_up, name)
        where = _caller()

        def declare(what: Any) -> Schedule:
            made = _make(cron, _as_call(what), timezone, catch_up, name, where)
            self._declare(made, named=name is not None)
            if self._ready:
                self.write_schedules(all=False)
            return made

        def decorate(function: Any) -> Task[..., Any]:
            task = function if isinstance(function, Task) else self._task()(function)
            declare(task)
            return task

        return decorate if call is None else declare(call)

    def aschedule(
        self,
        cron: str,
        call: Call | Task[[], Any],
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "one",
        name: str | None = None,
    ) -> Coroutine[Any, Any, Schedule]:
        """`schedule`, written before it returns."""
        _check(cron, timezone, catch_up, name)
        made = _make(cron, _as_call(call), timezone, catch_up, name, _caller())

        async def write() -> Schedule:
            self._declare(made, named=name is not None)
            await self.awrite_schedules(all=False)
            return made

        return write()

    def _declare(self, made: Schedule, *, named: bool) -> None:
        there = self._declared.get(made.name)
        if there is not None and not named and _meaning(there) != _meaning(made):
            raise InvalidInput(
                f"there is a schedule {made.name!r} already, declared at {there.declared}: give this one a name, "
                "app.schedule(…, name='…')"
            )
        self._declared[made.name] = made
        self._unwritten.add(made.name)

    def write_schedules(self, *, all: bool = True) -> None:
        """Write what the code declares, or what of it was not written yet. Workers do this when they start."""
        names = self._to_write(all)
        if names:
            self.run_operation(lambda: self._write(names))
            self._unwritten.difference_update(names)

    async def awrite_schedules(self, *, all: bool = True) -> None:
        names = self._to_write(all)
        if names:
            await self.arun_operation(lambda: self._write(names))
            self._unwritten.difference_update(names)

    def _to_write(self, all: bool) -> list[str]:
        return sorted(self._declared if all else self._unwritten)

    def _write(self, names: list[str]) -> Operation[None]:
        """The store's clock says which tick is the next."""
        timetable = yield from self.store.schedules()
        declared = [self._declared[name] for name in names if name in self._declared]
        yield from self.store.put_schedules(
            [msgspec.structs.replace(one, next_at=one.ticks.after(timetable.now)) for one in declared]
        )
        yield from self.store.hint([Hint("scheduled", name) for name in names])

    # Looking and acting

    def _schedules(self) -> Operation[list[Schedule]]:
        """All schedules by name: `next_runs` has the next five ticks, `paused` says whether they will be."""
        return (yield from self.store.schedules()).schedules

    schedules, aschedules = _declared_first(_schedules)

    def _pause_schedule(self, name: str) -> Operation[None]:
        """Let it make no jobs until it is resumed. Jobs that it has made go on."""
        _found(name, (yield from self.store.pause_schedule(check_name("schedule", name))))

    pause_schedule, apause_schedule = _declared_first(_pause_schedule)

    def _resume_schedule(self, name: str) -> Operation[None]:
        """Go on with the next tick from now; those that fell into the pause are let go."""
        timetable = yield from self.store.schedules()
        schedule = next((one for one in timetable.schedules if one.name == name), None)
        if schedule is None:
            raise _not_found(name)
        next_at = schedule.ticks.after(timetable.now)
        _found(name, (yield from self.store.resume_schedule(name, next_at)))
        yield from self.store.hint([Hint("scheduled", name)])

    resume_schedule, aresume_schedule = _declared_first(_resume_schedule)

    def _delete_schedule(self, name: str) -> Operation[None]:
        """Remove it. Where the code still declares it, the next worker that starts brings it back."""
        _found(name, (yield from self.store.delete_schedule(check_name("schedule", name))))
        self._declared.pop(name, None)

    delete_schedule, adelete_schedule = _declared_first(_delete_schedule)


def _check(cron: str, timezone: str, catch_up: str, name: str | None) -> None:
    """All that can be wrong before a call is looked at: a decorator refuses before there is a task."""
    read_cron(cron, timezone)
    check_catch_up(catch_up)
    if name is not None:
        check_name("schedule", name)


def _make(cron: str, call: Call, timezone: str, catch_up: CatchUp, name: str | None, where: str) -> Schedule:
    options = call.options
    if options.id is not None or options.run_at is not None or not isinstance(options.after, Unset):
        raise InvalidInput(
            "a schedule's call has no id=, run_at= or after=: each tick is a job of its own, with its time"
        )
    job = call.new_job(lambda: NO_ID)
    if job.on_conflict == "raise":
        raise InvalidInput("a schedule has nobody to raise to: on_conflict is 'keep' or 'replace'")
    return Schedule(
        name=name or call.type,
        cron=" ".join(cron.split()),
        timezone=timezone,
        catch_up=catch_up,
        call=call_json(job),
        declared=where,
    )


def _as_call(what: Any) -> Call:
    if isinstance(what, Call):
        return what
    if isinstance(what, Task):
        return what.call()
    raise InvalidInput(f"a schedule takes a call, as task.call(…) makes it, not {type(what).__name__}")


def _meaning(schedule: Schedule) -> tuple[str, ...]:
    return schedule.cron, schedule.timezone, schedule.catch_up, schedule.call


def _caller() -> str:
    """Module and line of whoever called us."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"


def _found(name: str, found: bool) -> None:
    if not found:
        raise _not_found(name)


def _not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"there is no schedule {name!r}")
