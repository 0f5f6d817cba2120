"""Workers fire schedules: in time, through restarts, whatever else is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from windlass import Job, Windlass
from windlass.worker.worker import Worker

from .conftest import until

TWO_YEARS = timedelta(days=731)  # a tick that comes once a year is due, and none comes while the test runs


@pytest.fixture
def new_app(store_url: str) -> Iterator[Callable[[], Windlass]]:
    """Apps on one store, as in processes of their own; each has the task `note`."""
    apps: list[Windlass] = []

    def make() -> Windlass:
        app = Windlass(store_url)
        app.task("note")(note)
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.close()


async def note() -> None: ...


def jobs(app: Windlass) -> list[Job]:
    return sorted(app.list(limit=1000), key=lambda job: job.id)


def lateness(job: Job) -> timedelta:
    assert job.claimed_at is not None
    return job.claimed_at - job.run_at


async def test_a_tick_is_fired_within_a_second_of_its_time(new_app: Callable[[], Windlass]) -> None:
    app = new_app()
    app.schedule("@every 1s", app.tasks["note"].call())
    async with app.worker(poll_interval="30s"):
        await until(lambda: len(app.list(state="completed")) >= 3)
    done = [job for job in jobs(app) if job.state == "completed"]
    late = [lateness(job) for job in done]
    assert timedelta() <= min(late) < timedelta(seconds=1)
    assert max(late) < timedelta(seconds=10)  # a machine that stalls is forgiven; the poll would come after 30 s
    ticks = [job.run_at for job in done]
    assert {later - earlier for earlier, later in pairwise(ticks)} == {timedelta(seconds=1)}
    (schedule,) = app.schedules()
    assert schedule.last_at == jobs(app)[-1].run_at


async def test_a_schedule_made_elsewhere_at_run_time_is_fired_in_time(new_app: Callable[[], Windlass]) -> None:
    app, elsewhere = new_app(), new_app()
    async with app.worker(poll_interval="60s") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        await asyncio.sleep(0.3)
        await elsewhere.aschedule("@every 1s", elsewhere.call("note"))
        await until(lambda: app.list(state="completed"))
    assert lateness(jobs(app)[0]) < timedelta(seconds=15)


def first_looks(workers: list[Worker]) -> list[datetime | None]:
    """By when each had looked, by the store's clock."""
    return [worker.scheduler._looked_at if hasattr(worker, "scheduler") else None for worker in workers]


async def test_of_five_workers_each_tick_is_fired_once(new_app: Callable[[], Windlass]) -> None:
    apps, workers = [new_app() for _ in range(5)], []
    async with AsyncExitStack() as stack:
        for app in apps:
            app.schedule("@every 1s", app.call("note"))
            workers.append(await stack.enter_async_context(app.worker(concurrency=2)))
        # What fell due before a worker's first look may be missed, as its schedule says; nothing after that.
        await until(lambda: all(first_looks(workers)), 40)
        since = max(moment for moment in first_looks(workers) if moment)
        await until(lambda: sum(job.run_at > since for job in apps[0].list(state="completed", limit=1000)) >= 6, 40)
    ticks = [job.run_at for job in jobs(apps[0]) if job.run_at > since]
    assert {later - earlier for earlier, later in pairwise(ticks)} == {timedelta(seconds=1)}


@pytest.mark.parametrize(("catch_up", "count"), [("skip", 0), ("one", 1), ("all", 30)])
async def test_a_worker_makes_up_for_what_fell_due_while_none_was_there(
    new_app: Callable[[], Windlass], catch_up: str, count: int
) -> None:
    before, after = new_app(), new_app()
    call = before.call("note")
    before.schedule("*/2 * * * *", call, catch_up=catch_up)  # type: ignore[call-overload]
    before.schedules()
    (schedule,) = before.schedules()
    first: datetime = schedule.upcoming(1)[0]
    now = before.store.connections.run(before.store.schedules).now
    # Not near a tick: one that is merely late is never missed.
    after.store.clock.move(first - now + timedelta(minutes=58, seconds=60))
    assert await after.arun_worker(until_idle=True) == count
    assert len(jobs(after)) == count
    assert await after.arun_worker(until_idle=True) == 0


async def test_a_schedule_outlives_the_code_that_declared_it(new_app: Callable[[], Windlass]) -> None:
    before, after = new_app(), new_app()
    before.schedule("@yearly", before.call("note"))
    await before.arun_worker(until_idle=True)
    after.store.clock.move(TWO_YEARS)
    assert await after.arun_worker(until_idle=True) == 1
    after.delete_schedule("note")
    after.store.clock.move(TWO_YEARS)
    assert await after.arun_worker(until_idle=True) == 0


async def test_a_worker_that_starts_again_declares_what_its_code_says(new_app: Callable[[], Windlass]) -> None:
    before, after = new_app(), new_app()
    before.schedule("@hourly", before.call("note", queue="old"))
    await before.arun_worker(until_idle=True)
    after.schedule("@hourly", after.call("note", queue="new"))
    await after.arun_worker(until_idle=True)
    assert [schedule.queue for schedule in before.schedules()] == ["new"]


async def test_one_that_cannot_be_fired_is_not_in_the_way_of_the_others(
    new_app: Callable[[], Windlass], caplog: pytest.LogCaptureFixture
) -> None:
    """A newer version may write what this one cannot read."""
    app = new_app()
    app.schedule("@yearly", app.call("note"), name="good")
    (good,) = app.schedules()
    odd = {"cron": "@sometimes", "timezone": "Europe/Atlantis", "call": '{"what": 1}'}
    bad = [msgspec.structs.replace(good, name=f"bad {field}", **{field: value}) for field, value in odd.items()]
    app.store.connections.run(lambda: app.store.put_schedules(bad))
    app.store.clock.move(TWO_YEARS)
    assert await app.arun_worker(until_idle=True) == 1
    assert caplog.text.count("could not be fired") >= 3
    assert {schedule.name for schedule in app.schedules() if schedule.last_at is None} == {one.name for one in bad}


async def test_the_stores_clock_decides(new_app: Callable[[], Windlass]) -> None:
    """Here it is months ahead of this process's own."""
    app = new_app()
    app.schedule("@yearly", app.call("note"))
    (schedule,) = app.schedules()
    assert schedule.next_at is not None
    app.store.clock.move(schedule.next_at - datetime.now(UTC) + timedelta(days=30))
    assert await app.arun_worker(until_idle=True) == 1
    assert [job.run_at for job in jobs(app)] == [schedule.next_at]
