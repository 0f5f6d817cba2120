"""What a handler returns, or a caller completes a job with, is checked by the return annotation."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from windlass import Attempt, Continue, InvalidInput, Windlass

from . import checked


def work(app: Windlass) -> None:
    app.run_worker(until_idle=True, concurrency=5)


def test_a_result_of_another_type_fails_the_attempt_and_says_why(app: Windlass) -> None:
    @app.task
    async def in_loop(value: Any) -> int:
        return value

    @app.task
    def in_thread(value: Any) -> int:
        return value

    in_child = app.task(isolation="process", name="in_child")(checked.returns.function)
    for task in (in_loop, in_thread, in_child):
        for value in ("text", None):
            last = task.using(max_attempts=1).enqueue(value)
            first = task.using(max_attempts=2, backoff="1h").enqueue(value)
            work(app)
            for job, state in ((last, "failed"), (first, "pending")):
                after = job.refresh()
                assert (task.name, after.state, after.attempt) == (task.name, state, 1)
                assert after.error is not None
                assert after.error.type == "InvalidInput"
                assert "result: Expected `int`" in after.error.message
                assert after.output is None
        fine = task.enqueue(7)
        work(app)
        assert fine.result(20) == 7


async def test_a_job_is_not_completed_with_what_its_task_does_not_return(app: Windlass) -> None:
    @app.task
    def count() -> int:
        return 1

    job = count.enqueue()
    for wrong in ("nope", None, 1.5):
        with pytest.raises(InvalidInput, match=r"count: result: Expected `int`"):
            app.complete(job.id, wrong)
        with pytest.raises(InvalidInput, match=r"count: result: Expected `int`"):
            await app.acomplete(job.id, wrong)
    assert job.refresh().state == "pending"
    (attempt,) = app.claim()
    with pytest.raises(InvalidInput, match=r"count: result: Expected `int`"):
        attempt.complete("nope")
    with pytest.raises(InvalidInput, match=r"count: result: Expected `int`"):
        await attempt.acomplete("nope")
    assert job.refresh().state == "running"
    attempt.complete(2)
    assert await job.aresult(20) == 2
    assert app.complete(count.enqueue().id, 3).output == 3


def test_a_block_is_not_completed_with_it_either(app: Windlass) -> None:
    told: list[str] = []

    @app.task
    def count(attempt: Attempt) -> int:
        with attempt.transaction():
            try:
                attempt.complete("nope")
            except InvalidInput as error:
                told.append(str(error))
            attempt.complete(5)
        return 5

    job = count.enqueue()
    work(app)
    assert job.result(20) == 5
    assert told == ["count: result: Expected `int`, got `str`"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_of_a_handler_that_settles_its_job_itself_nothing_more_is_expected(
    app: Windlass, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "sync":

        @app.task
        def settles(attempt: Attempt, say: bool) -> str:  # type: ignore[return]
            with attempt.transaction():
                if say:
                    attempt.complete("said")
    else:

        @app.task
        async def settles(attempt: Attempt, say: bool) -> str:  # type: ignore[return]
            async with attempt.transaction():
                if say:
                    await attempt.acomplete("said")

    jobs = [settles.enqueue(say) for say in (True, False)]
    with caplog.at_level(logging.WARNING, logger="windlass"):
        work(app)
    assert [job.refresh().output for job in jobs] == ["said", None]
    assert [job.refresh().state for job in jobs] == ["completed"] * 2
    assert caplog.messages == []


def test_nor_of_one_that_does_so_in_a_child(
    app: Windlass, store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(checked.URL, store_url)
    job = app.task(isolation="process", name="settles", max_attempts=1)(checked.settles.function).enqueue()
    with caplog.at_level(logging.WARNING, logger="windlass"):
        work(app)
    assert (job.refresh().state, job.refresh().output, caplog.messages) == ("completed", "said", [])


def test_a_chain_continues_whatever_else_is_returned(app: Windlass) -> None:
    @app.task
    def countdown(n: int) -> int | Continue:
        return Continue(countdown.call(n - 1)) if n else 0

    @app.task
    def other() -> Continue | int:
        return "text"  # type: ignore[return-value]

    job, wrong = countdown.enqueue(2), other.using(max_attempts=1).enqueue()
    work(app)
    assert job.result(20) == 0
    assert wrong.refresh().state == "failed"


def test_a_task_that_returns_nothing_may_be_completed_with_something(app: Windlass) -> None:
    @app.task(max_attempts=1)
    def wait_for_payment() -> None:
        return "text"  # type: ignore[return-value]

    paid = app.complete(wait_for_payment.enqueue().id, {"paid": True})
    assert paid.output == {"paid": True}
    job = wait_for_payment.enqueue()
    work(app)
    assert job.refresh().state == "failed"
