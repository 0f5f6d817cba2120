"""No job starves behind others: not for its queue, and not because it is a job's last attempt."""

from __future__ import annotations

import asyncio
import contextlib

from windlass import Windlass

from .conftest import until


async def test_a_queue_does_not_starve_beside_one_that_is_busy_and_gets_hints(app: Windlass) -> None:
    others: list[int] = []

    @app.task(queue="busy")
    async def busy(n: int) -> None:
        await asyncio.sleep(0.02)

    @app.task(queue="other")
    async def other(n: int) -> None:
        others.append(n)

    async def more() -> None:
        while True:
            await busy.aenqueue(0)
            await asyncio.sleep(0.05)

    await app.aenqueue_many([busy.call(n) for n in range(4000)])
    async with app.worker(concurrency=5) as worker:
        await until(lambda: worker.completed > 50)
        enqueuing = asyncio.create_task(more())
        await app.aenqueue_many([other.call(n) for n in range(50)])
        await until(lambda: len(others) == 50, 10)
        assert worker.completed < 3000
        enqueuing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await enqueuing


async def test_many_last_attempts_of_high_priority_go_before_a_backlog(app: Windlass) -> None:
    urgent: list[int] = []

    @app.task
    async def backlog(n: int) -> None:
        await asyncio.sleep(0.02)

    @app.task(max_attempts=1, priority=100)
    async def last(n: int) -> None:
        urgent.append(n)

    await app.aenqueue_many([backlog.call(n) for n in range(4000)])
    async with app.worker(concurrency=10) as worker:
        await until(lambda: worker.completed > 50)
        await app.aenqueue_many([last.call(n) for n in range(50)])
        await until(lambda: len(urgent) == 50, 10)
        assert worker.completed < 3500


async def test_last_attempts_of_one_queue_do_not_starve_beside_other_busy_queues(app: Windlass) -> None:
    last: list[int] = []

    @app.task
    async def backlog(n: int) -> None:
        await asyncio.sleep(0.002)

    @app.task(max_attempts=1, queue="last")
    async def once(n: int) -> None:
        last.append(n)

    calls = [backlog.using(queue=f"busy {n % 5}").call(n) for n in range(8000)]
    await app.aenqueue_many(calls + [once.call(n) for n in range(500)])
    async with app.worker(concurrency=10) as worker:
        await until(lambda: worker.completed > 3000, 60)
        assert len(last) > 20  # one at the most, when each queue in its turn had a look for last attempts
