"""A store that is there and refuses: what is done stays done, however long that takes; only what is refused for its own
content ends otherwise, and says what it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from windlass import Continue, StoreUnavailable, Windlass
from windlass.errors import InvalidInput
from windlass.operation import Interrupted, Operation, Statement, Unwilling
from windlass.stores.sql.query import Query

from .conftest import until
from .looking import look


@contextlib.contextmanager
def read_only(url: str) -> Iterator[None]:
    """The database takes no writes, on connections that are there and on new ones, as after a failover."""
    name = sql.Identifier(urlsplit(url).path.strip("/"))
    with psycopg.connect(url, autocommit=True) as connection:

        def others_go() -> None:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        connection.execute(change.format(name, sql.Literal("on")))
        others_go()
        try:
            yield
        finally:
            # Those that are connected stay read-only for as long as they are.
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(change.format(name, sql.Literal("off")))


async def test_a_worker_that_starts_while_postgresql_is_read_only_works_when_it_writes_again(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Windlass(fresh_postgres_url)

    @app.task
    async def greet() -> str:
        return "hello"

    app.schedule("* * * * *", greet, name="greetings")
    job = await greet.aenqueue()
    worker = app.worker(poll_interval="200ms")
    with read_only(fresh_postgres_url):
        running = asyncio.create_task(worker.run())
        await until(lambda: "the first heartbeat failed" in caplog.text)
        assert "schedules could not be looked at" in caplog.text
        await asyncio.sleep(0.5)
        assert not running.done(), "the worker has ended"
    assert await job.aresult(timeout=30) == "hello"
    await until(lambda: [schedule.name for schedule in app.schedules()] == ["greetings"], seconds=40)
    worker.stop()
    await running
    await app.aclose()


async def test_a_job_that_ends_while_postgresql_is_read_only_is_completed_later(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Windlass(fresh_postgres_url)
    await app.amigrate()
    go_on, runs = asyncio.Event(), []

    @app.task(max_attempts=20)
    async def charge(n: int) -> dict[str, int]:
        runs.append(n)
        await go_on.wait()
        return {"receipt": n}

    jobs = await app.aenqueue_many([charge.call(n) for n in range(10)])
    worker = app.worker(concurrency=5)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(runs) == 5)
    with read_only(fresh_postgres_url):
        go_on.set()
        await until(lambda: "settlements wait for the store" in caplog.text)
        await asyncio.sleep(3)
        assert not running.done(), "the worker has ended"
        assert len(runs) <= 5, "more was begun than could be written down"
    await until(lambda: worker.completed == 10, 60)
    worker.stop()
    assert await running == 10
    found = {job.id: job for job in [await look(app, job) for job in jobs]}
    assert [(found[job.id].state, found[job.id].attempt) for job in jobs] == [("completed", 1)] * 10
    assert sorted(runs) == list(range(10))
    await app.aclose()


async def test_a_worker_continues_whatever_error_the_server_gives_for_a_while(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    await app.amigrate()
    go_on = asyncio.Event()

    @app.task(max_attempts=1)
    async def work(n: int) -> int:
        await go_on.wait()
        return n

    first = await work.aenqueue(1)
    worker = app.worker(concurrency=2, poll_interval="200ms", rescue_interval="200ms")
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.running)
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        # XX000, for each statement that touches a job.
        connection.execute("""CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'could not read block' USING ERRCODE = 'XX001'; END$$""")
        connection.execute(
            "CREATE TRIGGER broken BEFORE INSERT OR UPDATE OR DELETE ON windlass_jobs EXECUTE FUNCTION broken()"
        )
        go_on.set()
        await asyncio.sleep(3)
        assert not running.done()
        connection.execute("DROP TRIGGER broken ON windlass_jobs")
    await until(lambda: worker.completed == 1, 60)
    worker.stop()
    await running
    assert (await look(app, first)).state == "completed"
    await app.aclose()


async def test_one_row_that_the_server_cannot_write_holds_up_no_other(fresh_postgres_url: str) -> None:
    """As a damaged page would: whatever is asked of this one row fails, and nothing in what is sent is wrong."""
    app = Windlass(fresh_postgres_url)
    await app.amigrate()

    @app.task
    async def work(n: int) -> int:
        return n

    jobs = await app.aenqueue_many([work.call(n) for n in range(20)])
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(f"""CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN IF OLD.id = '{jobs[7].id}' THEN RAISE EXCEPTION 'bad' USING ERRCODE = 'XX001'; END IF;
            RETURN OLD; END$$""")
        connection.execute(
            "CREATE TRIGGER broken BEFORE DELETE ON windlass_jobs FOR EACH ROW EXECUTE FUNCTION broken()"
        )
        async with app.worker(concurrency=20) as worker:
            await until(lambda: worker.completed == 19, 60)
            later = await work.aenqueue(99)
            await until(lambda: worker.completed == 20)
            assert (await look(app, later)).state == "completed"
            connection.execute("DROP TRIGGER broken ON windlass_jobs")
            await until(lambda: worker.completed == 21, 60)
    assert (await look(app, jobs[7])).output == 7
    await app.aclose()


@pytest.mark.parametrize("code", ["XX001", "23514"], ids=["of the server", "of the content"])
async def test_one_that_comes_alone_and_is_never_taken_holds_up_no_other(fresh_postgres_url: str, code: str) -> None:
    """It is in a batch of its own, and what is written in its place is refused as well."""
    app = Windlass(fresh_postgres_url)
    await app.amigrate()

    @app.task
    async def work(n: int) -> int:
        return n

    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        bad = await work.aenqueue(7)
        connection.execute(f"""CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN IF OLD.id = '{bad.id}' THEN RAISE EXCEPTION 'bad' USING ERRCODE = '{code}'; END IF;
            RETURN OLD; END$$""")
        connection.execute(
            "CREATE TRIGGER broken BEFORE DELETE ON windlass_jobs FOR EACH ROW EXECUTE FUNCTION broken()"
        )
        async with app.worker(concurrency=5) as worker:
            await until(lambda: hasattr(worker, "outbox") and worker.outbox.under_way)
            jobs = await app.aenqueue_many([work.call(n) for n in range(20)])
            assert await app.aresults(jobs, timeout=60) == list(range(20))
            connection.execute("DROP TRIGGER broken ON windlass_jobs")
            await until(lambda: worker.completed + worker.failed == 21, 60)
    assert (await look(app, bad)).finished
    await app.aclose()


async def test_a_sqlite_file_that_takes_no_writes_for_a_while(fresh_sqlite_url: str) -> None:
    app = Windlass(fresh_sqlite_url)
    await app.amigrate()
    go_on = asyncio.Event()

    @app.task(max_attempts=1)
    async def work(n: int) -> int:
        await go_on.wait()
        return n

    job = await work.aenqueue(1)
    worker = app.worker(concurrency=2, poll_interval="200ms", rescue_interval="200ms")
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.running)
    connections: Any = app.store.connections
    connections.run(lambda: pragma("PRAGMA query_only = on"))
    go_on.set()
    await asyncio.sleep(2)
    assert not running.done()
    connections.run(lambda: pragma("PRAGMA query_only = off"))
    await until(lambda: worker.completed == 1, 60)
    worker.stop()
    await running
    assert (await look(app, job)).output == 1
    await app.aclose()


def pragma(text: str) -> Operation[None]:
    yield Statement(Query("pragma", text), alone=True)


# What is refused for its own content


async def test_an_outcome_that_is_refused_for_its_content_fails_its_job_alone_and_is_kept(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A result that passed all our checks, and no store can hold: its own words are found with the job."""
    handing = "the receipt is 4711, \ud800 and that"

    @app.task
    async def work(n: int) -> int:
        return n

    original = work.signature.encode_result
    monkeypatch.setattr(
        work.signature, "encode_result", lambda value: f'"{handing}"' if value == 3 else original(value), raising=False
    )
    jobs = await app.aenqueue_many([work.call(n) for n in range(30)])
    async with app.worker(concurrency=30) as worker:
        await until(lambda: worker.completed + worker.failed == 30, 60)
    found = [await look(app, job) for job in jobs]
    assert [job.state for job in found] == ["completed"] * 3 + ["failed"] + ["completed"] * 26
    error = found[3].error
    assert error is not None
    assert error.type == "SettlementRefused"
    assert "the receipt is 4711" in (error.traceback or "")
    assert "the receipt is 4711" in caplog.text


