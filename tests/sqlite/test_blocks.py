"""Blocks of `attempt.transaction()` on SQLite: in memory as on a file, and ended by nobody but themselves."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from windlass import Attempt, Conflict, InvalidInput, Windlass


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, fresh_sqlite_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_sqlite_url if request.param == "file" else "sqlite://")
    app.migrate()
    with app.store.connections.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry text UNIQUE)")
    yield app
    app.close()


def entries(app: Windlass) -> list[str]:
    with app.store.connections.transaction() as connection:
        return [row[0] for row in connection.fetchall("SELECT entry FROM ledger ORDER BY entry")]


def write(connection: Any, entry: str) -> Any:
    return connection.execute("INSERT INTO ledger VALUES (?)", [entry])


def work(app: Windlass, **options: Any) -> None:
    app.run_worker(until_idle=True, **options)


def test_both_commit_or_neither(app: Windlass) -> None:
    @app.task
    async def other() -> None: ...

    @app.task(max_attempts=2, backoff=0)
    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await write(connection, f"async {attempt.number}")
            await other.aenqueue()
            attempt.complete("done")
            if attempt.number == 1:
                raise RuntimeError("no")

    @app.task(max_attempts=2, backoff=0)
    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            write(connection, f"sync {attempt.number}")
            other.enqueue()
            if attempt.number == 1:
                raise RuntimeError("no")

    jobs = [in_loop.enqueue(), in_thread.enqueue()]
    work(app)
    assert entries(app) == ["async 2", "sync 2"]
    assert [job.refresh().output for job in jobs] == ["done", None]
    assert len(app.list(type="other", state="completed")) == 2


def test_the_queue_can_be_read_in_a_block(app: Windlass) -> None:
    @app.task
    def look(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            write(connection, "x")
            attempt.complete(app.counts().running)

    job = look.enqueue()
    work(app)
    assert job.refresh().output == 1


def test_many_blocks_beside_those_who_read_and_write(app: Windlass) -> None:
    """None of them is called twice: in memory it is tables that are locked, and readers lock them too."""
    over, starts = threading.Event(), []

    @app.task(max_attempts=1)
    async def in_loop(attempt: Attempt, n: int) -> None:
        starts.append(n)
        async with attempt.transaction() as connection:
            await write(connection, str(n))

    @app.task(max_attempts=1)
    def in_thread(attempt: Attempt, n: int) -> None:
        starts.append(n)
        with attempt.transaction() as connection:
            write(connection, str(n))

    def look() -> None:
        while not over.is_set():
            app.list(limit=1000)
            app.counts()

    jobs = app.enqueue_many([(in_loop if n % 2 else in_thread).call(n) for n in range(60)])
    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        work(app, concurrency=4)
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert {job.refresh().state for job in jobs} == {"completed"}
    assert sorted(starts) == sorted(range(60))
    assert len(entries(app)) == 60


def test_a_block_of_another_queue_is_refused() -> None:
    one, other = Windlass("sqlite://"), Windlass("sqlite://")
    one.migrate()
    other.migrate()
    with one.store.connections.transaction() as connection, pytest.raises(InvalidInput, match="in memory"):
        other.enqueue("some", connection=connection)
    one.close()
    assert one.counts().total == 0  # a new one
    one.close()
    other.close()


ENDS: list[Callable[[Any], Any]] = [
    lambda connection: connection.commit(),
    lambda connection: connection.rollback(),
    lambda connection: connection.close(),
    lambda connection: connection.executescript("SELECT 1"),
    lambda connection: connection.execute("COMMIT"),
    lambda connection: connection.execute("/* at */ end transaction"),
    lambda connection: connection.execute("ROLLBACK"),
    lambda connection: connection.execute("BEGIN"),
    lambda connection: connection.cursor().execute("COMMIT"),
    lambda connection: connection.cursor().executescript("COMMIT; BEGIN"),
    lambda connection: connection.cursor().connection.commit(),
]


@pytest.mark.parametrize("number", range(len(ENDS)))
def test_only_the_block_itself_ends_it(app: Windlass, number: int) -> None:
    raised: list[BaseException] = []

    @app.task(max_attempts=1)
    def hasty(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            write(connection, "x")
            try:
                ENDS[number](connection)
            except Exception as error:
                raised.append(error)
            raise LookupError

    job = hasty.enqueue()
    work(app)
    assert entries(app) == []
    assert job.refresh().state == "failed"
    assert isinstance(raised[0], Conflict)
    assert "when the block ends" in str(raised[0])


def test_nor_in_an_async_handler(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def hasty(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await write(connection, "x")
            await connection.execute("COMMIT")

    job = hasty.enqueue()
    work(app)
    assert entries(app) == []
    assert "Conflict" in str(job.refresh().error)


def test_savepoints_can_be_used(app: Windlass) -> None:
    @app.task
    async def careful(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await connection.execute("SAVEPOINT one")
            await write(connection, "undone")
            await connection.execute("ROLLBACK TO one")
            await write(connection, "kept")
            await connection.execute("RELEASE one")
            await asyncio.sleep(0)

    careful.enqueue()
    work(app)
    assert entries(app) == ["kept"]


def test_what_sqlite_has_rolled_back_is_not_completed(app: Windlass) -> None:
    @app.task(max_attempts=1)
    def unlucky(attempt: Attempt, *, go_on: str) -> None:
        with attempt.transaction() as connection:
            write(connection, "x")
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute("INSERT OR ROLLBACK INTO ledger VALUES ('x')")
            if go_on == "on the connection":
                write(connection, "y")
            if go_on == "on a cursor":
                connection.cursor().execute("INSERT INTO ledger VALUES ('y')")

    jobs = [unlucky.enqueue(go_on=go_on) for go_on in ("no", "on the connection", "on a cursor")]
    work(app, concurrency=1)
    assert entries(app) == []
    assert ["Conflict" in str(job.refresh().error) for job in jobs] == [True, True, True]


@pytest.mark.parametrize("by", ["execute", "cursor"])
def test_rows_that_were_not_read_keep_no_lock_after_the_block(fresh_sqlite_url: str, by: str) -> None:
    app, kept, waited = Windlass(fresh_sqlite_url), [], []

    @app.task(max_attempts=1)
    def reads(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            query = "SELECT id, state FROM windlass_jobs"
            cursor = connection.execute(query) if by == "execute" else connection.cursor().execute(query)
            kept.append((cursor, cursor.fetchone()))
        began = time.monotonic()
        app.enqueue("other", queue="other")
        waited.append(time.monotonic() - began)

    app.enqueue_many([app.call("other", {}, queue="other") for _ in range(20)])
    job = reads.enqueue()
    app.run_worker(until_idle=True, queues=["default"])
    assert job.refresh().state == "completed"
    assert waited[0] < 5
    app.close()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.timeout(60)
def test_a_statement_of_another_thread_does_not_outlive_the_block(app: Windlass, fails: bool) -> None:
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e9) SELECT max(i) FROM n"
    with ThreadPoolExecutor(1) as pool:

        @app.task(max_attempts=1)
        def careless(attempt: Attempt) -> None:
            with attempt.transaction() as connection:
                write(connection, "x")
                running = pool.submit(lambda: connection.execute(slow).fetchone())
                if fails:
                    running.result(timeout=0.3)
                time.sleep(0.3)

        job = careless.enqueue()
        work(app)
        assert entries(app) == []
        expected = "TimeoutError" if fails else "still using the connection"
        assert expected in str(job.refresh().error)


@pytest.mark.timeout(60)
def test_a_thread_that_outlives_the_block_can_begin_nothing_more(app: Windlass) -> None:
    ended: list[BaseException] = []

    def loop(connection: Any) -> None:
        try:
            while True:
                connection.execute("SELECT count(*) FROM ledger").fetchall()
        except BaseException as error:
            ended.append(error)

    @app.task(max_attempts=1)
    def careless(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            thread = threading.Thread(target=loop, args=(connection,), daemon=True)
            thread.start()
            time.sleep(0.1)

    careless.enqueue()
    work(app)
    work(app)  # the file is not locked
    assert isinstance(ended[0], Conflict | sqlite3.Error)
