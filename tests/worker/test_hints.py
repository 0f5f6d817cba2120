"""Hints wake a worker; without them it polls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from windlass import Windlass
from windlass.call import BYTES_EACH, NAME_LIMIT
from windlass.embedded import PostgresServer
from windlass.stores.postgres.store import channel_name

from .conftest import until


async def test_an_idle_worker_is_woken_by_an_enqueue(app: Windlass) -> None:
    ran: list[bool] = []

    @app.task
    async def now() -> None:
        ran.append(True)

    async with app.worker(poll_interval="30s") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        await asyncio.sleep(0.5)
        await now.aenqueue()
        await until(lambda: ran)


async def test_without_any_hint_the_poll_finds_the_work(app: Windlass) -> None:
    app.store.notify = False

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
    assert 0 <= (after.claimed_at - after.run_at).total_seconds() < 15


async def test_a_restarted_server_is_found_again_and_work_continues() -> None:
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
            await until(lambda: worker.completed == 2)
        app.close()


async def test_a_listener_that_is_ended_comes_back(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)

    @app.task
    async def go_on() -> str:
        return "on"

    async with app.worker(poll_interval="60s"):
        await asyncio.sleep(0.5)
        with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
        assert await (await go_on.aenqueue()).aresult(timeout=30) == "on"
    app.close()


@pytest.fixture
def other(store_url: str) -> Iterator[Windlass]:
    """An app of another process, as far as the store knows."""
    app = Windlass(store_url)
    yield app
    app.close()


@pytest.mark.parametrize("way", ["stopped", "stale", "released"])
async def test_a_job_that_is_given_back_wakes_an_idle_worker(app: Windlass, other: Windlass, way: str) -> None:
    ran: list[str] = []
    blocked = asyncio.Event()

    @app.task
    async def work() -> None:
        ran.append("here")
        await blocked.wait()

    @other.task(name="work")
    async def work_there() -> None:
        ran.append("there")

    await work.aenqueue()
    worker = app.worker(concurrency=1, poll_interval="60s", grace=0)
    running = asyncio.create_task(worker.run())
    await until(lambda: ran)
    if way != "stopped":
        await work.aenqueue()
        (taken,) = await app.aclaim(1)
    async with other.worker(concurrency=1, poll_interval="60s") as idle:
        await until(lambda: hasattr(idle, "pump") and idle.pump.turn.idle)
        await asyncio.sleep(0.5)  # its listener is up
        assert ran == ["here"]
        if way == "released":
            await taken.arelease()
        elif way == "stale":
            worker.attempts.give_back([taken])
        else:
            worker.stop()
        await until(lambda: "there" in ran, 10)
        blocked.set()
        worker.stop()
        await running


def heard_by(listener: psycopg.Connection, count: int) -> list[str]:
    """As many as there should be, and those that are too many."""
    expected = listener.notifies(timeout=10.0, stop_after=count) if count else ()
    return sorted(notice.payload for notices in (expected, listener.notifies(timeout=0.5)) for notice in notices)


@pytest.mark.parametrize("count", [1, 200])
async def test_one_notification_for_a_queue_not_one_for_a_job(fresh_postgres_url: str, count: int) -> None:
    app = Windlass(fresh_postgres_url)

    @app.task
    async def some(n: int) -> None: ...

    app.migrate()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel_name("public", "windlass_")}"')
        with psycopg.connect(fresh_postgres_url) as connection:
            app.enqueue_many([some.call(n) for n in range(count)], connection=connection)
        assert heard_by(listener, 1) == ["ready:default"]
    app.close()


LONGEST = "x" * 40  # of a schema's or a prefix's name
WIDE = "\N{ROCKET}"  # four bytes


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
async def test_hints_arrive_with_the_longest_names(fresh_postgres_url: str, borrowed: bool) -> None:
    app = Windlass(fresh_postgres_url, schema=LONGEST, prefix=LONGEST)
    queue = WIDE * (BYTES_EACH * NAME_LIMIT // 4)

    @app.task(queue=queue)
    async def now(n: int) -> None: ...

    app.migrate()
    channel = channel_name(LONGEST, LONGEST)
    assert len(channel.encode()) <= 63
    async with app.worker(queues=[queue], poll_interval="10m") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        await asyncio.sleep(0.5)
        with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
            listener.execute(f'LISTEN "{channel}"')
            if borrowed:
                with psycopg.connect(fresh_postgres_url) as connection:
                    now.using(connection=connection).enqueue(1)
            else:
                await now.aenqueue(1)
            payloads = [notice.payload for notice in listener.notifies(timeout=30.0, stop_after=1)]
        assert payloads == [f"ready:{queue}"]
        assert len(payloads[0].encode()) < 8_000
        await until(lambda: worker.completed == 1)
    app.close()


def test_channels_of_different_queues_differ_however_long_their_names() -> None:
    names = {channel_name(schema, prefix) for schema in (LONGEST, "y" * 40) for prefix in (LONGEST, "x" * 39)}
    assert len(names) == 4
    assert all(len(name) <= 63 for name in names)


def test_one_notification_for_each_queue_of_a_transaction_however_many_calls(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel_name("public", "windlass_")}"')
        with psycopg.connect(fresh_postgres_url) as connection:
            for number in range(30):
                app.enqueue("some", {}, queue=f"q{number % 3}", connection=connection)
        assert heard_by(listener, 3) == ["ready:q0", "ready:q1", "ready:q2"]
    app.close()


@pytest.mark.parametrize("notify", [True, False])
def test_notifications_can_be_switched_off(fresh_postgres_url: str, notify: bool) -> None:
    app = Windlass(fresh_postgres_url, notify=notify)
    app.migrate()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel_name("public", "windlass_")}"')
        app.enqueue("some", {}, queue="own")
        with psycopg.connect(fresh_postgres_url) as connection:
            app.enqueue("some", {}, queue="borrowed", connection=connection)
        app.resume("acting")
        app.store.wakeup.flush(5.0)
        expected = ["ready:acting", "ready:borrowed", "ready:own"] if notify else []
        assert heard_by(listener, len(expected)) == expected
    app.close()
