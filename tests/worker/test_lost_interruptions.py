"""Python ignores an exception in `__del__`. An interruption that is lost there is raised again; one that a handler
has caught is not."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

from windlass import Attempt, JobCancelled, Windlass

from .conftest import until

pytestmark = [
    pytest.mark.one_store,  # nothing here depends on which
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Slow:
    """An interruption that comes while it is deleted is lost."""

    def __del__(self) -> None:
        time.sleep(0.3)


def lose_interruption() -> None:
    slow = Slow()
    del slow


def work_on(seconds: float) -> None:
    """In short steps: between two of them the thread can be interrupted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_timeout_that_was_lost_is_raised_again(app: Windlass, times: int) -> None:
    @app.task(timeout="100ms", max_attempts=1)
    def loses() -> None:
        lose_interruption()
        while times == 2 and time.monotonic() < began + 2:  # it loses the second one, too
            lose_interruption()
        work_on(30)

    @app.task
    def good() -> str:
        work_on(1.5)
        return "fine"

    began = time.monotonic()
    jobs = [await loses.aenqueue(), await good.aenqueue()]
    async with app.worker(concurrency=1):
        assert await jobs[1].aresult(20) == "fine"  # in the same thread, which is not interrupted any more
    after = await jobs[0].arefresh()
    assert after.state == "failed"
    assert "TimedOut" in str(after.error)


async def test_a_cancellation_that_was_lost_is_raised_again(app: Windlass) -> None:
    @app.task(lease="1s")
    def loses() -> None:
        while time.monotonic() < began + 2.5:
            lose_interruption()
        work_on(30)

    began = time.monotonic()
    job = await loses.aenqueue()
    async with app.worker(concurrency=1) as worker:
        await until(lambda: worker.running)
        await job.acancel()
        with pytest.raises(JobCancelled):
            await job.aresult(15)


async def test_a_handler_that_has_caught_the_interruption_is_not_interrupted_again(app: Windlass) -> None:
    @app.task(timeout="100ms", max_attempts=1)
    def cleans_up(how: str) -> str:
        try:
            work_on(30)
        except BaseException:
            if how == "inside":
                work_on(2.5)
        work_on(2.5)
        return "cleaned up"

    jobs = [await cleans_up.aenqueue("inside"), await cleans_up.aenqueue("after")]
    async with app.worker(concurrency=2):
        assert [await job.aresult(20) for job in jobs] == ["cleaned up"] * 2


async def test_a_lost_interruption_is_still_shown_by_the_hook_of_the_program(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(unraisable.exc_type.__name__))

    @app.task(max_attempts=1)
    def loses(attempt: Attempt) -> None:
        lose_interruption()
        work_on(30)

    job = await loses.using(timeout="100ms").aenqueue()
    await asyncio.wait_for(app.worker(until_idle=True).run(), 20)
    assert "TimedOut" in str((await job.arefresh()).error)
    assert shown == ["Interruption"]
