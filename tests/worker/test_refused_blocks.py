"""A block whose settlement or commit the store refuses for a reason that is not in the data: the job is given back, no
attempt is spent, and it is tried again. What the handler itself does wrong spends one as ever."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.chains.ledger import Ledger
from tests.proxy import Proxy
from windlass import Attempt, Job, Snooze, Windlass
from windlass.block import BlockRefused
from windlass.embedded import MongodbServer
from windlass.operation import Operation, Unwilling
from windlass.outcome import Settlement
from windlass.stores.store import Refusal
from windlass.worker.unspent import LONGEST_DELAY, MOST_REFUSALS, Unspent

from .conftest import until
from .looking import look
from .test_refusing_store import read_only

WORK: Any = {"concurrency": 2, "poll_interval": "200ms"}


@pytest.fixture
def postgres(fresh_postgres_url: str) -> Iterator[tuple[Windlass, Ledger]]:
    app, ledger = Windlass(fresh_postgres_url), Ledger(fresh_postgres_url)
    app.migrate()
    yield app, ledger
    app.close()


def block(app: Windlass, ledger: Ledger, kind: str, starts: list[int]) -> Any:
    """A task with one attempt, which writes a line and completes."""

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            attempt.complete("done")

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        with attempt.transaction() as connection:
            ledger.write(connection, "once")
            attempt.complete("done")

    return app.task("block", max_attempts=1)(in_loop if kind == "async" else in_thread)


@contextlib.contextmanager
def raising(url: str, code: str) -> Iterator[None]:
    """No row can be added to the history."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"""CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END$$""")
        connection.execute("CREATE TRIGGER broken BEFORE INSERT ON windlass_history EXECUTE FUNCTION broken()")
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER broken ON windlass_history")


async def completed_once(app: Windlass, ledger: Ledger, job: Job, starts: list[int], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while (found := await look(app, job)).state in ("pending", "running"):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)
    assert (found.state, found.attempt, found.output) == ("completed", 1, "done")
    assert set(starts) == {1}
    assert ledger.entries == ["once"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_store_is_unwilling_for_a_while(
    app: Windlass, store_url: str, monkeypatch: pytest.MonkeyPatch, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    settle, refused, starts, ledger = app.store.settle, list[object](), list[int](), Ledger(store_url)

    def unwilling(settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        if settlements[0].state == "completed" and len(refused) < 2:
            refused.append(settlements)
            raise Unwilling("not now")
        return (yield from settle(settlements))

    monkeypatch.setattr(app.store, "settle", unwilling)
    task = block(app, ledger, kind, starts)
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await completed_once(app, ledger, job, starts)
    assert len(starts) == 3
    assert caplog.text.count("the store did not take its transaction") == 2
    ledger.close()
    await app.aclose()


@pytest.mark.parametrize("code", ["42501", "XX000", "53100", "57014"])
async def test_postgresql_refuses_the_settlement_for_a_while(postgres: tuple[Windlass, Ledger], code: str) -> None:
    app, ledger = postgres
    starts: list[int] = []
    task = block(app, ledger, "async", starts)
    async with app.worker(**WORK):
        with raising(app.url, code):
            job = await task.aenqueue()
            await asyncio.sleep(2)
            assert ledger.entries == []
        assert len(starts) <= 4, "it does not wait long enough between tries"
        await completed_once(app, ledger, job, starts)
    await app.aclose()


async def test_a_settlement_that_is_refused_for_its_content_spends_the_attempt(
    postgres: tuple[Windlass, Ledger],
) -> None:
    app, ledger = postgres
    starts: list[int] = []
    task = block(app, ledger, "async", starts)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE windlass_history ADD CHECK (output <> '\"done\"')")
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await until(lambda: app.get(job.id).state == "failed")  # type: ignore[union-attr]
    assert starts == [1]
    await app.aclose()


async def test_a_deferred_trigger_of_the_users_own_spends_the_attempt(postgres: tuple[Windlass, Ledger]) -> None:
    app, ledger = postgres
    starts: list[int] = []
    task = block(app, ledger, "async", starts)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'no such account'; END$$""")
        connection.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await until(lambda: app.get(job.id).state == "failed")  # type: ignore[union-attr]
    error = (await look(app, job)).error
    assert error is not None
    assert "no such account" in error.message
    assert starts == [1]
    await app.aclose()


