"""Wake-up: W1 to W5."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from tests.servers import PostgresServer
from windlass import Windlass
from windlass.stores.postgres.store import channel_name

from .conftest import until


async def test_an_idle_worker_is_woken_by_an_enqueue(app: Windlass) -> None:
    moments: list[float] = []

    @app.task
    async def now() -> None:
        moments.append(time.monotonic())

    async with app.worker(poll_interval="30s") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.idle)
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await now.aenqueue()
        await until(lambda: moments)
    assert moments[0] - began < 2


async def test_without_any_hint_the_poll_finds_the_work(app: Windlass) -> None:
    app.notify = False

    @app.task
    async def found() -> str:
        return "found"

    async with app.worker(poll_interval="1s"):
        await asyncio.sleep(0.5)
        assert await (await found.aenqueue()).aresult(timeout=10) == "found"


async def test_a_job_for_later_runs_when_it_is_due_and_not_when_the_poll_comes(app: Windlass) -> None:
    @app.task
    async def later() -> None: ...

    async with app.worker(poll_interval="30s"):
        job = await later.using(delay="800ms").aenqueue()
        await job.aresult(timeout=15)
        after = await job.arefresh()
    assert after.claimed_at is not None
    assert 0 <= (after.claimed_at - after.run_at).total_seconds() < 3


async def test_w2_a_restarted_server_is_found_again_and_work_goes_on() -> None:
    with PostgresServer() as server:
        app = Windlass(server.url)

        @app.task
        async def go_on(n: int) -> int:
            return n

        async with app.worker(poll_interval="1s") as worker:
            await (await go_on.aenqueue(1)).aresult(timeout=20)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(server.start)
            job = await go_on.aenqueue(2)
            assert await job.aresult(timeout=60) == 2
            assert worker.completed == 2
        app.close()


async def test_w1_a_listener_that_is_ended_comes_back(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)

    @app.task
    async def go_on() -> str:
        return "on"

    async with app.worker(poll_interval="60s"):
        await asyncio.sleep(0.5)
        with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
            )
        assert await (await go_on.aenqueue()).aresult(timeout=30) == "on"
    app.close()


@pytest.mark.parametrize("count", [1, 200])
async def test_w5_one_notification_for_a_queue_not_one_for_a_job(fresh_postgres_url: str, count: int) -> None:
    app = Windlass(fresh_postgres_url)

    @app.task
    async def some(n: int) -> None: ...

    app.migrate()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel_name("public", "windlass_")}"')
        with psycopg.connect(fresh_postgres_url) as connection:
            app.enqueue_many([some.call(n) for n in range(count)], connection=connection)
        heard = list(listener.notifies(timeout=1.0))
    assert [notice.payload for notice in heard] == ["ready:default"]
    app.close()
