"""The end of a block while a statement still runs: the file is free again as soon as that statement ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from windlass import Conflict, Windlass

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e10) SELECT max(i) FROM n"
ADD = "INSERT INTO ledger VALUES (?)"
SOON = 5.0  # seconds; a busy machine needs some of them

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def app(fresh_sqlite_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    with app.store.connections.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry text)")
    yield app
    app.close()


def assert_nothing_is_written_or_locked(app: Windlass) -> None:
    began = time.monotonic()
    with app.store.connections.transaction() as connection:
        assert connection.fetchall("SELECT entry FROM ledger") == []
    app.enqueue("other", queue="other")
    assert time.monotonic() - began < SOON


class Caught:
    """A call in a thread, and the error that it ended with."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, *arguments), daemon=True)
        self._thread.start()

    def _run(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return self.error


@contextmanager
def ended_by(kind: type[Exception]) -> Iterator[None]:
    """The code in it ends with this error. It has several lines, unlike that of `pytest.raises`."""
    try:
        yield
    except kind:
        return
    pytest.fail(f"no {kind.__name__}")


# A thread that `interrupt` cannot stop


@pytest.mark.parametrize("fails", [False, True])
def test_a_thread_that_cannot_be_stopped_ends_the_block(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr("windlass.stores.sqlite.blocks.STOP_SECONDS", 0.2)
    waiting, release = threading.Event(), threading.Event()

    def entries() -> Iterator[tuple[str]]:
        yield ("a",)
        waiting.set()
        release.wait(30)
        yield ("b",)

    with ended_by(LookupError if fails else Conflict), app.store.connections.transaction() as connection:
        thread = Caught(connection.executemany, ADD, entries())
        assert waiting.wait(10)
        if fails:
            raise LookupError
    later = Caught(connection.execute, ADD, ["c"])
    release.set()
    assert isinstance(thread.end(), Conflict)
    assert isinstance(later.end(), Conflict | sqlite3.Error)
    assert_nothing_is_written_or_locked(app)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.raw.execute("SELECT 1")


def test_a_statement_inside_another_one_does_not_end_the_block(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.stores.sqlite.blocks.STOP_SECONDS", 0.2)
    waiting, release = threading.Event(), threading.Event()
    transactions = []

    def entries(connection: Any) -> Iterator[tuple[str]]:
        yield ("a",)
        waiting.set()
        release.wait(30)
        connection.cursor().close()
        transactions.append(connection.raw.in_transaction)
        yield ("b",)

    with ended_by(Conflict), app.store.connections.transaction() as connection:
        thread = Caught(connection.executemany, ADD, entries(connection))
        assert waiting.wait(10)
    release.set()
    assert isinstance(thread.end(), Conflict)
    assert transactions == [True]
    assert_nothing_is_written_or_locked(app)


def test_many_short_statements_of_another_thread_end_with_the_block(app: Windlass) -> None:
    """`interrupt` stops a running statement, and hardly ever meets one of these."""

    def entries() -> Iterator[tuple[str]]:
        while True:
            time.sleep(0.02)
            yield ("a",)

    began = time.monotonic()
    with ended_by(Conflict), app.store.connections.transaction() as connection:
        thread = Caught(connection.executemany, ADD, entries())
        time.sleep(0.2)
    assert time.monotonic() - began < 3
    assert isinstance(thread.end(), Conflict | sqlite3.Error)
    assert_nothing_is_written_or_locked(app)


# Cancellation in an event loop


class Stalls:
    """How long the event loop stood still."""

    longest = 0.0

    async def watch(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now


@pytest.fixture
async def stalls() -> AsyncIterator[Stalls]:
    stalls = Stalls()
    task = asyncio.create_task(stalls.watch())
    yield stalls
    task.cancel()


async def cancel(task: asyncio.Task[Any], times: int) -> None:
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.02)
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("awaited", [True, False])
async def test_a_cancelled_block_stops_its_statement(app: Windlass, stalls: Stalls, times: int, awaited: bool) -> None:
    others = []

    async def handler() -> None:
        async with app.store.connections.atransaction() as connection:
            await connection.execute(ADD, ["x"])
            if awaited:
                await connection.execute(ENDLESS)
            else:  # the block waits for it before it commits
                others.append(asyncio.create_task(connection.execute(ENDLESS)))
                await asyncio.sleep(0.1)

    task = asyncio.create_task(handler())
    await asyncio.sleep(0.3)
    await cancel(task, times)
    await asyncio.gather(*others, return_exceptions=True)
    assert stalls.longest < SOON
    await asyncio.to_thread(assert_nothing_is_written_or_locked, app)


async def test_a_cancelled_block_is_over_when_it_is_left(app: Windlass) -> None:
    left = []

    async def handler() -> None:
        try:
            async with app.store.connections.atransaction() as connection:
                await connection.execute(ENDLESS)
        finally:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                connection.block.raw.execute("SELECT 1")
            left.append(connection)

    task = asyncio.create_task(handler())
    await asyncio.sleep(0.3)
    await cancel(task, 2)
    with pytest.raises(Conflict, match="has ended"):
        await left[0].execute("SELECT 1")


async def test_a_block_is_cancelled_while_it_waits_for_the_lock(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    monkeypatch.setattr("windlass.stores.sqlite.blocks.BUSY_SECONDS", 30.0)

    async def handler() -> None:
        async with app.store.connections.atransaction():
            raise AssertionError("unreachable")

    async with app.store.connections.atransaction() as connection:
        await connection.execute("SELECT 1")
        task = asyncio.create_task(handler())
        await asyncio.sleep(0.3)
        await cancel(task, 2)
    assert stalls.longest < SOON
    await asyncio.to_thread(assert_nothing_is_written_or_locked, app)


async def test_a_block_is_cancelled_while_it_opens_its_connection(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    connections, release, closed = app.store.connections, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            loop.call_soon_threadsafe(closed.set)

    def open_slowly() -> sqlite3.Connection:
        release.wait(20)
        return sqlite3.connect(":memory:", factory=Watched, check_same_thread=False)

    async def handler() -> None:
        async with connections.atransaction():
            raise AssertionError("unreachable")

    monkeypatch.setattr(connections, "open", open_slowly)
    task = asyncio.create_task(handler())
    await asyncio.sleep(0.1)
    await cancel(task, 1)
    release.set()
    await asyncio.wait_for(closed.wait(), SOON)
    assert stalls.longest < SOON
