"""A connection that swallows what is sent, and acknowledges it: nothing waits on it for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.proxy import Proxy
from windlass import Attempt, StoreUnavailable, Windlass
from windlass.operation import Operation, Statement
from windlass.stores.sql.query import Query

ANSWER_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
LOOK = Query("look", "SELECT 1")


@pytest.fixture
def proxy(fresh_postgres_url: str) -> Iterator[Proxy]:
    parts = urlsplit(fresh_postgres_url)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 5432) as proxy:
        yield proxy


@pytest.fixture
def app(fresh_postgres_url: str, proxy: Proxy) -> Iterator[Windlass]:
    app = Windlass(proxy.before(fresh_postgres_url))
    connections: Any = app.store.connections
    wakeup: Any = app.store.wakeup
    connections.answer_seconds = ANSWER_SECONDS
    wakeup.probe_seconds = wakeup.answer_seconds = ANSWER_SECONDS
    app.migrate()
    yield app
    app.close()


def within_patience(function: Any) -> Any:
    """What the function returns or raises; on a thread, which is left behind where it hangs."""
    answer: list[Any] = []

    def call() -> None:
        try:
            answer.append(function())
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert answer, "it hangs"
    return answer[0]


def test_a_sync_call_is_broken_off_and_the_next_one_works(app: Windlass, proxy: Proxy) -> None:
    app.counts()
    assert proxy.silence()
    answer = within_patience(app.counts)
    assert isinstance(answer, StoreUnavailable)
    assert "no answer within 1 s" in str(answer)
    assert within_patience(app.counts)["pending"] == 0


async def test_an_async_call_is_broken_off_and_the_next_one_works(app: Windlass, proxy: Proxy) -> None:
    await asyncio.gather(*(app.acounts() for _ in range(3)))
    assert proxy.silence()
    with pytest.raises(StoreUnavailable, match="no answer within 1 s"):
        await asyncio.wait_for(app.acounts(), PATIENCE_SECONDS)
    began = time.monotonic()
    counts = await asyncio.wait_for(app.acounts(), PATIENCE_SECONDS)
    assert counts["pending"] == 0
    assert time.monotonic() - began < ANSWER_SECONDS  # the other idle ones were given up with it
    await app.aclose()


def test_an_enqueue_whose_answer_is_lost_is_sent_again(app: Windlass, proxy: Proxy) -> None:
    app.counts()
    assert proxy.silence()
    job = within_patience(lambda: app.enqueue("anything"))
    assert [one.id for one in app.list()] == [job.id]


def test_a_transaction_that_gets_no_answer_names_that(app: Windlass, proxy: Proxy) -> None:
    def falls_silent() -> Operation[None]:
        yield Statement(LOOK)
        proxy.silence()
        yield Statement(LOOK)

    answer = within_patience(lambda: app.store.connections.run(falls_silent))
    assert "no answer within 1 s" in str(answer)


async def test_a_worker_continues_when_all_its_connections_fall_silent(
    app: Windlass, proxy: Proxy, fresh_postgres_url: str
) -> None:
    runs: list[int] = []

    @app.task(lease=20)
    async def count(number: int) -> None:
        runs.append(number)
        if number == 1:
            proxy.silence()  # the claim has come, the settlement goes nowhere

    other = Windlass(fresh_postgres_url)
    other.enqueue_many([other.call("count", {"number": number}) for number in range(3)])
    async with app.worker(poll_interval=0.5):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (await other.acounts())["completed"] < 3:
            assert time.monotonic() < deadline, "the worker hangs"
            await asyncio.sleep(0.1)
    assert sorted(runs) == [0, 1, 2]
    await other.aclose()
    await app.aclose()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_block_whose_end_gets_no_answer_is_broken_off(
    app: Windlass, proxy: Proxy, fresh_postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.stores.postgres.blocks.ANSWER_SECONDS", ANSWER_SECONDS)

    starts: list[int] = []

    def silence_the_first(attempt: Attempt) -> None:
        starts.append(attempt.number)
        if len(starts) == 1:
            proxy.silence(lambda line: b"written" in line.said)

    if kind == "sync":

        @app.task(max_attempts=1)
        def block(attempt: Attempt) -> None:
            with attempt.transaction() as connection:
                connection.execute("INSERT INTO written VALUES (1)")
                silence_the_first(attempt)
    else:

        @app.task(max_attempts=1)
        async def block(attempt: Attempt) -> None:
            async with attempt.transaction() as connection:
                await connection.execute("INSERT INTO written VALUES (1)")
                silence_the_first(attempt)

    with psycopg.connect(fresh_postgres_url, autocommit=True) as looking:
        looking.execute("CREATE TABLE written (number integer)")
        job = block.enqueue()
        assert within_patience(lambda: app.run_worker(until_idle=True)) == 1
        time.sleep(0.6)  # it is given back, and waits a little
        assert within_patience(lambda: app.run_worker(until_idle=True)) == 1
        assert (starts, job.refresh().state) == ([1, 1], "completed")
        assert looking.execute("SELECT count(*) FROM written").fetchone() == (1,)


def test_the_server_does_not_keep_what_we_have_given_up(fresh_postgres_url: str) -> None:
    def settings() -> Operation[Any]:
        names = "idle_in_transaction_session_timeout", "lock_timeout"
        text = ", ".join(f"current_setting('{name}')" for name in names)
        return (yield Statement(Query("settings", f"SELECT {text}"), alone=True))[0]

    for suffix, expected in (("", ("1min", "1min")), ("?options=-c%20lock_timeout%3D5s", ("1min", "5s"))):
        app = Windlass(fresh_postgres_url + suffix)
        assert app.store.connections.run(settings) == expected
        app.close()


def test_what_waits_for_a_lock_is_stopped_on_the_server_when_we_give_it_up(
    app: Windlass, fresh_postgres_url: str
) -> None:
    """Else it would be done after all, when the lock is free."""
    with (
        psycopg.connect(fresh_postgres_url) as foreign,
        psycopg.connect(fresh_postgres_url, autocommit=True) as looking,
    ):
        app.enqueue("anything", unique="key", connection=foreign)
        answer = within_patience(lambda: app.enqueue("anything", unique="key"))
        assert isinstance(answer, StoreUnavailable)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while looking.execute(waiting).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        foreign.rollback()
    assert len(app.list()) == 0
