"""Blocks on PostgreSQL whose connection is still in use when they end: refused, and never waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any

import pytest

from windlass import Attempt, Job, Windlass

MANY = "SELECT generate_series(1, 100000)"


@pytest.fixture
def app(migrated_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(migrated_postgres_url)
    yield app
    app.close()


def run(app: Windlass, handler: Any) -> Job[Any]:
    job = app.task("block", max_attempts=1, lease=60)(handler).enqueue()
    app.run_worker(until_idle=True)
    return job.refresh()


def refused(job: Job[Any]) -> bool:
    return job.state == "failed" and job.error is not None and "is still open" in job.error.message


@pytest.mark.timeout(60)
def test_rows_of_a_stream_that_were_not_read(app: Windlass) -> None:
    def handler(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            rows = connection.cursor().stream(MANY)
            next(rows)

    assert refused(run(app, handler))


@pytest.mark.timeout(60)
def test_rows_of_an_async_stream_that_were_not_read(app: Windlass) -> None:
    async def handler(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            rows = connection.cursor().stream(MANY)
            await anext(rows)

    assert refused(run(app, handler))


@pytest.mark.timeout(60)
def test_a_copy_that_was_left_open(app: Windlass) -> None:
    kept = []

    def handler(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            copying = connection.cursor().copy(f"COPY ({MANY}) TO STDOUT")
            kept.append((copying, copying.__enter__()))

    assert refused(run(app, handler))


@pytest.mark.timeout(60)
def test_a_pipeline_that_was_left_open(app: Windlass) -> None:
    def handler(attempt: Attempt) -> None:
        with ExitStack() as stack, attempt.transaction() as connection:
            stack.enter_context(connection.pipeline())
            connection.execute("SELECT 1")

    job = run(app, handler)
    assert job.state == "failed"
    assert job.error is not None


@pytest.mark.timeout(60)
def test_an_async_pipeline_that_was_left_open(app: Windlass) -> None:
    async def handler(attempt: Attempt) -> None:
        async with AsyncExitStack() as stack, attempt.transaction() as connection:
            await stack.enter_async_context(connection.pipeline())
            await connection.execute("SELECT 1")

    job = run(app, handler)
    assert job.state == "failed"
    assert job.error is not None


def test_named_cursors_and_finished_pipelines_work(app: Windlass) -> None:
    def handler(attempt: Attempt) -> int:
        with attempt.transaction() as connection:
            with connection.cursor("named") as cursor:
                cursor.execute(MANY)
                found = len(cursor.fetchmany(5))
            with connection.pipeline():
                connection.execute("SELECT 1")
            attempt.complete(found)
        return found

    job = run(app, handler)
    assert (job.state, job.output) == ("completed", 5)


def test_async_named_cursors_work(app: Windlass) -> None:
    async def handler(attempt: Attempt) -> int:
        async with attempt.transaction() as connection:
            async with connection.cursor("named") as cursor:
                await cursor.execute(MANY)
                found = len(await cursor.fetchmany(5))
            attempt.complete(found)
        return found

    job = run(app, handler)
    assert (job.state, job.output) == ("completed", 5)


@pytest.mark.timeout(60)
def test_notifications_that_a_task_still_waits_for(app: Windlass) -> None:
    kept: list[Any] = []

    async def consume(connection: Any) -> None:
        kept.extend([notice async for notice in connection.notifies()])

    async def handler(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            kept.append(asyncio.create_task(consume(connection)))
            await asyncio.sleep(0.2)

    assert refused(run(app, handler))


@pytest.mark.timeout(60)
def test_notifications_that_a_thread_still_waits_for(app: Windlass) -> None:
    def consume(connection: Any) -> None:
        with suppress(Exception):
            list(connection.notifies())

    def handler(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            threading.Thread(target=consume, args=(connection,), daemon=True).start()
            time.sleep(0.2)

    assert refused(run(app, handler))
