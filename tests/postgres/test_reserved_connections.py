"""What the worker needs for itself, no handler can take: claims, settlements and leases have connections of their own.

What handlers take is bounded: so many calls, so many blocks, however many handlers run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import windlass
from windlass import Attempt, Windlass

PATIENCE_SECONDS = 30.0
POOL = 3


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def app(fresh_postgres_url: str) -> Iterator[Windlass]:
    app = Windlass(fresh_postgres_url, pool_size=POOL)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def looking(fresh_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        yield connection


class Working:
    """A worker on a thread of its own."""

    def __init__(self, app: Windlass, **options: Any) -> None:
        self.app, self.options = app, options
        self.worker: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._work())

    async def _work(self) -> None:
        self.worker = self.app.worker(**self.options)
        await self.worker.run()
        await self.app.store.connections.aclose_loop()

    def __enter__(self) -> Working:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self.worker.stop)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def leased_until(connection: psycopg.Connection[Any], job: windlass.Job) -> Any:
    row = connection.execute("SELECT leased_until FROM windlass_jobs WHERE id = %s", [job.id]).fetchone()
    return row and row[0]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_handlers_that_wait_for_a_key_cost_no_one_a_lease(
    app: Windlass, looking: psycopg.Connection[Any], fresh_postgres_url: str, kind: str
) -> None:
    waiting, release = threading.Semaphore(0), threading.Event()
    innocent_runs: list[int] = []

    @app.task(lease=3)
    def innocent(attempt: Attempt) -> None:
        innocent_runs.append(attempt.number)
        release.wait(PATIENCE_SECONDS)

    @app.task
    def plain() -> str:
        return "done"

    if kind == "sync":

        @app.task
        def needs_key() -> None:
            waiting.release()
            plain.using(unique="taken").enqueue()
    else:

        @app.task
        async def needs_key() -> None:
            waiting.release()
            await plain.using(unique="taken").aenqueue()

    held = innocent.enqueue()
    with psycopg.connect(fresh_postgres_url) as foreign, Working(app, concurrency=20, rescue_interval=1):
        plain.using(connection=foreign, unique="taken").enqueue()
        for _ in range(2 * POOL):
            needs_key.using(max_attempts=1).enqueue()
        for _ in range(2 * POOL):
            assert waiting.acquire(timeout=PATIENCE_SECONDS)
        wait_until(lambda: innocent_runs)
        first = leased_until(looking, held)
        wait_until(lambda: leased_until(looking, held) > first)
        second = leased_until(looking, held)
        wait_until(lambda: leased_until(looking, held) > second)
        other = Windlass(fresh_postgres_url)
        later = other.enqueue("plain")  # claims and settlements go on as well
        wait_until(lambda: _state(looking, later) == "completed")
        other.close()
        release.set()
        foreign.rollback()
        wait_until(lambda: _state(looking, held) == "completed")
    assert innocent_runs == [1]


def _state(connection: psycopg.Connection[Any], job: windlass.Job) -> Any:
    row = connection.execute("SELECT state::text FROM windlass_history WHERE id = %s", [job.id]).fetchone()
    return row and row[0]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_block_may_call_the_app_while_others_wait_for_it(app: Windlass, kind: str) -> None:
    """They wait for a key that the block holds, with every connection that calls can have."""
    opened, all_wait = threading.Event(), threading.Semaphore(0)

    @app.task
    def plain() -> None: ...

    if kind == "sync":

        @app.task
        def holder(attempt: Attempt) -> None:
            with attempt.transaction():
                plain.using(unique="key").enqueue()
                opened.set()
                for _ in range(POOL):
                    assert all_wait.acquire(timeout=PATIENCE_SECONDS)
                time.sleep(0.5)
                attempt.complete(app.counts()["running"])

        @app.task
        def waiter() -> None:
            assert opened.wait(PATIENCE_SECONDS)
            all_wait.release()
            plain.using(unique="key").enqueue()
    else:

        @app.task
        async def holder(attempt: Attempt) -> None:
            async with attempt.transaction():
                await plain.using(unique="key").aenqueue()
                opened.set()
                for _ in range(POOL):
                    assert await asyncio.to_thread(all_wait.acquire, timeout=PATIENCE_SECONDS)
                await asyncio.sleep(0.5)
                attempt.complete((await app.acounts())["running"])

        @app.task
        async def waiter() -> None:
            assert await asyncio.to_thread(opened.wait, PATIENCE_SECONDS)
            all_wait.release()
            await plain.using(unique="key").aenqueue()

    job = holder.enqueue()
    for _ in range(POOL):
        waiter.enqueue()
    with Working(app, concurrency=20):
        assert job.result(timeout=20) > POOL


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_blocks_are_bounded_and_each_gets_its_turn(app: Windlass, looking: psycopg.Connection[Any], kind: str) -> None:
    seen: list[int] = []
    lock = threading.Lock()
    open_now = 0
    looking.execute("CREATE TABLE written (number integer)")

    def note(change: int) -> None:
        nonlocal open_now
        with lock:
            open_now += change
            seen.append(open_now)

    if kind == "sync":

        @app.task
        def block(attempt: Attempt, number: int) -> None:
            with attempt.transaction() as connection:
                note(1)
                connection.execute("INSERT INTO written VALUES (%s)", [number])
                time.sleep(0.02)
                note(-1)
    else:

        @app.task
        async def block(attempt: Attempt, number: int) -> None:
            async with attempt.transaction() as connection:
                note(1)
                await connection.execute("INSERT INTO written VALUES (%s)", [number])
                await asyncio.sleep(0.02)
                note(-1)

    app.enqueue_many([block.call(number) for number in range(40)])
    assert app.run_worker(until_idle=True, concurrency=40) == 40
    assert max(seen) == POOL
    assert looking.execute("SELECT count(*) FROM written").fetchone() == (40,)
    assert app.counts()["completed"] == 40


def test_no_part_of_the_worker_takes_a_connection_of_the_handlers() -> None:
    folder = Path(windlass.__file__).parent / "worker"
    assert [path.name for path in folder.glob("*.py") if "run_operation(" in path.read_text()] == []
