"""A block's connection comes as new: nothing of the block before is left on it, and that one's handle is dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from windlass import Attempt, Windlass

LEFT_BEHIND = """
SELECT current_setting('search_path'), current_setting('application_name'), to_regclass('pg_temp.scratch') IS NULL,
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
    current_user = session_user, current_setting('default_transaction_read_only'), current_setting('statement_timeout'),
    current_setting('transaction_isolation')
"""
CLUTTER = (
    "CREATE TEMPORARY TABLE scratch (a integer)",
    "SELECT pg_advisory_lock(7)",
    "PREPARE mine AS SELECT 1",
    "LISTEN something",
    "SET search_path = pg_catalog",
    "SET application_name = 'changed'",
    "SET default_transaction_isolation = 'serializable'",
    "SET default_transaction_read_only = on",
    "SET statement_timeout = '7s'",
)


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url)
    app.migrate()
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("CREATE TABLE ledger (entry text PRIMARY KEY)")
    yield app
    app.close()


def entries(app: Windlass) -> list[str]:
    with psycopg.connect(app.url) as connection:
        return [row[0] for row in connection.execute("SELECT entry FROM ledger ORDER BY entry")]


def test_a_sync_block_comes_as_new(app: Windlass) -> None:
    answers: list[Any] = []
    kept: list[Any] = []

    @app.task
    def clutter(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            answers.append(connection.execute(LEFT_BEHIND).fetchone())
            for _ in range(7):  # psycopg prepares what comes often
                connection.execute("SELECT 1 + %s", [1])
            connection.row_factory = dict_row
            connection.prepare_threshold = 0
            connection.adapters.register_loader("int4", psycopg.types.string.TextLoader)
            for statement in CLUTTER:
                connection.execute(statement)
            kept.append(connection)

    @app.task
    def look(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            assert isinstance(connection, psycopg.Connection)
            assert connection is not kept[0]
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.prepare_threshold == 5
            answers.append(connection.execute(LEFT_BEHIND).fetchone())
            kept.append(connection)

    for task in (clutter, look):
        task.using(max_attempts=1).enqueue()
        app.run_worker(until_idle=True, concurrency=1)
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert answers[0][-1] == "read committed"
    assert app.counts()["completed"] == 2


async def test_an_async_block_comes_as_new(app: Windlass) -> None:
    answers: list[Any] = []

    @app.task
    async def clutter(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            answers.append(await (await connection.execute(LEFT_BEHIND)).fetchone())
            connection.row_factory = dict_row
            for statement in CLUTTER:
                await connection.execute(statement)

    @app.task
    async def look(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            assert isinstance(connection, psycopg.AsyncConnection)
            answers.append(await (await connection.execute(LEFT_BEHIND)).fetchone())

    for task in (clutter, look):
        await task.using(max_attempts=1).aenqueue()
        await app.arun_worker(until_idle=True, concurrency=1)
    assert len(answers) == 2
    assert answers[0] == answers[1]
    await app.aclose()


def test_a_late_write_of_the_job_before_reaches_no_other_block(app: Windlass) -> None:
    kept: list[Any] = []
    refused: list[Exception] = []

    @app.task
    def first(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            kept.extend([connection, connection.cursor()])

    @app.task
    def second(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            connection.execute("INSERT INTO ledger VALUES ('second')")
            for late in kept:
                try:
                    late.execute("INSERT INTO ledger VALUES ('late')")
                except psycopg.OperationalError as error:
                    refused.append(error)
            kept[0].close()
            connection.execute("INSERT INTO ledger VALUES ('third')")

    for task in (first, second):
        task.using(max_attempts=1).enqueue()
        app.run_worker(until_idle=True, concurrency=1)
    assert len(refused) == 2
    assert entries(app) == ["second", "third"]
    assert app.counts()["completed"] == 2


async def test_a_late_write_in_async_code_reaches_no_other_block(app: Windlass) -> None:
    kept: list[Any] = []
    refused: list[Exception] = []

    @app.task
    async def first(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            kept.append(connection)

    @app.task
    async def second(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await connection.execute("INSERT INTO ledger VALUES ('second')")
            try:
                await kept[0].execute("INSERT INTO ledger VALUES ('late')")
            except psycopg.OperationalError as error:
                refused.append(error)

    for task in (first, second):
        await task.using(max_attempts=1).aenqueue()
        await app.arun_worker(until_idle=True, concurrency=1)
    assert len(refused) == 1
    assert entries(app) == ["second"]
    await app.aclose()


def set_read_only(url: str, value: str) -> None:
    """For sessions that begin after this."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        database = psycopg.sql.Identifier(connection.info.dbname)
        statement = psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = " + value)
        connection.execute(statement.format(database))


