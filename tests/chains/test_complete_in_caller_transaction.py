"""`attempt.complete(value, connection=…)`: the completion in a transaction that the caller has opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from windlass import Attempt, Continue, Windlass

from ..caller_transactions.alchemy import engine_url
from .conftest import Ledger

DRIVERS = {"sqlite": ("pysqlite", "aiosqlite"), "postgres": ("psycopg", "asyncpg")}
WRITE = text("INSERT INTO ledger VALUES (:entry)")


def test_on_a_connection_of_the_store(app: Windlass, ledger: Ledger) -> None:
    """The pull interface, on a connection that the caller has opened."""

    @app.task
    def task(n: int) -> None: ...

    jobs = [task.enqueue(n) for n in range(2)]
    first, second = app.claim(2)
    with app.store.connections.transaction() as connection:
        ledger.write(connection, "one")
        first.complete("mine", connection=connection)

    def fail_after_completing() -> None:
        with app.store.connections.transaction() as connection:
            ledger.write(connection, "two")
            second.complete("gone", connection=connection)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_completing()
    states = {job.id: job.refresh().state for job in jobs}
    assert (states[first.job.id], states[second.job.id]) == ("completed", "running")
    assert ledger.entries == ["one"]


@pytest.mark.parametrize("kind", ["connection", "session"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_sqlalchemy_both_commit_or_neither_does(request: pytest.FixtureRequest, store: str, kind: str) -> None:
    url = request.getfixturevalue(f"fresh_{store}_url")
    app, ledger = Windlass(url), Ledger(url)
    sync_url, async_url = (engine_url(url, driver) for driver in DRIVERS[store])
    patient = {"timeout": 30} if store == "sqlite" else {}  # each of the two handlers waits for the other's transaction

    @app.task
    def following() -> str:
        return "end"

    def in_thread(attempt: Attempt) -> None:
        engine = create_engine(sync_url, poolclass=NullPool, connect_args=patient)
        with engine.connect() if kind == "connection" else Session(engine) as connection, connection.begin():
            connection.execute(WRITE, {"entry": f"sync {attempt.number}"})
            attempt.complete(Continue(following.call()), connection=connection)
            if attempt.number == 1:
                raise RuntimeError("before the commit")

    async def in_loop(attempt: Attempt) -> None:
        engine = create_async_engine(async_url, poolclass=NullPool, connect_args=patient)
        opened = engine.connect() if kind == "connection" else AsyncSession(engine)
        async with opened as connection, connection.begin():
            await connection.execute(WRITE, {"entry": f"async {attempt.number}"})
            await attempt.acomplete(Continue(following.call()), connection=connection)
            if attempt.number == 1:
                raise RuntimeError("before the commit")

    handlers: tuple[Callable[..., Any], ...] = (in_thread, in_loop)
    jobs = [app.task(max_attempts=3, backoff=0)(handler).enqueue() for handler in handlers]
    app.run_worker(until_idle=True, concurrency=5)
    for job in (job.refresh() for job in jobs):
        assert (job.state, job.attempt) == ("completed", 2)
        assert [record.error and record.error.message for record in job.attempts] == ["before the commit"]
        assert [one.type for one in reversed(app.list(chain=job.id))] == [job.type, "following"]
        assert job.result() == "end"
    assert ledger.entries == ["async 2", "sync 2"]
    app.close()
    ledger.close()
