"""What is stored where a block of `attempt.transaction()` is refused, partly undone, or followed by an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from windlass import Attempt, Continue, InvalidInput, Job, Unique, Windlass

from .conftest import Ledger


def work(app: Windlass, *handlers: Callable[..., Any], **options: Any) -> list[Job]:
    """The jobs of these handlers, when nothing is left to do for them."""
    jobs = [app.task(**{"max_attempts": 2, "backoff": 0} | options)(handler).enqueue() for handler in handlers]
    app.run_worker(until_idle=True, concurrency=5, queues=["default"])
    return [job.refresh() for job in jobs]


def errors(job: Job) -> list[str | None]:
    """Of the attempts that are over."""
    return [None if record.error is None else record.error.type for record in job.attempts]


def test_a_throw_after_the_block_undoes_nothing(
    app: Windlass, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async def in_loop(attempt: Attempt) -> str:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"async {attempt.number}")
            attempt.complete(Continue(following.call()))
        raise RuntimeError("too late")

    def in_thread(attempt: Attempt) -> str:
        with attempt.transaction() as connection:
            ledger.write(connection, f"sync {attempt.number}")
            attempt.complete(Continue(following.call()))
        raise RuntimeError("too late")

    @app.task
    async def following() -> str:
        return "end"

    with caplog.at_level(logging.WARNING, "windlass"):
        jobs = work(app, in_loop, in_thread)
    for job in jobs:
        assert (job.state, job.attempt, errors(job), job.error) == ("completed", 1, [], None)
        assert [one.type for one in reversed(app.list(chain=job.id))] == [job.type, "following"]
        assert job.result() == "end"
    assert ledger.entries == ["async 1", "sync 1"]
    assert caplog.text.count("too late: nothing is undone") == 2


def test_a_value_returned_after_the_block_is_ignored(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    async def in_loop(attempt: Attempt) -> str:
        async with attempt.transaction():
            attempt.complete("said")
        return "ignored"

    def in_thread(attempt: Attempt) -> str:
        with attempt.transaction():
            attempt.complete("said")
        return "ignored"

    with caplog.at_level(logging.WARNING, "windlass"):
        jobs = work(app, in_loop, in_thread)
    for job in jobs:
        assert (job.state, job.output, job.attempt, errors(job)) == ("completed", "said", 1, [])
    assert caplog.text.count("is ignored") == 2


def test_an_output_that_cannot_be_stored_undoes_the_block(app: Windlass, ledger: Ledger) -> None:
    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"attempt {attempt.number}")
            attempt.complete(object())

    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, f"attempt {attempt.number}")
            attempt.complete(object())

    for job in work(app, in_loop, in_thread):
        assert (job.state, job.attempt, job.output) == ("failed", 2, None)
        assert errors(job) == ["InvalidInput", "InvalidInput"]
        assert job.error is not None
        assert "result" in job.error.message
    assert ledger.entries == []


def test_who_is_refused_an_output_may_give_another(app: Windlass, ledger: Ledger) -> None:
    async def second_thoughts(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "kept")
            with suppress(InvalidInput):
                attempt.complete(object())
            attempt.complete("instead")

    (job,) = work(app, second_thoughts)
    assert (job.state, job.output, job.attempt, errors(job)) == ("completed", "instead", 1, [])
    assert ledger.entries == ["kept"]


@pytest.mark.parametrize(
    ("fault", "error"), [("own chain", "InvalidInput"), ("unknown", "JobNotFound"), ("taken key", "Conflict")]
)
def test_a_continuation_that_is_refused_undoes_the_block(app: Windlass, ledger: Ledger, fault: str, error: str) -> None:
    """The first is refused when it is recorded, the others when the block ends."""

    @app.task(queue="other")
    def following() -> None: ...

    def call(attempt: Attempt) -> Any:
        calls = {
            "own chain": following.using(after=[attempt.job]),
            "unknown": following.using(after=[uuid4()]),
            "taken key": following.using(unique=Unique("key", until="finished", on_conflict="raise")),
        }
        return calls[fault].call()

    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, f"attempt {attempt.number}")
            attempt.complete(Continue(call(attempt)))

    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, f"attempt {attempt.number}")
            attempt.complete(Continue(call(attempt)))

    holder = following.using(unique=Unique("key", until="finished")).enqueue()
    jobs = work(app, in_loop, in_thread)
    for job in jobs:
        assert (job.state, job.attempt, job.output) == ("failed", 2, None)
        assert errors(job) == [error, error]
    assert ledger.entries == []
    assert {one.id for one in app.list()} == {holder.id, *(job.id for job in jobs)}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_savepoint_that_is_undone_leaves_the_rest(request: pytest.FixtureRequest, store: str) -> None:
    url = request.getfixturevalue(f"fresh_{store}_url")
    app, ledger = Windlass(url), Ledger(url)

    @app.task(queue="other")
    def beside(text: str) -> None: ...

    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction() as connection:
            await ledger.awrite(connection, "async before")
            if store == "sqlite":
                await connection.execute("SAVEPOINT mine")
                await ledger.awrite(connection, "undone")
                await beside.aenqueue("undone")
                await connection.execute("ROLLBACK TO mine")
            else:
                async with connection.transaction(force_rollback=True):
                    await ledger.awrite(connection, "undone")
                    await beside.aenqueue("undone")
            await ledger.awrite(connection, "async after")
            await beside.aenqueue("async")
            attempt.complete("done")

    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction() as connection:
            ledger.write(connection, "sync before")
            connection.execute("SAVEPOINT mine")
            ledger.write(connection, "undone")
            beside.enqueue("undone")
            attempt.complete("done")  # written when the block ends, so that it is no part of the savepoint
            connection.execute("ROLLBACK TO SAVEPOINT mine")
            ledger.write(connection, "sync after")
            beside.enqueue("sync")

    for job in work(app, in_loop, in_thread):
        assert (job.state, job.output, job.attempt, errors(job)) == ("completed", "done", 1, [])
    assert ledger.entries == ["async after", "async before", "sync after", "sync before"]
    assert sorted(one.input["text"] for one in app.list(type="beside")) == ["async", "sync"]
    app.close()
    ledger.close()
