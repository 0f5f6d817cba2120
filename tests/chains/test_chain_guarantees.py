"""Guarantees of chains: phases, retries, leases, deduplication, hints. test_chains.py has the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from windlass import Attempt, Continue, Exponential, Retry, Unique, Windlass
from windlass.lifecycle import STATES
from windlass.stores.wakeup import Hint
from windlass.worker import leases

from .conftest import Ledger


def work(app: Windlass, **options: Any) -> None:
    app.run_worker(until_idle=True, **({"concurrency": 5} | options))


def listen(app: Windlass, heard: list[Hint | None]) -> Callable[[], None]:
    """Hear of hints, and not of the beginning: that anything may have happened is the first that is heard."""
    deafen = app.store.wakeup.listen(heard.append)
    deadline = time.monotonic() + 20
    while not heard:
        assert time.monotonic() < deadline, "the line did not come up"
        time.sleep(0.01)
    heard.clear()
    return deafen


def test_a_throw_before_or_in_the_block_undoes_that_phase(app: Windlass, ledger: Ledger) -> None:
    @app.task
    async def following() -> None: ...

    @app.task(max_attempts=3, backoff=0)
    async def two_phases(attempt: Attempt) -> None:
        if attempt.number == 1:
            raise RuntimeError("before")
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"attempt {attempt.number}")
            attempt.complete(Continue(following.call()))
            if attempt.number == 2:
                raise RuntimeError("in it")

    job = two_phases.enqueue()
    work(app)
    assert ledger.entries == ["attempt 3"]
    assert [one.type for one in reversed(app.list(chain=job.id))] == ["two_phases", "following"]


async def test_the_lease_is_renewed_between_the_phases(
    app: Windlass, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a moved clock, two thirds of a lease at a time; what is left would outlast a machine that stalls."""
    starts: list[int] = []
    started, enough = asyncio.Event(), asyncio.Event()

    @app.task(lease=60)
    async def slow(attempt: Attempt) -> None:
        starts.append(attempt.number)
        started.set()
        await enough.wait()
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")

    async def end() -> datetime:
        return (await job.arefresh()).lease_expires_at or datetime.min.replace(tzinfo=UTC)

    async with app.worker(rescue_interval="200ms"), asyncio.timeout(60):
        with monkeypatch.context() as often:
            often.setattr(leases, "PART", 240)  # renewed four times a second
            job = await slow.aenqueue()
            await started.wait()
            first = await end()
            for moved in (40, 80):
                app.store.clock.move(timedelta(seconds=40))
                while await end() < first + timedelta(seconds=moved):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        enough.set()
        await job.aresult(timeout=40)
    assert set(starts) == {1}  # where a renewal fell into the block it began again, and no attempt was spent
    assert list((await job.arefresh()).attempts) == []
    assert ledger.entries == ["once"]


def test_retries_without_end_reschedule_exactly_and_clear_the_error(app: Windlass) -> None:
    backoff = Exponential(base="10s", cap="300s", jitter=False)
    assert [backoff.delay(n, lambda: 0.5).total_seconds() for n in (1, 2, 3, 6, 50)] == [10, 20, 40, 300, 300]
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

    @app.task(max_attempts=None, backoff=backoff)
    async def stubborn(attempt: Attempt) -> str:
        if attempt.number == 1:
            raise RuntimeError("x" * 20_000)
        if attempt.number == 2:
            raise Retry("later", at=at)
        return "done"

    job = stubborn.enqueue()
    before = datetime.now(UTC)
    work(app)
    after = datetime.now(UTC)
    first = job.refresh()
    assert first.error is not None
    assert len(first.error.message) == 10_000
    assert before <= first.run_at - timedelta(seconds=10) <= after
    job.run_now()
    work(app)
    assert job.refresh().run_at == at
    job.run_now()
    work(app)
    done = job.refresh()
    assert (done.state, done.error, done.attempt, len(done.attempts)) == ("completed", None, 3, 2)


async def test_a_lost_lease_aborts_the_handler_and_says_why(app: Windlass) -> None:
    told: list[str | None] = []
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task(lease=60, backoff="1h")  # whose renewal would notice it after twenty seconds
    async def endless(attempt: Attempt) -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            told.append(attempt.why)
            ended.set()

    async with app.worker(rescue_interval=60):
        await endless.aenqueue()
        await asyncio.wait_for(started.wait(), 10)
        await asyncio.sleep(2.5)  # what it asks for when it begins to listen has been answered: now only a hint tells
        await app.arescue(stale_before=datetime.now(UTC) + timedelta(hours=1))
        await asyncio.wait_for(ended.wait(), 15)
    assert told == ["taken by another"]


def test_deduplication_while_incomplete_for_a_time_or_for_ever_and_in_one_batch(app: Windlass) -> None:
    @app.task
    def task(n: int) -> None: ...

    for unique in ("incomplete", Unique("for ever", until="forever"), Unique("window", until="1h")):
        jobs = app.enqueue_many([task.using(unique=unique).call(n) for n in range(3)])
        assert [job.created for job in jobs] == [True, False, False]
        assert len({job.id for job in jobs}) == 1
    work(app)
    assert task.using(unique="incomplete").enqueue(1).created
    assert not task.using(unique=Unique("for ever", until="forever")).enqueue(1).created
    assert not task.using(unique=Unique("window", until="1h")).enqueue(1).created


