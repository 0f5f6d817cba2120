"""Rows that somebody has written by hand, or that an older version let in: none of them stops anything else."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from windlass import Windlass
from windlass.errors import InvalidInput

from .conftest import until


@pytest.fixture
def postgres(fresh_postgres_url: str) -> Windlass:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    return app


def write(app: Windlass, statement: str, *values: object) -> None:
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(statement, values)


async def test_a_run_at_of_infinity_ends_no_worker(postgres: Windlass) -> None:
    app, ran = postgres, []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    long_ago, never = await note.aenqueue("long ago"), await note.aenqueue("never")
    write(app, "UPDATE windlass_jobs SET run_at = '-infinity' WHERE id = %s", long_ago.id)
    write(app, "UPDATE windlass_jobs SET run_at = 'infinity', expires_at = 'infinity' WHERE id = %s", never.id)
    for limit in (None, 1):  # with a slot for each, and ahead of slots
        async with app.worker(concurrency=limit or 20, poll_interval=0.1) as worker:
            await note.aenqueue(f"now {limit}")
            await until(lambda limit=limit: f"now {limit}" in ran)  # type: ignore[misc]
            await until(lambda: "long ago" in ran)
            await asyncio.sleep(0.5)
            assert worker is not None
    assert "never" not in ran
    assert app.require(never.id).run_at == datetime.max.replace(tzinfo=UTC)
    assert app.require(long_ago.id).run_at == datetime.min.replace(tzinfo=UTC)
    assert {job.id for job in app.list()} >= {never.id, long_ago.id}
    app.close()


def test_a_run_at_beyond_the_calendar_can_be_read(app: Windlass) -> None:
    """On each store what it can hold."""
    job = app.enqueue("work", delay=3600)
    if app.url.startswith("sqlite"):
        import sqlite3

        for raw in (2**62, -(2**62), 9e999, -9e999, "soon"):
            with sqlite3.connect(app.url.removeprefix("sqlite:///")) as file:
                file.execute("UPDATE windlass_jobs SET run_at = ?", [raw])
            file.close()
            read = app.require(job.id).run_at
            assert read.year == (1 if isinstance(raw, int | float) and raw < 0 else 9999)
    elif app.url.startswith("postgres"):
        for raw, year in (("infinity", 9999), ("-infinity", 1), ("20000-01-01", 9999), ("0100-01-01 BC", 1)):
            write(app, "UPDATE windlass_jobs SET run_at = %s::timestamptz", raw)
            assert app.require(job.id).run_at.year == year
    else:
        from pymongo import MongoClient

        client: MongoClient[Any] = MongoClient(app.url)
        with client:
            client.get_default_database().windlass_jobs.update_many({}, {"$set": {"run_at": "soon"}})
        assert app.require(job.id).run_at.year == 9999
    assert [one.id for one in app.list()] == [job.id]


@pytest.mark.parametrize(
    ("option", "size", "most"),
    [("queue", 101, 400), ("tenant", 101, 400), ("order_key", 251, 1000), ("unique", 251, 1000)],
)
def test_names_are_bounded_in_bytes_alike_on_each_store(app: Windlass, option: str, size: int, most: int) -> None:
    options: dict[str, Any] = {option: "🜁" * size}
    with pytest.raises(InvalidInput, match=f"{4 * size} bytes of UTF-8; {most} at the most"):
        app.enqueue_many([app.call("work", {}, **options)])
    with pytest.raises(InvalidInput, match="404 bytes of UTF-8"):
        app.enqueue("🜁" * 101)
    assert app.counts().total == 0


def test_the_longest_names_are_taken_on_each_store(app: Windlass) -> None:
    """With letters that no index can compress."""
    name = "".join(chr(0x10000 + 7919 * number % 50_000) for number in range(100))
    key = "".join(chr(0x10000 + 6007 * number % 50_000) for number in range(250))
    first = app.enqueue(name, queue=name, tenant=name, order_key=key, unique=key)
    second = app.enqueue(name, queue=name, tenant=name, order_key=key)
    for job in (first, second):
        (attempt,) = app.claim(10)
        assert attempt.job.id == job.id
        attempt.complete()


def insert_too_long(app: Windlass) -> str:
    """As an older version let it in: a key and a tenant that no index row of PostgreSQL can hold."""
    job = app.enqueue("work", delay=3600)
    key = "".join(chr(0x10000 + 6007 * number % 50_000) for number in range(500))
    tenant = "".join(chr(0x10000 + 7919 * number % 50_000) for number in range(200))
    statement = "UPDATE windlass_jobs SET order_key = %s, tenant = %s, lane = 0, seq = 0, run_at = now() WHERE id = %s"
    write(app, statement, key, tenant, job.id)
    return str(job.id)


async def test_a_job_that_cannot_be_admitted_is_set_aside_and_stops_nothing(postgres: Windlass) -> None:
    app, ran = postgres, []

    @app.task
    async def note(text: str) -> None:
        ran.append(text)

    id = insert_too_long(app)
    async with app.worker(poll_interval=0.1):
        await note.using(order_key="k").aenqueue("ordered")
        await note.aenqueue("plain")
        await until(lambda: {"ordered", "plain"} <= set(ran))
        await until(lambda: app.require(id).state == "failed")
    error = app.require(id).error
    assert error is not None
    assert error.type == "NotAdmitted"
    assert "index" in error.message
    assert json.dumps(error.message)
    app.close()


def test_an_enqueue_does_not_raise_because_of_another_job(postgres: Windlass) -> None:
    app = postgres
    id = insert_too_long(app)
    job = app.enqueue("work", order_key="k")
    assert app.require(id).state == "failed"
    (attempt,) = app.claim(10)
    assert attempt.job.id == job.id
    app.close()
