"""`windlass doctor` finds problems on each store, and names their remedies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from windlass import Windlass
from windlass.stores.store import Finding

from .test_shell import Shell, app, shell

__all__ = ["app", "shell"]


def findings(app: Windlass) -> dict[str, Finding]:
    return {one.name: one for one in app.examine()}


def test_a_sound_queue(shell: Shell, app: Windlass) -> None:
    said = shell.text("doctor")
    assert "✗" not in said
    for word in ("connection", "schema", "indexes", "clock", "workers", "leases", "types", "paused"):
        assert word in said
    assert all(one["is_right"] for one in shell.data("doctor"))


def test_a_missing_schema_is_not_made(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for _ in range(2):
        done = Shell(fresh_postgres_url).run("doctor")
        assert (done.exit_code, "windlass migrate" in done.output) == (1, True)


@pytest.mark.one_store
def test_a_store_that_cannot_be_reached() -> None:
    done = Shell("postgresql://nobody@127.0.0.1:1/none").run("doctor")
    assert (done.exit_code, "✗ connection" in done.output) == (1, True)


async def test_jobs_that_no_live_worker_can_run(app: Windlass) -> None:
    await app.amigrate()
    await app.aenqueue("unknown", queue="mail")
    assert findings(app)["workers"].is_right is False

    @app.task
    async def known() -> None: ...

    async with app.worker(queues=["default"]):
        for _ in range(100):
            if await app.aworkers():
                break
            await asyncio.sleep(0.05)
        found = {one.name: one for one in await app.aexamine()}
    assert found["workers"].is_right
    assert found["types"].is_right is False
    assert "1 of unknown in queue mail" in found["types"].text


def test_a_paused_queue_is_named(app: Windlass) -> None:
    app.enqueue("task", queue="mail")
    app.pause("mail")
    assert findings(app)["paused"].text == "mail (1 waiting)"


def test_jobs_whose_leases_have_ended(app: Windlass) -> None:
    app.enqueue("task")
    assert app.claim(lease=1)
    app.store.clock.move(timedelta(minutes=1))
    found = findings(app)["leases"]
    assert (found.is_right, found.text) == (False, "the leases of running jobs have ended")


def test_a_clock_that_is_wrong(app: Windlass) -> None:
    app.migrate()
    app.store.clock.move(timedelta(seconds=90))
    found = findings(app)["clock"]
    assert (found.is_right, "differ by 90" in found.text or "differ by 89" in found.text) == (False, True)


def test_an_index_that_is_missing(app: Windlass, store_url: str) -> None:
    app.migrate()
    _drop_an_index(app, store_url)
    found = findings(app)["indexes"]
    assert found.is_right is False
    assert "jobs_ready" in found.text or "by_type" in found.text


def _drop_an_index(app: Windlass, url: str) -> None:
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP INDEX windlass_jobs_ready")
    elif url.startswith("mongodb"):
        store: Any = app.store
        store.connections.client()[store.connections.target.database]["windlass_jobs"].drop_index("by_type")
    else:
        connections: Any = app.store.connections
        connection = connections.open()
        connection.execute("DROP INDEX windlass_jobs_ready")
        connection.close()


def test_an_old_transaction_is_named(fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.stores.postgres.examination.OLD_SECONDS", 0.0)
    app = Windlass(fresh_postgres_url)
    app.migrate()
    with psycopg.connect(fresh_postgres_url, application_name="reports") as connection:
        connection.execute("SELECT 1 FROM windlass_jobs")
        connection.execute("DECLARE c CURSOR FOR SELECT 1 FROM windlass_jobs")
        found = findings(app)["snapshots"]
        assert (found.is_right, "reports" in found.text) == (False, True)
        assert found.remedy == f"SELECT pg_terminate_backend({connection.info.backend_pid})"
    app.close()
