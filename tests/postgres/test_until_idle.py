"""`until_idle`: until nothing is due; one that somebody has locked for a moment is due."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from windlass import Windlass


async def test_a_job_that_is_locked_for_a_moment_is_run(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.turn.LOCKED_SECONDS", 60.0)
    app = Windlass(fresh_postgres_url)

    @app.task
    async def greet() -> str:
        return "hello"

    job = await greet.aenqueue()
    async with await psycopg.AsyncConnection.connect(fresh_postgres_url) as connection:
        await connection.execute("SELECT FROM windlass_jobs FOR UPDATE")
        working = asyncio.create_task(app.arun_worker(until_idle=True))
        await asyncio.sleep(0.5)
        assert not working.done()
        await connection.rollback()
        assert await working == 1
    assert await job.aresult(0) == "hello"
    await app.aclose()


async def test_jobs_for_others_do_not_keep_it(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    await app.aenqueue("unknown")
    await app.aenqueue("held", queue="paused")
    await app.apause("paused")
    async with asyncio.timeout(60):
        assert await app.arun_worker(until_idle=True) == 0
    await app.aclose()
