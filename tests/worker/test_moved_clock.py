"""A store's clock that has jumped ahead and come back: schedules go on with their next tick."""

from __future__ import annotations

from datetime import timedelta

import pytest

from windlass import Windlass
from windlass.worker.scheduler import Scheduler


def seconds_ahead(app: Windlass, name: str) -> float:
    timetable = app.run_operation(app.store.schedules)
    (next_at,) = [one.next_at for one in timetable.schedules if one.name == name]
    assert next_at is not None
    return (next_at - timetable.now).total_seconds()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_schedule_that_was_moved_far_ahead_comes_back(app: Windlass, restarted: bool) -> None:
    @app.task
    async def tick() -> None: ...

    app.schedule("* * * * *", tick.call(), name="minutely")
    app.schedule("* * * * *", tick.call(), name="halted")
    scheduler = Scheduler(app, lambda: None, 5.0)
    await scheduler.open()
    app.store.clock.move(timedelta(days=3))
    await scheduler.fire_due()
    app.pause_schedule("halted")
    app.store.clock.move(timedelta(days=-3))
    assert seconds_ahead(app, "minutely") > 86_400
    if restarted:  # another, which has not seen the jump
        scheduler = Scheduler(app, lambda: None, 5.0)
    assert await scheduler.fire_due() <= 5.0
    assert 0 < seconds_ahead(app, "minutely") <= 60
    assert seconds_ahead(app, "halted") > 86_400  # when it is resumed, it gets its next tick


async def test_a_clock_that_was_set_back_by_a_moment_repeats_no_tick(app: Windlass) -> None:
    """Whatever becomes of the job that it has made."""

    @app.task(keep=0)
    async def tick() -> None: ...

    app.schedule("* * * * *", tick.call(), name="minutely")
    scheduler = Scheduler(app, lambda: None, 5.0)
    await scheduler.open()
    ahead = seconds_ahead(app, "minutely")
    app.store.clock.move(timedelta(seconds=ahead + 1))
    await scheduler.fire_due()
    (attempt,) = app.claim(10)
    attempt.complete()
    app.store.clock.move(timedelta(seconds=-5))
    await scheduler.fire_due()
    app.store.clock.move(timedelta(seconds=10))
    await scheduler.fire_due()
    assert app.claim(10) == []