async def test_the_server_crashes_at_the_commit(postgres: tuple[Windlass, Ledger]) -> None:
    """An error of the server's own comes from the commit itself: the first two times."""
    app, ledger = postgres
    starts: list[int] = []
    task = block(app, ledger, "async", starts)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE tries")
        connection.execute("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN IF nextval('tries') < 3 THEN RAISE EXCEPTION 'disk' USING ERRCODE = '58030'; END IF;
            RETURN NULL; END$$""")
        connection.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await completed_once(app, ledger, job, starts)
    assert len(starts) == 3
    await app.aclose()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_postgresql_is_read_only_for_a_while(fresh_postgres_url: str, kind: str) -> None:
    app, starts, go_on = Windlass(fresh_postgres_url), list[int](), asyncio.Event()
    await app.amigrate()

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        await go_on.wait()
        async with attempt.transaction():
            attempt.complete("done")

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        while not go_on.is_set():
            time.sleep(0.01)
        with attempt.transaction():
            attempt.complete("done")

    task = app.task("block", max_attempts=1)(in_loop if kind == "async" else in_thread)
    job = await task.aenqueue()
    async with app.worker(**WORK) as worker:
        await until(lambda: starts)
        with read_only(fresh_postgres_url):
            go_on.set()
            await asyncio.sleep(3)
        await until(lambda: worker.completed == 1, 60)
    found = await look(app, job)
    assert (found.state, found.attempt, found.output) == ("completed", 1, "done")
    await app.aclose()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_connection_breaks_before_the_settlement(postgres: tuple[Windlass, Ledger], kind: str) -> None:
    app, ledger = postgres
    starts: list[int] = []

    def end(connection: Any) -> None:
        if len(starts) < 3:
            with psycopg.connect(app.url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            attempt.complete("done")
            end(connection)

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        with attempt.transaction() as connection:
            ledger.write(connection, "once")
            attempt.complete("done")
            end(connection)

    task = app.task("block", max_attempts=1)(in_loop if kind == "async" else in_thread)
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await completed_once(app, ledger, job, starts)
    assert len(starts) == 3
    await app.aclose()


async def test_a_connection_that_the_handler_closes_spends_the_attempt(postgres: tuple[Windlass, Ledger]) -> None:
    app, _ = postgres
    starts: list[int] = []

    @app.task(max_attempts=1)
    async def closes(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as connection:
            await connection.close()

    async with app.worker(**WORK):
        job = await closes.aenqueue()
        await until(lambda: app.get(job.id).state == "failed")  # type: ignore[union-attr]
    error = (await look(app, job)).error
    assert error is not None
    assert "was closed in it" in error.message
    assert starts == [1]
    await app.aclose()


@pytest.mark.parametrize("arrives", [True, False], ids=["made", "lost"])
async def test_a_commit_that_gets_no_answer(fresh_postgres_url: str, arrives: bool) -> None:
    """Either the commit was made, and nothing is done again; or it was not, and all of it is."""
    parts, ledger = urlsplit(fresh_postgres_url), Ledger(fresh_postgres_url)
    starts: list[int] = []
    with Proxy(str(parts.hostname), int(parts.port or 5432)) as proxy:
        app = Windlass(proxy.before(fresh_postgres_url))
        await app.amigrate()
        settle = app.store.settle

        def losing(settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
            refusals = yield from settle(settlements)
            if len(starts) == 1 and settlements[0].state == "completed":
                ours = [line for line in proxy.lines if b"ledger" in line.said]
                assert len(ours) == 1
                (proxy.lose_answers if arrives else proxy.cut)(ours.__contains__)
            return refusals

        app.store.settle = losing  # type: ignore[method-assign]
        task = block(app, ledger, "async", starts)
        async with app.worker(**WORK):
            job = await task.aenqueue()
            await completed_once(app, ledger, job, starts)
        assert len(starts) == (1 if arrives else 2)
        await app.aclose()
    ledger.close()


async def test_the_server_is_away_when_a_block_is_to_begin(fresh_postgres_url: str) -> None:
    parts, ledger = urlsplit(fresh_postgres_url), Ledger(fresh_postgres_url)
    starts: list[int] = []
    with Proxy(str(parts.hostname), int(parts.port or 5432)) as proxy:
        app = Windlass(proxy.before(fresh_postgres_url))
        await app.amigrate()

        @app.task(max_attempts=1)
        async def late(attempt: Attempt) -> None:
            starts.append(attempt.number)
            if len(starts) == 1:
                proxy.refusing = True
            async with attempt.transaction() as connection:
                await ledger.awrite(connection, "once")
                attempt.complete("done")

        async with app.worker(**WORK):
            job = await late.aenqueue()
            await until(lambda: proxy.refusing)
            await asyncio.sleep(2)
            proxy.refusing = False
            await completed_once(app, ledger, job, starts)
        await app.aclose()
    ledger.close()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_reader_keeps_sqlite_from_committing(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("windlass.stores.sqlite.blocks.BUSY_SECONDS", 0.2)
    app, ledger, starts = Windlass(f"{fresh_sqlite_url}?journal_mode=delete"), Ledger(fresh_sqlite_url), list[int]()
    await app.amigrate()
    reader = sqlite3.connect(ledger.path, isolation_level=None, check_same_thread=False)

    def hold() -> None:
        if len(starts) == 1:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM ledger").fetchall()

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as connection:
            hold()
            await ledger.awrite(connection, "once")
            attempt.complete("done")

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        with attempt.transaction() as connection:
            hold()
            ledger.write(connection, "once")
            attempt.complete("done")

    task = app.task("block", max_attempts=1)(in_loop if kind == "async" else in_thread)
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await until(lambda: reader.in_transaction)
        await asyncio.sleep(1.5)
        reader.execute("ROLLBACK")
        await completed_once(app, ledger, job, starts)
    reader.close()
    await app.aclose()


async def test_sqlite_is_full_at_the_settlement(fresh_sqlite_url: str) -> None:
    app, ledger, starts = Windlass(fresh_sqlite_url), Ledger(fresh_sqlite_url), list[int]()
    await app.amigrate()

    @app.task(max_attempts=1)
    async def large(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            attempt.complete("done")
            if len(starts) == 1:
                for number in range(99):
                    attempt.log(f"{number}" * 500)
                await connection.execute("PRAGMA max_page_count = 1")  # as if it had no room for more

    async with app.worker(**WORK):
        job = await large.aenqueue()
        await completed_once(app, ledger, job, starts)
    assert len(starts) == 2
    await app.aclose()


@pytest.fixture(scope="module")
def server_of_faults() -> Iterator[MongodbServer]:
    """A MongoDB that fails on demand. A commit that fails in this way leaves its transaction to the server, which ends
    it when it is too old."""
    with MongodbServer(settings={"enableTestCommands": "1", "transactionLifetimeLimitSeconds": "1"}) as server:
        yield server


@pytest.mark.parametrize("command", ["commitTransaction", "update"])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_mongodb_refuses_for_a_while(server_of_faults: MongodbServer, command: str, kind: str) -> None:
    url = server_of_faults.url.replace("/?", f"/{command}_{kind}?serverSelectionTimeoutMS=30000&")
    app, ledger, starts = Windlass(url), Ledger(url), list[int]()
    await app.amigrate()

    def fail() -> None:
        if len(starts) < 3:
            fault = {"failCommands": [command], "errorCode": 13}
            ledger._client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fault)

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        async with attempt.transaction() as session:
            await ledger.awrite(session, "once")
            attempt.complete("done")
            fail()

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        with attempt.transaction() as session:
            ledger.write(session, "once")
            attempt.complete("done")
            fail()

    task = app.task("block", max_attempts=1, lease="5m")(in_loop if kind == "async" else in_thread)
    async with app.worker(**WORK):
        job = await task.aenqueue()
        await completed_once(app, ledger, job, starts, 60)
    assert len(starts) == 3
    await app.aclose()
    ledger.close()


def test_the_wait_grows_and_has_a_bound(app: Windlass) -> None:
    job, blocks = app.enqueue("any"), Unspent()
    delays = [_seconds(blocks.snooze(job, BlockRefused("no"), "refused", MOST_REFUSALS)) for _ in range(100)]
    assert delays[0] <= 0.5
    assert delays[3] >= 2.5
    assert all(LONGEST_DELAY / 2 < delay <= LONGEST_DELAY for delay in delays[10:])
    blocks.counts.pop(job.id)
    assert _seconds(blocks.snooze(job, BlockRefused("no"), "refused", MOST_REFUSALS)) <= 0.5


def test_after_half_an_hour_a_refusal_counts(app: Windlass) -> None:
    job, blocks, refusal = app.enqueue("any"), Unspent(), BlockRefused("no")
    given_back = sum(_seconds(blocks.snooze(job, refusal, "refused", MOST_REFUSALS)) for _ in range(MOST_REFUSALS))
    assert 20 * 60 < given_back < 40 * 60
    assert blocks.snooze(job, refusal, "refused", MOST_REFUSALS) is refusal
    assert isinstance(blocks.snooze(job, refusal, "refused", MOST_REFUSALS), Snooze)


def _seconds(snooze: BaseException) -> float:
    assert isinstance(snooze, Snooze)
    assert snooze.after is not None
    return snooze.after
