"""A handler, or whoever claims for himself, settles the attempt: in a transaction of his own, in a block, at once."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from windlass import Attempt, Conflict, Continue, Windlass

from .conftest import Ledger

LONG = "10m"  # between looks: only a hint can be quicker


def work(app: Windlass) -> None:
    app.run_worker(until_idle=True, concurrency=5)


def test_an_outcome_that_was_rolled_back_does_not_count(app: Windlass, ledger: Ledger) -> None:
    @app.task
    def ship() -> None: ...

    @app.task
    def order(attempt: Attempt) -> str:
        with suppress(RuntimeError), app.store.connections.transaction() as connection:
            ledger.write(connection, "ordered")
            attempt.complete(Continue(ship.call()), connection=connection)
            raise RuntimeError("a duplicate")
        return "nothing to do"

    job = order.enqueue()
    work(app)
    assert job.result(20) == "nothing to do"
    assert ledger.entries == []
    assert len(list(app.list(chain=job.id))) == 1


def test_an_outcome_that_was_rolled_back_can_be_given_again(app: Windlass, ledger: Ledger) -> None:
    @app.task
    def ship() -> str:
        return "shipped"

    @app.task
    def order(attempt: Attempt) -> None:
        for last in (False, True):
            with suppress(RuntimeError), app.store.connections.transaction() as connection:
                ledger.write(connection, "ordered")
                attempt.complete(Continue(ship.call()), connection=connection)
                if not last:
                    raise RuntimeError("once more")

    job = order.enqueue()
    work(app)
    assert job.result(20) == "shipped"
    assert ledger.entries == ["ordered"]
    assert len(list(app.list(chain=job.id))) == 2


@pytest.mark.parametrize("first", ["continued", "completed"])
def test_one_attempt_completes_once(app: Windlass, first: str) -> None:
    @app.task
    def following(n: int) -> int:
        return n

    task = app.task("task")(lambda: None)
    job = task.enqueue()
    (attempt,) = app.claim(1)
    with app.store.connections.transaction() as connection:
        attempt.complete(Continue(following.call(1)) if first == "continued" else 1, connection=connection)
        with pytest.raises(Conflict, match="already"):
            attempt.complete(Continue(following.call(2)), connection=connection)
        with pytest.raises(Conflict, match="already"):
            attempt.complete(2, connection=connection)
    with pytest.raises(Conflict, match="already"):
        attempt.complete(Continue(following.call(3)))
    work(app)
    assert job.result(20) == 1
    assert app.counts()["completed"] == (2 if first == "continued" else 1)


def test_a_block_ends_in_one_way(app: Windlass, ledger: Ledger) -> None:
    """What would settle or renew on another connection is refused at once, and the block goes on."""
    refused: list[str] = []

    @app.task(max_attempts=1)
    def stubborn(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "once")
            for otherwise in (lambda: attempt.fail("no"), attempt.retry, attempt.release, attempt.renew):
                with pytest.raises(Conflict, match="not inside"):
                    otherwise()
                refused.append("refused")
            attempt.complete("done")

    job = stubborn.enqueue()
    work(app)
    assert (job.result(20), len(refused), ledger.entries) == ("done", 4, ["once"])


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_would_wait_for_its_own_block_is_refused_at_once(app: Windlass, ledger: Ledger, kind: str) -> None:
    """SQLite has one writer at a time. Elsewhere another job can be changed meanwhile, for itself."""
    seen: list[tuple[str, bool]] = []
    other = app.task("other")(lambda: None).using(delay="1h").enqueue()
    waits_for_the_block = threading.Thread(target=app.enqueue, args=("other",))

    def refused(error: Conflict, began: float) -> None:
        seen.append((ledger.kind, time.monotonic() - began < 9))
        assert "before or after" in str(error)

    @app.task(max_attempts=1)
    def sync_handler(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "once")
            waits_for_the_block.start()
            time.sleep(0.2)
            began = time.monotonic()
            assert other.refresh().state == "pending"
            try:
                app.cancel(other.id)
            except Conflict as error:
                refused(error, began)

    @app.task(max_attempts=1)
    async def async_handler(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            began = time.monotonic()
            assert (await other.arefresh()).state == "pending"
            try:
                await app.acancel(other.id)
            except Conflict as error:
                refused(error, began)

    job = (sync_handler if kind == "sync" else async_handler).enqueue()
    work(app)
    assert (job.refresh().state, ledger.entries) == ("completed", ["once"]), job.error
    on_file = ledger.kind == "sqlite"
    assert seen == ([("sqlite", True)] if on_file else [])
    assert other.refresh().state == ("pending" if on_file else "cancelled")


def test_a_task_that_outlives_the_block_is_outside_of_it(app: Windlass, ledger: Ledger) -> None:
    later: list[asyncio.Task[Any]] = []
    other = app.task("other")(lambda: None)

    @app.task(max_attempts=1)
    async def task(attempt: Attempt) -> None:
        ended = asyncio.Event()

        async def goes_on() -> None:
            await ended.wait()
            job = await other.using(delay="1h").aenqueue()
            await app.acancel(job.id)

        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "once")
            later.append(asyncio.create_task(goes_on()))
        ended.set()
        await later[0]

    job = task.enqueue()
    work(app)
    assert (job.refresh().state, ledger.entries) == ("completed", ["once"])
    assert later[0].exception() is None
    assert app.counts()["cancelled"] == 1


def test_hooks_and_figures_tell_how_a_handler_has_settled(app: Windlass, ledger: Ledger) -> None:
    heard: list[tuple[str, Any]] = []
    told = threading.Event()

    def hear(event: Any) -> None:
        heard.append((event.name, event.job.type))
        if len(heard) == 3:
            told.set()

    for name in ("completed", "failed", "retried"):
        app.on(name)(hear)

    @app.task
    def fails(attempt: Attempt) -> None:
        attempt.fail("no good")

    @app.task
    def comes_back(attempt: Attempt) -> None:
        attempt.retry("later", after="1h")

    @app.task
    def in_block(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "once")

    jobs = [task.enqueue() for task in (fails, comes_back, in_block)]
    work(app)
    assert told.wait(20)
    assert sorted(heard) == [("completed", "in_block"), ("failed", "fails"), ("retried", "comes_back")]
    assert [job.refresh().state for job in jobs] == ["failed", "pending", "completed"]


@pytest.mark.parametrize("how", ["block", "own transaction", "at once"])
async def test_the_worker_of_the_next_job_hears_of_it(app: Windlass, store_url: str, how: str) -> None:
    """Another worker serves the queue in which the chain goes on, and looks by itself in ten minutes."""
    other = Windlass(store_url)

    @other.task(queue="elsewhere")
    async def following() -> str:
        return "followed"

    call = other.call("following", queue="elsewhere")
    task = app.task("task")(lambda: None)
    async with other.worker(queues=["elsewhere"], poll_interval=LONG) as worker:
        warm = await following.aenqueue()
        assert await warm.aresult(20) == "followed"
        while not worker.pump.turn.idle:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.05)
        job = await task.aenqueue()
        (attempt,) = await app.aclaim(1)
        if how == "block":
            async with attempt.transaction():
                attempt.complete(Continue(call))
        elif how == "own transaction":
            async with app.store.connections.atransaction() as connection:
                await attempt.acomplete(Continue(call), connection=connection)
        else:
            await attempt.acomplete(Continue(call))
        assert await job.aresult(60) == "followed"
    await other.aclose()


async def test_a_thread_that_has_outlived_its_handler_settles_nothing(app: Windlass) -> None:
    """The worker has said how it ended; what comes later is refused, and not taken for the same."""
    kept: list[Attempt] = []

    @app.task
    def work(attempt: Attempt) -> str:
        kept.append(attempt)
        return "first"

    job = await work.aenqueue()
    async with app.worker():
        assert await job.aresult(60) == "first"
        with pytest.raises(Conflict, match="settled already"):
            await kept[0].acomplete("second")
        with pytest.raises(Conflict):
            async with kept[0].transaction():
                pass
    assert (await job.arefresh()).output == "first"