def test_a_session_that_cannot_write_is_given_to_no_further_sync_block(app: Windlass) -> None:
    """As after a failover: the session began on a server that takes no writes, and a reset changes nothing of that."""
    blocks = app.store.connections.transaction
    set_read_only(app.url, "on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), blocks() as connection:
        connection.execute("INSERT INTO ledger VALUES ('refused')")
    set_read_only(app.url, "off")
    with blocks() as connection:
        connection.execute("INSERT INTO ledger VALUES ('written')")
    assert entries(app) == ["written"]


async def test_a_session_that_cannot_write_is_given_to_no_further_async_block(app: Windlass) -> None:
    blocks = app.store.connections.atransaction
    set_read_only(app.url, "on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        async with blocks() as connection:
            await connection.execute("INSERT INTO ledger VALUES ('refused')")
    set_read_only(app.url, "off")
    async with blocks() as connection:
        await connection.execute("INSERT INTO ledger VALUES ('written')")
    assert entries(app) == ["written"]
    await app.aclose()


def test_sync_blocks_share_one_connection_after_one_another(app: Windlass) -> None:
    pids: set[int] = set()

    @app.task
    def block(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            pids.add(connection.info.backend_pid)

    app.enqueue_many([block.call() for _ in range(10)])
    app.run_worker(until_idle=True, concurrency=1)
    assert len(pids) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_swallowed_error_is_named_when_the_block_ends(app: Windlass, kind: str) -> None:
    with psycopg.connect(app.url) as connection:
        connection.execute("INSERT INTO ledger VALUES ('taken')")

    if kind == "sync":

        @app.task
        def swallows(attempt: Attempt) -> None:
            with attempt.transaction() as connection:
                for _ in range(2):
                    with suppress(psycopg.Error):
                        connection.execute("INSERT INTO ledger VALUES ('taken')")
    else:

        @app.task
        async def swallows(attempt: Attempt) -> None:
            async with attempt.transaction() as connection:
                for _ in range(2):
                    with suppress(psycopg.Error):
                        await connection.execute("INSERT INTO ledger VALUES ('taken')")

    job = swallows.using(max_attempts=1).enqueue()
    app.run_worker(until_idle=True)
    error = job.refresh().error
    assert error is not None
    assert "your transaction was aborted by UniqueViolation: duplicate key" in error.message
    assert "savepoint" in error.message


def test_an_error_that_was_undone_by_a_savepoint_counts_for_nothing(app: Windlass) -> None:
    @app.task
    def careful(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            connection.execute("INSERT INTO ledger VALUES ('once')")
            try:
                with connection.transaction():
                    connection.execute("INSERT INTO ledger VALUES ('once')")
            except psycopg.errors.UniqueViolation:
                connection.execute("INSERT INTO ledger VALUES ('twice')")

    careful.using(max_attempts=1).enqueue()
    app.run_worker(until_idle=True)
    assert entries(app) == ["once", "twice"]
    assert app.counts()["completed"] == 1


def test_an_enqueue_after_a_swallowed_error_names_it_too(app: Windlass) -> None:
    @app.task
    def swallows(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            with suppress(psycopg.Error):
                connection.execute("SELECT 1 / 0")
            swallows.enqueue()

    job = swallows.using(max_attempts=1).enqueue()
    app.run_worker(until_idle=True)
    error = job.refresh().error
    assert error is not None
    assert "aborted by DivisionByZero" in error.message


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_block_that_was_ended_by_hand_does_not_complete_its_job(app: Windlass, end: str) -> None:
    @app.task
    def ends(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            connection.execute(end)

    job = ends.using(max_attempts=1).enqueue()
    app.run_worker(until_idle=True)
    error = job.refresh().error
    assert job.refresh().state == "failed"
    assert error is not None
    assert "COMMIT or ROLLBACK" in error.message


AGAIN = [["COMMIT; BEGIN"], ["COMMIT", "BEGIN"], ["ROLLBACK", "BEGIN"], ["COMMIT AND CHAIN"]]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("end", AGAIN, ids=", ".join)
def test_a_transaction_that_was_begun_by_hand_after_another_does_not_complete_the_job(
    app: Windlass, end: list[str], kind: str
) -> None:
    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            connection.execute("INSERT INTO ledger VALUES ('before')")
            for statement in end:
                connection.execute(statement)
            connection.execute("INSERT INTO ledger VALUES ('after')")

    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await connection.execute("INSERT INTO ledger VALUES ('before')")
            for statement in end:
                await connection.execute(statement)
            await connection.execute("INSERT INTO ledger VALUES ('after')")

    job = app.task("ends", max_attempts=1)(in_thread if kind == "sync" else in_loop).enqueue()
    app.run_worker(until_idle=True)
    error = job.refresh().error
    assert job.refresh().state == "failed"
    assert error is not None
    assert "COMMIT or ROLLBACK" in error.message
    assert "after" not in entries(app)


def test_settings_of_the_session_do_not_matter_to_that(app: Windlass) -> None:
    @app.task
    def changes(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            for name, value in [("timezone", "Asia/Tokyo"), ("datestyle", "German"), ("extra_float_digits", "-15")]:
                connection.execute(f"SET {name} = '{value}'")
            connection.execute("RESET ALL")
            with connection.transaction():
                connection.execute("INSERT INTO ledger VALUES ('once')")
            with connection.pipeline():
                connection.execute("INSERT INTO ledger VALUES ('twice')")

    changes.using(max_attempts=1).enqueue()
    app.run_worker(until_idle=True)
    assert app.counts()["completed"] == 1
    assert entries(app) == ["once", "twice"]