async def test_a_document_that_grows_beyond_what_mongodb_takes_fails_and_holds_up_no_other(
    fresh_mongodb_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Windlass(fresh_mongodb_url, max_payload=15_000_000)
    await app.amigrate()

    @app.task
    async def work(text: str) -> str:
        return text

    large = await work.aenqueue("x" * 10_000_000)
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.failed == 1, 60)
        small = await work.aenqueue("small")
        await until(lambda: worker.completed == 1)
    assert (await look(app, small)).output == "small"
    job = await look(app, large)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "SettlementRefused"
    assert "xxxxxxxx" in (job.error.traceback or "")
    await app.aclose()


async def test_a_chain_that_cannot_continue_with_so_much_fails_and_says_so(fresh_mongodb_url: str) -> None:
    app = Windlass(fresh_mongodb_url, max_payload=40_000_000)
    await app.amigrate()

    @app.task(max_attempts=1)
    async def first() -> Any:
        return Continue(second.call("x" * 17_000_000))

    @app.task
    async def second(text: str) -> None: ...

    job = await first.aenqueue()
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.failed == 1, 60)
    assert "MongoDB cannot store this" in str((await look(app, job)).error)
    await app.aclose()


# What a store's errors are


def test_errors_of_the_server_are_ours_and_say_whether_to_try_again(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    app.migrate()

    def ask(text: str) -> Operation[None]:
        yield Statement(Query("asked", text), alone=True)

    raising = "DO $$BEGIN RAISE EXCEPTION 'said' USING ERRCODE = '{}'; END$$"
    unwilling = ["25006", "42501", "XX000", "53100", "53200", "55P03", "57014", "58030", "0A000", "P0001", "42601"]
    kinds: dict[str, type[Exception]] = dict.fromkeys(unwilling, Unwilling)
    kinds |= dict.fromkeys(["22003", "22021", "23502", "23505", "54000"], InvalidInput)
    kinds |= dict.fromkeys(["57P01", "57P02", "08006"], Interrupted)
    for state, kind in kinds.items():
        with pytest.raises(kind) as caught:
            app.store.connections.run(lambda: ask(raising.format(state)))  # noqa: B023
        assert isinstance(caught.value, StoreUnavailable) == (kind is not InvalidInput), state
    app.close()


@pytest.mark.parametrize("ends", ["stopped", "cancelled"])
async def test_a_worker_that_ends_before_its_store_has_answered_leaves_nothing_behind(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    app, answer, opened = Windlass(fresh_sqlite_url), asyncio.Event(), list[str]()

    async def slowly() -> None:
        await answer.wait()
        opened.append("answered")

    monkeypatch.setattr(app, "aprepare", slowly)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)
    if ends == "stopped":
        worker.stop()
        assert await asyncio.wait_for(running, 5) == 0
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    answer.set()
    await asyncio.sleep(0.1)
    assert opened == []
    await app.aclose()
