"""`attempt.transaction()`: what a handler writes and the completion of its job, together or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from windlass import Attempt, Continue, JobCancelled, LeaseLost, Windlass
from windlass.operation import Operation
from windlass.outcome import Settlement
from windlass.stores.store import Lease, Refusal, Renewal
from windlass.worker.leases import _may_be_written

from .conftest import Ledger


def work(app: Windlass) -> None:
    app.run_worker(until_idle=True, concurrency=5)


def test_both_commit(app: Windlass, ledger: Ledger) -> None:
    @app.task
    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "async")
            attempt.complete("done")

    @app.task
    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "sync")
            attempt.complete({"n": 1})

    jobs = [in_loop.enqueue(), in_thread.enqueue()]
    work(app)
    assert ledger.entries == ["async", "sync"]
    assert [job.refresh().output for job in jobs] == ["done", {"n": 1}]
    assert app.counts()["completed"] == 2


def test_a_block_that_raises_leaves_nothing(app: Windlass, ledger: Ledger) -> None:
    @app.task(max_attempts=2, backoff=0)
    async def fails(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"attempt {attempt.number}")
            attempt.complete("never")
            if attempt.number == 1:
                raise RuntimeError("in the block")

    job = fails.enqueue()
    work(app)
    assert ledger.entries == ["attempt 2"]
    assert job.refresh().output == "never"


def test_a_block_without_an_outcome_completes_with_none(app: Windlass, ledger: Ledger) -> None:
    @app.task
    def silent(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "x")

    job = silent.enqueue()
    work(app)
    assert (job.refresh().state, job.refresh().output) == ("completed", None)


def test_the_chain_continues_with_the_block(app: Windlass, ledger: Ledger) -> None:
    @app.task
    async def ship(order: int) -> str:
        return f"shipped {order}"

    @app.task
    async def place(attempt: Attempt, order: int) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"order {order}")
            attempt.complete(Continue(ship.call(order)))

    job = place.enqueue(7)
    work(app)
    assert job.result() == "shipped 7"
    assert ledger.entries == ["order 7"]


def test_a_job_that_is_enqueued_in_the_block_joins_it(app: Windlass, ledger: Ledger) -> None:
    @app.task
    async def other() -> None: ...

    @app.task(max_attempts=2, backoff=0)
    async def parent(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "x")
            await other.aenqueue()
            if attempt.number == 1:
                raise RuntimeError("no")

    @app.task(max_attempts=2, backoff=0)
    def sync_parent(attempt: Attempt) -> None:
        with attempt.transaction():
            other.enqueue()
            if attempt.number == 1:
                raise RuntimeError("no")

    parent.enqueue()
    sync_parent.enqueue()
    work(app)
    assert len(app.list(type="other")) == 2


def test_a_lost_lease_rolls_back(app: Windlass, ledger: Ledger) -> None:
    lost: list[Any] = []

    @app.task
    async def late(attempt: Attempt) -> None:
        try:
            async with attempt.transaction() as connection:
                await ledger.awrite(connection, "late")
                attempt.token = UUID(int=1)
        except LeaseLost as error:
            lost.append(error)
            raise

    job = late.enqueue()
    work(app)
    assert len(lost) == 1
    assert ledger.entries == []
    assert job.refresh().state == "running"


def test_a_conflict_in_the_block_is_tried_again_without_spending_an_attempt(app: Windlass, ledger: Ledger) -> None:
    calls = []

    def conflict() -> BaseException:
        if ledger.kind == "postgresql":
            import psycopg

            return psycopg.errors.SerializationFailure("could not serialize")
        if ledger.kind == "sqlite":
            import sqlite3

            return sqlite3.OperationalError("database is locked")
        from pymongo.errors import OperationFailure

        return OperationFailure("WriteConflict", 112, {"errorLabels": ["TransientTransactionError"]})

    @app.task(max_attempts=1)
    async def contended(attempt: Attempt) -> None:
        calls.append(attempt.number)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"call {len(calls)}")
            if len(calls) < 3:
                raise conflict()

    job = contended.enqueue()
    work(app)
    assert calls == [1, 1, 1]
    assert (job.refresh().state, job.refresh().attempt) == ("completed", 1)
    assert ledger.entries == ["call 3"]


def test_many_blocks_that_write_the_same_row_all_get_through(
    app: Windlass, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet again and again; on MongoDB each time one of them is turned away at once."""
    monkeypatch.setattr("windlass.stores.sqlite.blocks.BUSY_SECONDS", 60.0)  # the last of them waits for all others

    @app.task(max_attempts=1)
    async def begin(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "row")

    @app.task(max_attempts=1)
    async def change(attempt: Attempt, n: int) -> None:
        async with attempt.transaction() as connection:
            if ledger.kind == "mongodb":
                rows = connection.client.get_default_database(ledger._name).ledger
                await rows.update_one({"entry": "row"}, {"$push": {"by": n}}, session=connection)
            else:
                await connection.execute("UPDATE ledger SET entry = 'row'")
            await asyncio.sleep(0.02)

    begin.enqueue()
    work(app)
    jobs = [change.enqueue(n) for n in range(8)]
    app.run_worker(until_idle=True, concurrency=8)
    assert [job.refresh().state for job in jobs] == ["completed"] * 8