def test_no_hint_and_no_job_of_a_transaction_that_rolls_back(app: Windlass) -> None:
    heard: list[Hint | None] = []

    @app.task(queue="watched")
    def task() -> None: ...

    app.migrate()
    deafen = listen(app, heard)

    def in_vain() -> None:
        with app.store.connections.transaction() as connection:
            task.using(connection=connection).enqueue()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        in_vain()
    time.sleep(0.5)
    assert heard == []
    assert app.counts().total == 0
    with app.store.connections.transaction() as connection:
        task.using(connection=connection).enqueue()
    deadline = time.monotonic() + 10
    while not any(hint in (None, Hint("ready", "watched")) for hint in heard) and time.monotonic() < deadline:
        time.sleep(0.01)
    deafen()
    assert heard
    assert app.counts()["pending"] == 1


def test_none_of_a_savepoint_that_is_rolled_back(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    heard: list[Hint | None] = []
    app.migrate()
    deafen = listen(app, heard)
    with psycopg.connect(fresh_postgres_url) as connection:
        with connection.transaction(force_rollback=True):
            app.enqueue("task", {}, queue="undone", connection=connection)
        app.enqueue("task", {}, queue="done", connection=connection)
    deadline = time.monotonic() + 10
    while Hint("ready", "done") not in heard and time.monotonic() < deadline:
        time.sleep(0.01)
    deafen()
    assert Hint("ready", "done") in heard
    assert Hint("ready", "undone") not in heard
    assert [job.queue for job in app.list()] == ["done"]
    app.close()


def test_hints_for_a_chain_that_has_ended_and_one_shared_listener(app: Windlass) -> None:
    @app.task
    def task() -> None: ...

    job = task.enqueue()
    heard: list[Hint | None] = []

    def broken(hint: Hint | None) -> None:
        raise RuntimeError("one that throws hurts nobody")

    deafen = [app.store.wakeup.listen(listener) for listener in (broken, heard.append)]
    time.sleep(0.5)
    app.run_operation(lambda: app.store.watch([job.id]))
    heard.clear()
    work(app)
    deadline = time.monotonic() + 10
    while not any(hint in (None, Hint("finished", str(job.id))) for hint in heard) and time.monotonic() < deadline:
        time.sleep(0.01)
    for stop in deafen:
        stop()
    assert any(hint in (None, Hint("finished", str(job.id))) for hint in heard)


def test_dead_letters_are_brought_back_by_type_and_since_when(app: Windlass) -> None:
    broken = True

    @app.task(max_attempts=1)
    def shaky(n: int) -> int:
        if broken:
            raise RuntimeError(f"no {n}")
        return n

    @app.task(max_attempts=1)
    def other() -> None:
        raise RuntimeError("other")

    before = shaky.enqueue(0)
    work(app)
    since = before.refresh().finished_at
    assert since is not None
    jobs = [shaky.enqueue(n) for n in (1, 2)]
    other.enqueue()
    work(app)
    broken = False
    assert app.retry_many(state="failed", type="shaky", since=since + timedelta(milliseconds=1)) == 2
    work(app)
    assert [job.result() for job in jobs] == [1, 2]
    assert before.refresh().state == "failed"
    assert [record.error.message for record in jobs[0].refresh().attempts if record.error] == ["no 1"]


def test_the_next_of_one_key_for_a_loop_that_you_drive(app: Windlass) -> None:
    @app.task
    def message(text: str) -> None: ...

    for text in ("a1", "a2"):
        message.using(order_key="session a").enqueue(text)
    message.using(order_key="session b").enqueue("b1")
    (attempt,) = app.claim(1, order_key="session a")
    assert attempt.job.input == {"text": "a1"}
    assert app.claim(1, order_key="session a") == []
    attempt.complete()
    assert [one.job.input["text"] for one in app.claim(5, order_key="session a")] == ["a2"]


def test_the_schema_as_an_administrator_wants_it(fresh_postgres_url: str) -> None:
    ids = iter(UUID(int=number) for number in range(1, 10))
    app = Windlass(fresh_postgres_url, schema="queue", prefix="my_", make_id=lambda: next(ids))
    assert app.migrate() == ["0001_initial", "0002_meanings", "0003_keep"]
    assert app.migrate() == []
    assert app.enqueue("task", {}).id == UUID(int=1)
    app.vacuum()
    app.close()
    with psycopg.connect(fresh_postgres_url) as connection:

        def column(query: str) -> list[Any]:
            return [row[0] for row in connection.execute(query)]

        states = column("SELECT enumlabel FROM pg_enum JOIN pg_type t ON t.oid = enumtypid WHERE typname = 'my_state'")
        assert sorted(states) == sorted(STATES)
        assert column("SELECT name FROM queue.my_migrations") == ["0001_initial", "0002_meanings", "0003_keep"]
        tables = column("SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
        assert all(name.startswith("my_") for name in tables)
        (settings,) = column("SELECT reloptions FROM pg_class WHERE oid = 'queue.my_jobs'::regclass")
        assert "fillfactor=75" in settings
        assert "autovacuum_vacuum_scale_factor=0.02" in settings
        partial = column("SELECT indexname FROM pg_indexes WHERE tablename = 'my_jobs' AND indexdef LIKE '% WHERE %'")
        assert {"my_jobs_ready", "my_jobs_running", "my_jobs_unique"} <= set(partial)
        assert column("SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'my_jobs'") == [True]
