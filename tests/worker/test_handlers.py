"""Handlers of every kind, and whatever they do."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from windlass import Attempt, Cancel, Fail, Retry, Snooze, Windlass, current_attempt
from windlass.block import BlockConflict
from windlass.job import ERROR_LIMIT

pytestmark = pytest.mark.one_store  # nothing here depends on which


def work(app: Windlass, **options: Any) -> int:
    return app.run_worker(until_idle=True, **({"concurrency": 5} | options))


def test_async_and_sync_handlers_run_and_are_given_their_attempt(app: Windlass) -> None:
    @app.task
    async def in_loop(attempt: Attempt, n: int) -> list[Any]:
        return [n, attempt.number, current_attempt() is attempt, attempt.tenant]

    @app.task
    def in_thread(n: int) -> list[Any]:
        return [n, current_attempt().number]

    jobs = [in_loop.using(tenant="acme").enqueue(1), in_thread.enqueue(2)]
    assert work(app) == 2
    assert [job.result() for job in jobs] == [[1, 1, True, "acme"], [2, 1]]


def test_a_worker_that_holds_a_job_is_on_the_list_of_workers(app: Windlass) -> None:
    @app.task
    async def whose(attempt: Attempt) -> bool:
        return attempt.job.worker in {worker.name for worker in await app.aworkers()}

    job = whose.enqueue()
    work(app)
    assert job.result() is True


def test_many_run_at_once_as_many_as_concurrency_says(app: Windlass) -> None:
    running = most = 0

    @app.task
    async def count(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    app.enqueue_many([count.call(n) for n in range(40)])
    assert work(app, concurrency=8) == 40
    assert most == 8


def test_outcomes_by_raise(app: Windlass) -> None:
    outcomes = {
        "retry": Retry(after="1h"),
        "snooze": Snooze(after="1h"),
        "fail": Fail("no use"),
        "cancel": Cancel("not wanted"),
        "other": ValueError("boom"),
    }

    @app.task
    async def end(how: str) -> None:
        raise outcomes[how]

    jobs = {how: end.enqueue(how) for how in outcomes}
    work(app)
    after = {how: job.refresh() for how, job in jobs.items()}
    assert {how: job.state for how, job in after.items()} == {
        "retry": "pending", "snooze": "pending", "fail": "failed", "cancel": "cancelled", "other": "pending",
    }  # fmt: skip
    assert {how: job.attempt for how, job in after.items()} == {
        "retry": 1, "snooze": 0, "fail": 1, "cancel": 1, "other": 1,
    }  # fmt: skip
    assert "boom" in str(after["other"].error)
    assert after["other"].error is not None
    assert after["other"].error.traceback
    assert [str(record.error) for record in after["other"].attempts] == ["ValueError: boom"]


def test_all_calls_of_a_handler_whose_transaction_met_anothers_have_one_timeout(app: Windlass) -> None:
    calls: list[str] = []

    @app.task(timeout="1s", max_attempts=1)
    async def meets_another() -> None:
        calls.append("loop")
        await asyncio.sleep(0.4)
        raise BlockConflict("the database asked for another try")

    @app.task(timeout="1s", max_attempts=1)
    def meets_another_in_a_thread() -> None:
        calls.append("thread")
        time.sleep(0.4)
        raise BlockConflict("the database asked for another try")

    jobs = [meets_another.enqueue(), meets_another_in_a_thread.enqueue()]
    app.run_worker(until_idle=True, concurrency=2)
    for job in jobs:
        assert "TimedOut" in str(job.refresh().error)
    assert calls.count("loop") <= 3
    assert calls.count("thread") <= 3


def test_a_timeout_ends_an_attempt_in_loop_and_thread(app: Windlass) -> None:
    @app.task(timeout="200ms", max_attempts=1)
    async def in_loop() -> None:
        await asyncio.sleep(60)

    @app.task(timeout="200ms", max_attempts=1)
    def in_thread() -> None:
        while True:
            time.sleep(0.01)

    jobs = [in_loop.enqueue(), in_thread.enqueue()]
    began = time.monotonic()
    work(app)
    assert time.monotonic() - began < 20
    for job in jobs:
        assert job.refresh().state == "failed"
        assert "TimedOut" in str(job.refresh().error)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (Unspeakable(), "Unspeakable"),
        (ValueError("a\0b\ud800"), "a\\x00b\\ud800"),
        (ValueError("x" * 50_000), "x" * ERROR_LIMIT),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (RecursionError("too deep"), "too deep"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_exception_is_recorded_and_the_worker_continues(app: Windlass, error: BaseException, seen: str) -> None:
    @app.task(max_attempts=1)
    async def bad() -> None:
        raise error

    @app.task
    async def good() -> str:
        return "fine"

    jobs = [bad.enqueue(), good.enqueue()]
    work(app, concurrency=1)
    assert jobs[0].refresh().state == "failed"
    assert seen in str(jobs[0].refresh().error)
    assert len(str(jobs[0].refresh().error)) <= ERROR_LIMIT + 100
    assert jobs[1].result() == "fine"


@pytest.mark.parametrize(
    "result",
    [float("nan"), "\0", object(), (n for n in [1]), 2**70],
    ids=["nan", "nul", "object", "generator", "large"],
)
def test_a_result_that_cannot_be_stored_fails_the_attempt(app: Windlass, result: Any) -> None:
    @app.task(max_attempts=1)
    async def returns() -> Any:
        return result

    job = returns.enqueue()
    work(app)
    assert job.refresh().state == "failed"
    assert "InvalidInput" in str(job.refresh().error)


def test_an_unknown_type_waits(app: Windlass) -> None:
    job = app.enqueue("somebody_elses", {"n": 1})

    @app.task
    async def mine() -> None: ...

    mine.enqueue()
    assert work(app) == 1
    assert job.refresh().state == "pending"
    assert job.refresh().attempt == 0


def test_a_payload_that_this_version_cannot_read_is_snoozed(app: Windlass) -> None:
    job = app.enqueue("grown", {"n": 1, "added_later": True})

    @app.task
    async def grown(n: int) -> None: ...

    work(app)
    assert job.refresh().state == "pending"
    assert job.refresh().attempt == 0


def test_progress_and_log_are_kept_with_the_job(app: Windlass) -> None:
    @app.task
    async def talk(attempt: Attempt) -> None:
        attempt.progress(0.5, "half")
        for n in range(150):
            attempt.log(f"line {n}")

    job = talk.enqueue()
    work(app)
    notes = job.refresh().notes
    assert (notes.fraction, notes.text) == (0.5, "half")
    assert [line.text for line in notes.log] == [f"line {n}" for n in range(50, 150)]


def test_middleware_stands_around_each_attempt_and_hooks_are_told_after(app: Windlass) -> None:
    seen: list[str] = []

    @app.middleware
    async def outer(attempt: Attempt, call_next: Any) -> Any:
        seen.append("before")
        result = await call_next()
        seen.append("after")
        return result + 1

    @app.on("completed")
    def told(event: Any) -> None:
        seen.append(event.name)

    @app.on("completed")
    def bad_hook(event: Any) -> None:
        raise RuntimeError("a hook that fails")

    @app.task
    def add(n: int) -> int:
        return n + 1

    job = add.enqueue(1)
    work(app)
    assert job.result() == 3
    assert seen == ["before", "after", "completed"]