def test_one_attempt_ends_in_one_block(app: Windlass, ledger: Ledger) -> None:
    refused = []

    @app.task
    async def twice(attempt: Attempt) -> None:
        async with attempt.transaction():
            attempt.complete(1)
            try:
                attempt.complete(2)
            except Exception as error:
                refused.append(type(error).__name__)
        try:
            async with attempt.transaction():
                pass
        except Exception as error:
            refused.append(type(error).__name__)

    job = twice.enqueue()
    work(app)
    assert refused == ["Conflict", "Conflict"]
    assert job.refresh().output == 1


async def test_a_cancel_that_comes_in_a_block_is_heard_after_it(app: Windlass) -> None:
    begun = asyncio.Event()

    @app.task(lease=60)
    async def work(attempt: Attempt) -> None:
        with contextlib.suppress(LookupError):
            async with attempt.transaction():
                begun.set()
                await asyncio.sleep(1)
                raise LookupError
        await asyncio.sleep(60)

    async with app.worker():
        job = await work.aenqueue()
        await begun.wait()
        await app.acancel(job.id)
        with pytest.raises(JobCancelled):
            await job.aresult(timeout=15)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_block_begins_after_the_renewal_that_is_under_way(
    app: Windlass, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    under_way, renew, starts = threading.Event(), app.store.renew, []

    def hesitating(leases: Sequence[Lease]) -> Operation[list[Renewal]]:
        under_way.set()
        time.sleep(0.3)
        return (yield from renew(leases))

    monkeypatch.setattr(app.store, "renew", hesitating)
    monkeypatch.setattr("windlass.block.RENEWAL_SECONDS", 30)

    async def in_loop(attempt: Attempt) -> None:
        starts.append(attempt.number)
        assert await asyncio.to_thread(under_way.wait, 30)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            await asyncio.sleep(0.5)

    def in_thread(attempt: Attempt) -> None:
        starts.append(attempt.number)
        assert under_way.wait(30)
        with attempt.transaction() as connection:
            ledger.write(connection, "once")
            time.sleep(0.5)

    task = app.task(lease=6)(in_loop) if kind == "async" else app.task(lease=6)(in_thread)
    async with app.worker():
        await (await task.aenqueue()).aresult(timeout=60)
    assert (starts, ledger.entries) == ([1], ["once"])


def test_no_renewal_comes_between_the_settlement_and_its_commit(
    app: Windlass, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the block ends it is still one, for whoever renews leases."""
    settle = app.store.settle
    seen: list[bool] = []
    attempts: list[Attempt] = []

    def looking(settlements: Sequence[Settlement]) -> Operation[list[Refusal]]:
        settled = {settlement.id for settlement in settlements}
        seen.extend(_may_be_written(one, due=0.0, now=0.0) for one in attempts[-1:] if one.job.id in settled)
        return (yield from settle(settlements))

    monkeypatch.setattr(app.store, "settle", looking)

    @app.task
    async def in_loop(attempt: Attempt) -> None:
        attempts.append(attempt)
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "async")

    @app.task
    def in_thread(attempt: Attempt) -> None:
        attempts.append(attempt)
        with attempt.transaction() as connection:
            ledger.write(connection, "sync")

    for task in (in_loop, in_thread):
        task.enqueue()
        work(app)
    assert (seen, ledger.entries) == ([False, False], ["async", "sync"])
    assert all(attempt.block is None for attempt in attempts)
