"""Leases, cancelling, rescue, shutdown inside one event loop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from windlass import Windlass
from windlass.worker import leases

from .conftest import until


async def test_a_handler_that_runs_ten_leases_long_runs_once(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a moved clock, two thirds of a lease at a time; what is left would outlast a machine that stalls."""
    monkeypatch.setattr(leases, "PART", 240)  # renewed four times a second
    runs, enough = 0, asyncio.Event()

    @app.task(lease=60)
    async def long() -> str:
        nonlocal runs
        runs += 1
        await enough.wait()
        return "done"

    async def end() -> datetime:
        return (await job.arefresh()).lease_expires_at or datetime.min.replace(tzinfo=UTC)

    job = await long.aenqueue()
    async with app.worker(rescue_interval="200ms"), app.worker(rescue_interval="200ms"):
        await until(lambda: runs)
        first = await end()
        for moved in range(40, 601, 40):
            app.store.clock.move(timedelta(seconds=40))
            async with asyncio.timeout(20):
                while await end() < first + timedelta(seconds=moved):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        enough.set()
        assert await job.aresult(timeout=20) == "done"
    assert runs == 1
    assert (await job.arefresh()).attempt == 1


async def test_a_lost_lease_interrupts_the_handler_and_its_outcome_is_refused(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "PART", 240)  # renewed four times a second; it does not end by itself
    interrupted = asyncio.Event()

    @app.task(lease=60, backoff="1h")
    async def taken() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupted.set()
            raise
        return "too late"

    job = await taken.aenqueue()
    async with app.worker() as worker:
        await until(lambda: worker.running)
        async with asyncio.timeout(20):  # PostgreSQL passes over a row whose renewal is just being written
            while not await app.arescue(stale_before=datetime(2100, 1, 1, tzinfo=UTC)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await asyncio.wait_for(interrupted.wait(), 20)
    after = await job.arefresh()
    assert after.state == "pending"
    assert "LeaseExpired" in str(after.error)


async def test_cancelling_a_running_job_from_elsewhere_reaches_its_handler_soon(app: Windlass) -> None:
    @app.task(lease="60s")
    async def endless() -> None:
        await asyncio.sleep(300)

    job = await endless.aenqueue()
    async with app.worker() as worker:
        await until(lambda: worker.running)
        await job.acancel()
        await until(lambda: not worker.running, 10)
        await until(lambda: worker.failed)
    after = await job.arefresh()
    assert (after.state, after.attempt) == ("cancelled", 1)


async def test_a_handler_that_swallows_cancellation_is_left_behind(app: Windlass) -> None:
    may_end, ended = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        while not may_end.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        ended.set()

    job = await stubborn.aenqueue()
    worker = app.worker(grace="100ms")
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.running)
    worker.stop()
    await asyncio.wait_for(running, 20)
    assert (await job.arefresh()).state == "running"  # its lease is still there, and will end
    may_end.set()
    await asyncio.wait_for(ended.wait(), 20)


async def test_rescued_jobs_come_back_staggered(app: Windlass) -> None:
    @app.task(backoff="1s")
    async def some(n: int) -> None: ...

    await app.aenqueue_many([some.call(n) for n in range(50)])
    assert len(await app.aclaim(50, lease=60)) == 50
    assert await app.arescue(stale_before=datetime(2100, 1, 1, tzinfo=UTC)) == 50
    moments = {job.run_at for job in await app.alist(state="pending", limit=100)}
    assert len(moments) > 25


async def test_pause_and_resume_take_effect_at_once(app: Windlass) -> None:
    @app.task(queue="paused")
    async def some() -> None: ...

    async with app.worker(poll_interval="30s") as worker:
        await app.apause("paused")
        job = await some.aenqueue()
        await asyncio.sleep(0.5)
        assert (await job.arefresh()).state == "pending"
        await app.aresume("paused")
        await job.aresult(timeout=10)
    assert worker.completed == 1


async def test_a_queue_at_its_limit_holds_up_no_other_queue(app: Windlass) -> None:
    most = running = 0

    @app.task(queue="mail")
    async def mail() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1

    @app.task
    async def other() -> str:
        return "through"

    await app.aenqueue_many([mail.call() for _ in range(30)])
    job = await other.aenqueue()
    async with app.worker(queues={"mail": 3, "default": None}, concurrency=20) as worker:
        assert await job.aresult(timeout=10) == "through"
        await until(lambda: worker.completed == 31, 60)
    assert most == 3


async def test_the_last_attempt_never_waits_in_the_buffer(app: Windlass) -> None:
    started: list[int] = []
    gate = asyncio.Event()

    @app.task(max_attempts=1)
    async def once(n: int) -> None:
        started.append(n)
        await gate.wait()

    await app.aenqueue_many([once.call(n) for n in range(30)])
    async with app.worker(concurrency=3) as worker:
        await until(lambda: len(started) == 3)
        await asyncio.sleep(0.6)
        counts = await app.acounts()
        assert (counts.running, counts.pending, len(worker.buffer)) == (3, 27, 0)
        gate.set()
        await until(lambda: worker.completed == 30, 60)


async def test_last_attempts_are_not_starved_by_others(app: Windlass) -> None:
    done = asyncio.Event()

    @app.task
    async def many(n: int) -> None:
        await asyncio.sleep(0.01)

    @app.task(max_attempts=1)
    async def once() -> None:
        done.set()

    await app.aenqueue_many([many.call(n) for n in range(3000)])
    async with app.worker(concurrency=2) as worker:
        await until(lambda: worker.completed > 100)
        await once.using(priority=50).aenqueue()
        await asyncio.wait_for(done.wait(), 30)
        assert worker.completed < 3000


async def test_a_kept_slot_is_not_lost_where_a_queue_has_no_room(app: Windlass) -> None:
    @app.task(queue="narrow")
    async def some(n: int) -> None:
        await asyncio.sleep(0.15)

    await app.aenqueue_many([some.call(n) for n in range(8)])
    async with app.worker(queues={"narrow": 2}, concurrency=1) as worker:
        await until(lambda: worker.completed == 8, 30)


async def test_a_job_that_is_cancelled_while_it_waits_in_the_buffer_does_not_run(app: Windlass) -> None:
    ran: list[int] = []
    told = asyncio.Event()

    @app.task
    async def some(n: int) -> None:
        ran.append(n)
        await (asyncio.sleep(0.01) if n else told.wait())

    jobs = await app.aenqueue_many([some.call(1) for _ in range(30)])
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.completed == 30)
        ran.clear()
        jobs = await app.aenqueue_many([some.call(n) for n in range(3)])
        await until(lambda: ran)
        await asyncio.sleep(0.3)
        await jobs[2].acancel()
        await until(lambda: all(one.stop for one in worker.buffer.items if one.job.id == jobs[2].id))
        told.set()
        await until(lambda: not worker.running and not worker.buffer.items and worker.completed >= 32)
    assert ran == [0, 1]
    assert (await jobs[2].arefresh()).state == "cancelled"
