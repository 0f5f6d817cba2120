"""Jobs that were not started in time: every worker ends them, beside its other work."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from windlass import JobCancelled, Windlass
from windlass.worker.bell import Reasons
from windlass.worker.turn import Rest

from .conftest import until
from .rows import rewrite


async def test_a_job_that_expires_while_it_waits_is_cancelled_and_hooks_are_told(app: Windlass) -> None:
    told: list[Any] = []
    app.on("expired")(lambda event: told.append(event.id))

    @app.task
    async def never() -> None:
        raise AssertionError("it was started too late")

    job = await never.using(delay="1h", expires="300ms").aenqueue()
    async with app.worker(rescue_interval="200ms"):
        with pytest.raises(JobCancelled, match="expired at 20"):
            await job.aresult(timeout=10)
        await until(lambda: told)
    after = await job.arefresh()
    assert (after.state, after.attempt) == ("cancelled", 0)
    assert "Expired" in str(after.error)
    assert told == [job.id]


async def test_a_worker_that_runs_until_it_is_idle_leaves_nothing_behind_that_has_expired(app: Windlass) -> None:
    @app.task
    async def some(n: int) -> int:
        return n

    late = await some.using(expires="1ms").aenqueue(1)
    kept = await some.using(expires="1h").aenqueue(2)
    await asyncio.sleep(0.05)
    assert await app.arun_worker(until_idle=True) == 1
    assert (await late.arefresh()).state == "cancelled"
    assert await kept.aresult() == 2


async def test_a_job_that_was_started_in_time_ends_as_it_will_and_is_not_tried_again_later(app: Windlass) -> None:
    began: list[bool] = []
    expired = asyncio.Event()

    @app.task(backoff="1ms", lease="10m")
    async def slow(fails: bool) -> str:
        began.append(fails)
        await expired.wait()
        if fails:
            raise ValueError("boom")
        return "late"

    good, bad = [await slow.using(expires="20s").aenqueue(fails) for fails in (False, True)]
    async with app.worker(rescue_interval="100ms"):
        await until(lambda: len(began) == 2)
        app.store.clock.move(timedelta(seconds=30))
        expired.set()
        assert await good.aresult(timeout=10) == "late"
        with pytest.raises(JobCancelled, match="expired"):
            await bad.aresult(timeout=10)
    after = await bad.arefresh()
    assert after.attempt == 1
    assert [str(record.error) for record in after.attempts] == ["ValueError: boom"]


async def test_blocked_jobs_expire_too(app: Windlass) -> None:
    @app.task
    async def some() -> None: ...

    blocker = await some.using(delay="1h").aenqueue()
    jobs = [await some.using(after=[blocker], expires="100ms").aenqueue() for _ in range(2)]
    jobs.append(await some.using(delay="1h", expires="100ms").aenqueue())
    lasting = await some.using(after=[blocker]).aenqueue()
    await asyncio.sleep(0.2)
    async with app.worker(rescue_interval="100ms"):
        await until(lambda: app.counts().cancelled == 3)
    assert (await lasting.arefresh()).state == "blocked"
    assert {str((await job.arefresh()).error).split(":")[0] for job in jobs} == {"Expired"}


def test_a_moment_beyond_the_calendar_stops_no_worker(fresh_postgres_url: str) -> None:
    with closing(Windlass(fresh_postgres_url)) as app:
        jobs = [app.enqueue("some", {}) for _ in range(3)]
        for job, moment in zip(jobs, ("-infinity", "0044-03-15 BC", "infinity"), strict=True):
            rewrite(fresh_postgres_url, job.id, expires_at=moment)
        assert app.expire() == 2
        assert [job.refresh().state for job in jobs] == ["cancelled", "cancelled", "pending"]
        assert "expired" in str(jobs[0].refresh().error)


async def test_many_that_expire_at_once_are_ended_page_by_page(app: Windlass) -> None:
    @app.task
    async def some(n: int) -> None: ...

    await app.aenqueue_many([some.using(delay="1h", expires="1ms").call(n) for n in range(650)])
    await asyncio.sleep(0.05)
    async with app.worker(rescue_interval="30s") as worker:  # in one round: the next one would come too late
        await until(lambda: app.counts().cancelled == 650, 25)
        assert worker.started == 0


async def test_a_job_that_is_due_and_cannot_be_had_is_not_asked_for_without_pause(app: Windlass) -> None:
    @app.task
    async def mine() -> str:
        return "done"

    await app.aenqueue("somebody_elses", {})
    rounds = 0
    async with app.worker(poll_interval="10s") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        act = worker.pump._act

        async def counted(reasons: Reasons) -> Rest:
            nonlocal rounds
            rounds += 1
            return await act(reasons)

        worker.pump._act = counted  # type: ignore[method-assign]
        await asyncio.sleep(2.0)
        assert rounds < 40
        job = await mine.using(delay="300ms").aenqueue()
        assert await job.aresult(timeout=30) == "done"
