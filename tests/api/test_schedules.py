"""Schedules in the public API: declared, made at run time, looked at, paused, resumed, deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.either import Either
from windlass import InvalidInput, Schedule, ScheduleNotFound, StoreUnavailable, Task, Unique, Windlass
from windlass.operation import Operation


@pytest.fixture
def report(app: Windlass) -> Task[..., None]:
    @app.task(queue="reports", priority=3, max_attempts=2)
    def report(day: str = "today") -> None: ...

    return report


async def only(either: Either) -> Schedule:
    (schedule,) = await either.schedules()
    return schedule


async def test_a_schedule_is_listed_with_its_next_five_runs(
    app: Windlass, either: Either, report: Task[..., None]
) -> None:
    app.schedule("30 2 * * *", report.call("monday"), timezone="Europe/Berlin", catch_up="all", name="mondays")
    found = await only(either)
    assert (found.name, found.cron, found.timezone, found.catch_up) == ("mondays", "30 2 * * *", "Europe/Berlin", "all")
    assert (found.type, found.queue, found.input, found.job.rank) == ("report", "reports", {"day": "monday"}, -3)
    assert (found.job.max_attempts, found.paused, found.last_at) == (2, False, None)
    assert len(found.next_runs) == len(set(found.next_runs)) == 5
    assert found.next_runs == tuple(sorted(found.next_runs))
    assert found.next_runs[0] == found.next_at
    assert found.next_at is not None
    assert timedelta() < found.next_at - datetime.now(UTC) < timedelta(days=1, hours=2)
    assert str(found.next_runs[0].tzinfo) == "Europe/Berlin"
    assert found.declared.startswith("tests.api.test_schedules:") or found.declared.startswith("test_schedules:")


@pytest.mark.one_store
async def test_the_name_is_the_tasks(app: Windlass, either: Either, report: Task[..., None]) -> None:
    made = app.schedule("@daily", report.call())
    assert made.name == (await only(either)).name == "report"
    app.schedule("@daily", report.call())  # the same once more is the same
    with pytest.raises(InvalidInput, match="name="):
        app.schedule("@hourly", report.call())
    assert (await only(either)).cron == "@daily"
    app.schedule("@hourly", report.call(), name="report")  # a name that is given replaces
    app.schedule("@weekly", report.call("sunday"), name="second")
    assert [(one.name, one.cron) for one in await either.schedules()] == [("report", "@hourly"), ("second", "@weekly")]


@pytest.mark.one_store
async def test_as_a_decorator_over_a_task(app: Windlass, either: Either) -> None:
    @app.schedule("0 3 * * *")
    @app.task(queue="nightly")
    def tidy() -> str:
        return "tidy"

    assert isinstance(tidy, Task)
    assert tidy() == "tidy"
    found = await only(either)
    assert (found.name, found.queue, found.cron) == ("tidy", "nightly", "0 3 * * *")


@pytest.mark.one_store
async def test_as_a_decorator_over_a_function(app: Windlass, either: Either) -> None:
    @app.schedule("@every 90s", name="often", catch_up="skip")
    async def tidy() -> None: ...

    assert app.tasks["tidy"] is tidy
    found = await only(either)
    assert (found.name, found.type, found.cron, found.catch_up) == ("often", "tidy", "@every 90s", "skip")


@pytest.mark.one_store
async def test_a_task_that_needs_arguments_cannot_be_decorated(app: Windlass, either: Either) -> None:
    with pytest.raises(InvalidInput, match="day"):

        @app.schedule("@daily")
        @app.task
        def report(day: str) -> None: ...

    assert await either.schedules() == []


async def test_made_at_run_time(app: Windlass, either: Either, new_app: Callable[..., Windlass]) -> None:
    await either.counts()  # the app is in use
    call = app.call("elsewhere", {"a": 1}, queue="far")
    made = await either.schedule("*/5 * * * *", call, name="made")
    assert made.name == "made"
    (found,) = new_app().schedules()
    assert (found.name, found.type, found.queue, found.input) == ("made", "elsewhere", "far", {"a": 1})


async def test_what_an_app_only_declares_is_not_written_until_it_is_used(
    new_app: Callable[..., Windlass], report: Task[..., None]
) -> None:
    fresh, other = new_app(), new_app()
    fresh.schedule("@daily", other.call("x"))
    assert other.schedules() == []
    assert [one.name for one in fresh.schedules()] == ["x"]
    assert [one.name for one in other.schedules()] == ["x"]


async def test_who_merely_looks_does_not_undo_what_newer_code_has_declared(new_app: Callable[..., Windlass]) -> None:
    old, new = new_app(), new_app()
    old.schedule("@daily", old.call("x"))
    old.schedules()
    new.schedule("@hourly", new.call("x"))
    new.schedules()
    assert [one.cron for one in old.schedules()] == ["@hourly"]


async def test_pause_and_resume(app: Windlass, either: Either, report: Task[..., None]) -> None:
    app.schedule("* * * * *", report.call())
    await either.pause_schedule("report")
    await either.pause_schedule("report")
    paused = await only(either)
    assert (paused.paused, paused.next_runs) == (True, ())
    app.store.clock.move(timedelta(hours=3))
    await either.resume_schedule("report")
    resumed = await only(either)
    assert not resumed.paused
    assert resumed.next_at is not None
    assert resumed.next_at > datetime.now(UTC) + timedelta(hours=3, seconds=-5)
    app.store.clock.move(timedelta(hours=3))
    await either.resume_schedule("report")  # it runs: what it has missed is not let go
    assert (await only(either)).next_at == resumed.next_at


async def test_run_now(app: Windlass, either: Either, report: Task[..., None]) -> None:
    app.schedule("0 3 * * *", report.using(queue="reports").call())
    before = await only(either)
    job = await either.run_schedule("report")
    assert (job.type, job.queue, job.state, job.created) == ("report", "reports", "pending", True)
    assert [attempt.job.id for attempt in app.claim(queues=["reports"])] == [job.id]
    assert (await only(either)).next_at == before.next_at
    await either.pause_schedule("report")
    assert (await either.run_schedule("report")).id != job.id


async def test_delete(app: Windlass, either: Either, report: Task[..., None]) -> None:
    app.schedule("* * * * *", report.call())
    await either.delete_schedule("report")
    assert await either.schedules() == []
    await app.awrite_schedules()
    assert await either.schedules() == []
    app.schedule("@daily", report.call())
    assert (await only(either)).cron == "@daily"


async def test_a_missing_one_is_reported(app: Windlass, either: Either) -> None:
    for act in (either.run_schedule, either.pause_schedule, either.resume_schedule, either.delete_schedule):
        with pytest.raises(ScheduleNotFound, match="'no'"):
            await act("no")
        with pytest.raises((InvalidInput, ScheduleNotFound)):
            await act("")


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"cron": "0 0 30 2 *"}, "never due"),
        ({"cron": "* * *"}, "five fields"),
        ({"cron": "@every"}, "duration"),
        ({"timezone": "Europe/Atlantis"}, "no timezone 'Europe/Atlantis'"),
        ({"catch_up": "some"}, "'skip', 'one' or 'all', not 'some'"),
        ({"name": ""}, "schedule"),
        ({"name": "x" * 201}, "200"),
        ({"call": 5}, "task.call"),
        ({"call": "report"}, "task.call"),
    ],
)
async def test_wrong_values_are_refused_and_nothing_changes(
    app: Windlass, either: Either, report: Task[..., None], wrong: dict[str, Any], match: str
) -> None:
    await either.counts()
    right: dict[str, Any] = {"cron": "* * * * *", "call": report.call()}
    with pytest.raises(InvalidInput, match=match):
        await either.schedule(**right | wrong)
    if "call" not in wrong:
        with pytest.raises(InvalidInput, match=match):
            app.schedule(**{"cron": "* * * * *"} | wrong)(lambda: None)
    assert list(app.tasks) == ["report"]
    assert await either.schedules() == []


@pytest.mark.one_store
@pytest.mark.parametrize(
    "options",
    [
        {"id": "018f8c1e-0000-7000-8000-000000000000"},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"after": ["018f8c1e-0000-7000-8000-000000000000"]},
        {"unique": Unique("key", on_conflict="raise")},
        {"priority": 1000},
    ],
)
async def test_options_that_no_tick_can_have_are_refused(
    app: Windlass, either: Either, report: Task[..., None], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        app.schedule("* * * * *", report.using(**options).call())
    assert await either.schedules() == []


def test_a_schedule_whose_deletion_fails_is_still_declared(
    app: Windlass, report: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedule("@daily", report.call())
    app.schedules()
    run = app.store.connections.run

    def run_and_fail(make: Callable[[], Operation[Any]], *purpose: Any) -> Any:
        def operation() -> Operation[Any]:
            answer = yield from make()
            if deleting:
                raise StoreUnavailable("the commit failed")
            return answer

        return run(operation, *purpose)

    deleting = True
    monkeypatch.setattr(app.store.connections, "run", run_and_fail)
    with pytest.raises(StoreUnavailable):
        app.delete_schedule("report")
    deleting = False
    assert list(app.declared_schedules) == ["report"]
    app.write_schedules()
    app.delete_schedule("report")
    assert list(app.declared_schedules) == []


def test_a_schedule_that_is_declared_again_while_it_is_written_is_written_again(
    app: Windlass, report: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Windlass("sqlite://")  # it writes nothing here, and makes the new declaration
    other.task(name="report")(lambda: None)
    newer = other.schedule("@hourly", other.tasks["report"].call(), name="report")
    put = app.store.put_schedules

    def declare_meanwhile(schedules: Any) -> Operation[None]:
        yield from put(schedules)
        app.declared_schedules["report"] = newer
        app.unwritten_schedules.add("report")

    monkeypatch.setattr(app.store, "put_schedules", declare_meanwhile)
    app.schedule("@daily", report.call())
    app.write_schedules()
    monkeypatch.setattr(app.store, "put_schedules", put)
    assert [one.cron for one in app.schedules()] == ["@hourly"]
    assert app.unwritten_schedules == set()
