"""A connection pooler before PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.pgbouncer import PgBouncer
from windlass import Windlass
from windlass.embedded import ServerError
from windlass.stores.postgres import wakeup
from windlass.stores.postgres.wakeup import PostgresWakeup
from windlass.stores.wakeup import Hint

from .conftest import until

NOTICE = "a pooler that shares its connections"


@pytest.fixture
def bouncer(fresh_postgres_url: str) -> Iterator[Callable[..., PgBouncer]]:
    """Starts PgBouncer in a mode. It fails where there is none."""
    started: list[PgBouncer] = []

    def start(mode: str, **settings: str) -> PgBouncer:
        try:
            started.append(PgBouncer(fresh_postgres_url, mode, settings).__enter__())
        except ServerError as error:
            pytest.fail(str(error), pytrace=False)
        return started[-1]

    yield start
    for server in started:
        server.close()


async def enqueue_elsewhere(url: str, count: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.pooled", str(count), env=os.environ | {"WINDLASS_URL": url}
    )
    assert await process.wait() == 0


def prepared_in(url: str) -> int:
    """Statements that this session, whichever the pooler gives us, was asked to keep."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        row = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        return int(row[0]) if row else -1


async def test_behind_pgbouncer_in_transaction_mode_jobs_are_found_by_polling(
    bouncer: Callable[..., PgBouncer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    url = bouncer("transaction").url
    app = Windlass(url)
    app.store.wakeup.answer_seconds = 30.0  # type: ignore[attr-defined]
    ran: list[int] = []

    @app.task
    async def count(n: int) -> None:
        ran.append(n)

    async with app.worker(concurrency=5, poll_interval="500ms") as worker:
        await until(lambda: NOTICE in caplog.text)
        await enqueue_elsewhere(url, 200)
        await until(lambda: worker.completed == 200, 60)
        await (await count.aenqueue(200)).aresult(timeout=20)
        assert app.store.connections.pooled  # type: ignore[attr-defined]
        assert prepared_in(url) == 0
    assert sorted(ran) == list(range(201))
    assert (await app.acounts()).completed == 201
    assert [record.levelname for record in caplog.records if NOTICE in record.message] == ["WARNING"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING][1:] == []
    await app.aclose()


async def test_behind_a_pooler_that_gives_each_client_a_connection_of_its_own_hints_are_heard(
    bouncer: Callable[..., PgBouncer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeup, "ECHO_SECONDS", 30)
    url = bouncer("session", default_pool_size="20").url
    app = Windlass(url)

    @app.task
    async def count(n: int) -> int:
        return n

    async with app.worker(concurrency=5, poll_interval="10m") as worker:
        await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
        await asyncio.sleep(1.0)
        await enqueue_elsewhere(url, 1)
        await until(lambda: worker.completed == 1, 40)
    assert app.store.connections.pooled  # type: ignore[attr-defined]
    assert NOTICE not in caplog.text
    await app.aclose()


def test_an_echo_that_came_too_late_makes_no_listener_deaf_for_ever(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    late, hears_itself = [True, True], PostgresWakeup._hears_itself

    def tried(self: PostgresWakeup, connection: psycopg.Connection) -> bool:
        return hears_itself(self, connection) and not (late and late.pop())

    monkeypatch.setattr(PostgresWakeup, "_hears_itself", tried)
    monkeypatch.setattr(wakeup, "DEAF_SECONDS", 0.2)
    monkeypatch.setattr(wakeup, "LOOK_SECONDS", 0.05)
    app = Windlass(fresh_postgres_url)
    app.migrate()
    app.store.connections.pooled = True  # type: ignore[attr-defined]
    heard: list[Hint | None] = []
    deafen = app.store.wakeup.listen(heard.append)
    deadline = time.monotonic() + 30
    while Hint("ready", "default") not in heard and time.monotonic() < deadline:
        app.enqueue("some", {})
        time.sleep(0.05)
    deafen()
    assert Hint("ready", "default") in heard
    assert late == []
    assert caplog.text.count(NOTICE) == 1
    app.close()


def test_without_a_pooler_statements_are_prepared(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    for _ in range(10):
        app.counts()
    with app.store.connections.link() as link:  # type: ignore[attr-defined]
        row = link.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert row[0] > 0
    assert not app.store.connections.pooled  # type: ignore[attr-defined]
    app.close()
