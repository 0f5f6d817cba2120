"""Slots outlive their handlers: whatever a handler does, its attempt is settled and its slot runs the next job."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from windlass import Attempt, Call, Job, Windlass, current_attempt

from .conftest import until

pytestmark = pytest.mark.one_store  # most of this does not depend on which

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="unset")


async def ends(app: Windlass, concurrency: int = 1) -> int:
    """A worker that ends when nothing is left: it would not, had a slot been lost."""
    return await asyncio.wait_for(app.worker(until_idle=True, concurrency=concurrency).run(), 30)


async def test_a_task_registered_while_the_worker_runs_is_run(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def imports() -> None:
        @app.task("late", max_attempts=1)
        async def late() -> str:
            return "ran"

        created.append(await late.aenqueue())

    created: list[Job] = []
    await imports.aenqueue()
    await ends(app)
    assert await created[0].aresult(10) == "ran"


async def test_a_timeout_that_became_another_error_leaves_the_slot_usable(app: Windlass) -> None:
    @app.task(timeout="100ms", max_attempts=1)
    async def converts() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None

    @app.task(max_attempts=1)
    async def awaits_a_cancelled_task() -> None:
        other = asyncio.ensure_future(asyncio.sleep(60))
        other.cancel()
        await other

    @app.task
    async def good() -> str:
        return "fine"

    first = await converts.aenqueue()
    await ends(app)
    assert "TimedOut" in str((await first.arefresh()).error)
    jobs = [await converts.aenqueue(), await awaits_a_cancelled_task.aenqueue(), await good.aenqueue()]
    await ends(app)
    after = [await job.arefresh() for job in jobs]
    assert [job.state for job in after] == ["failed", "failed", "completed"]
    assert "CancelledError" in str(after[1].error)


async def test_a_failing_task_group_under_a_timeout_leaves_the_slot_usable(app: Windlass) -> None:
    @app.task(timeout="100ms", max_attempts=1)
    async def group() -> None:
        async def fails_when_cancelled() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise ValueError("while it was cleaning up")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails_when_cancelled())
            await asyncio.sleep(60)

    @app.task(max_attempts=1)
    async def times_out_inside() -> str:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(60)
        except TimeoutError:
            return "its own timeout"
        return "none"

    jobs = [await group.aenqueue(), await times_out_inside.aenqueue()]
    await ends(app)
    assert (await jobs[0].arefresh()).state == "failed"
    assert await jobs[1].aresult(10) == "its own timeout"


def cancel_own() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def cancel_and_take_back() -> None:
    cancel_own()
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


@pytest.mark.parametrize("cancels", [cancel_own, cancel_and_take_back])
@pytest.mark.parametrize("goes_on", [False, True], ids=["returns", "awaits"])
async def test_a_handler_that_cancels_its_own_task_is_settled(
    app: Windlass, cancels: Callable[[], None], goes_on: bool
) -> None:
    @app.task(max_attempts=1)
    async def cancelling() -> str:
        cancels()
        if goes_on:
            await asyncio.sleep(0.05)
        return "returned"

    @app.task
    async def good(n: int) -> int:
        await asyncio.sleep(0)
        return n

    job = await cancelling.aenqueue()
    await ends(app)
    others = [await good.aenqueue(n) for n in range(5)]
    again = await cancelling.aenqueue()
    await ends(app)
    for one in (job, again):
        after = await one.arefresh()
        if goes_on and cancels is cancel_and_take_back:
            assert after.state in ("completed", "failed")  # from Python 3.13 on it is taken back in time
        else:
            assert after.state == ("failed" if goes_on else "completed")
    assert [await one.aresult(10) for one in others] == list(range(5))


async def test_a_slot_that_is_cancelled_while_it_waits_is_replaced_and_loses_no_job(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def cancels_all_slots() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "windlass slot":
                task.cancel()

    @app.task(max_attempts=2, backoff="10ms")
    async def good(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    jobs: list[Call[Any]] = []
    for n in range(60):
        jobs.append(good.call(n))
        if n % 10 == 5:
            jobs.append(cancels_all_slots.call())
    await app.aenqueue_many(jobs)
    worker = app.worker(concurrency=4)
    async with worker:
        deadline = time.monotonic() + 30
        while (counts := await app.acounts()).pending or counts.running:
            assert time.monotonic() < deadline, dict(counts)
            await asyncio.sleep(0.05)
        slots = [task for task in asyncio.all_tasks() if task.get_name() == "windlass slot"]
        assert len(slots) == 4


def test_a_handler_that_cancels_all_tasks_ends_no_worker(app: Windlass) -> None:
    """Of a worker that has its loop for itself, neither the tasks that claim, write and look after it."""

    @app.task(max_attempts=1)
    async def cancels_all() -> str:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "windlass" in task.get_name() or task.get_coro().__qualname__.startswith("run_alone"):  # type: ignore[union-attr]
                task.cancel()
        return "done"

    @app.task(max_attempts=3, backoff="10ms")  # each of the two that cancel may meet it
    async def good(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    first, others = cancels_all.enqueue(), [good.enqueue(n) for n in range(30)]
    again = cancels_all.enqueue()
    jobs = [first, again, *others]
    deadline = time.monotonic() + 40
    while any(not job.refresh().finished for job in jobs):  # a retry may not be due yet when all else is done
        assert time.monotonic() < deadline, [job.refresh().state for job in jobs]
        app.run_worker(until_idle=True, concurrency=3, rescue_interval="300ms")
    assert [job.result(10) for job in jobs] == ["done", "done", *range(30)]


async def test_a_thread_whose_slot_is_cancelled_is_interrupted_and_waited_for(app: Windlass) -> None:
    """A middleware's own timeout: the job does not run again while its thread still runs."""
    running: list[int] = []
    most = 0

    @app.middleware
    async def hurried(attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(0.1):
            return await call_next()

    @app.task(max_attempts=2, backoff="10ms")
    def slow() -> None:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        try:
            time.sleep(0.5)
            for _ in range(500):
                time.sleep(0.01)
        finally:
            running.pop()

    job = await slow.aenqueue()
    async with app.worker(concurrency=2):
        deadline = time.monotonic() + 30
        while not (after := await job.arefresh()).finished:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert (after.state, after.attempt, most) == ("failed", 2, 1)
    assert "TimeoutError" in str(after.error)


async def test_a_thread_that_does_not_end_is_left_behind_and_the_loop_continues(app: Windlass) -> None:
    """In a loop of your own the worker ends the process of nobody; its job is another worker's when the lease ends."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @app.task(lease="1s", backoff="10ms")
    def stuck(attempt: Attempt) -> int:
        if attempt.number == 1:
            begun.set()
            try:
                may_end.wait(60)
            finally:
                ended.set()
        return attempt.number

    job = await stuck.aenqueue()
    worker = app.worker(concurrency=2, grace=0)
    running = asyncio.create_task(worker.run())
    await until(begun.is_set)
    worker.stop()
    await asyncio.wait_for(running, 20)
    assert worker.left_behind == 1
    assert (await job.arefresh()).state == "running"
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "windlass slot"]
    async with app.worker(concurrency=1, rescue_interval="200ms"):
        assert await job.aresult(30) == 2
        may_end.set()
        await until(ended.is_set)
    assert (await job.arefresh()).output == 2


async def test_a_worker_that_is_stopped_before_it_runs_ends(app: Windlass) -> None:
    @app.task
    async def good() -> None: ...

    job = await good.aenqueue()
    worker = app.worker()
    worker.stop()
    assert await asyncio.wait_for(worker.run(), 20) == 0
    assert (await job.arefresh()).state == "pending"


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class HostileMiddleware(BaseException):
    pass


async def test_an_error_that_cannot_be_described_and_a_middleware_that_raises_are_settled(app: Windlass) -> None:
    @app.middleware
    async def odd(attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if attempt.job.type == "plain":
            raise HostileMiddleware("before")
        result = await call_next()
        if attempt.job.type == "exits":
            sys.exit(4)
        return result

    @app.task(max_attempts=1)
    async def plain() -> None: ...

    @app.task(max_attempts=1)
    async def exits() -> None: ...

    @app.task(max_attempts=1)
    async def undescribable() -> None:
        raise Hostile

    @app.task(max_attempts=1)
    def undescribable_in_thread() -> None:
        raise Hostile

    jobs = [await task.aenqueue() for task in (plain, exits, undescribable, undescribable_in_thread)]
    await ends(app)
    after = [await job.arefresh() for job in jobs]
    assert [job.state for job in after] == ["failed"] * 4
    assert [job.error.type for job in after if job.error] == ["HostileMiddleware", "SystemExit", "Hostile", "Hostile"]


async def test_each_attempt_has_a_context_of_its_own(app: Windlass) -> None:
    @app.middleware
    async def marks(attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(word.get())
        word.set("middleware")
        return await call_next()

    seen: list[str] = []

    @app.task
    async def in_loop() -> str:
        before = word.get()
        word.set("loop")
        assert current_attempt().job.type == "in_loop"
        return before

    @app.task
    def in_thread() -> str:
        before = word.get()
        word.set("thread")
        return before

    jobs = [await task.aenqueue() for task in (in_loop, in_thread, in_loop, in_loop, in_thread, in_loop)]
    token = word.set("outside")
    await ends(app)
    word.reset(token)
    assert seen == ["outside"] * 6
    assert [await job.aresult(10) for job in jobs] == ["middleware"] * 6


async def test_a_variable_that_was_unset_is_unset_again_for_the_next_job(app: Windlass) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("without a default")

    @app.task
    async def looks(n: int) -> int | None:
        found = variable.get(None)
        variable.set(n)
        return found

    jobs = [await looks.aenqueue(n) for n in range(20)]
    await ends(app, concurrency=3)
    assert [await job.aresult(10) for job in jobs] == [None] * 20


@pytest.mark.every_store
async def test_a_handler_may_run_on_after_its_block_has_committed(app: Windlass) -> None:
    """For longer than its lease: the job is done, and nothing is left to renew."""

    @app.task(lease="1s")
    async def in_loop(attempt: Attempt) -> None:
        async with attempt.transaction():
            attempt.complete("done")
        await asyncio.sleep(1.6)
        went_on.append("loop")

    @app.task(lease="1s")
    def in_thread(attempt: Attempt) -> None:
        with attempt.transaction():
            attempt.complete("done")
        for _ in range(160):
            time.sleep(0.01)
        went_on.append("thread")

    went_on: list[str] = []
    jobs = [await in_loop.aenqueue(), await in_thread.aenqueue()]
    await ends(app, concurrency=2)
    assert sorted(went_on) == ["loop", "thread"]
    assert [(job.state, job.output) for job in [await one.arefresh() for one in jobs]] == [("completed", "done")] * 2


async def test_a_hook_that_exits_silences_no_other(app: Windlass) -> None:
    heard: list[str] = []

    @app.on("completed")
    def leaves(event: Any) -> None:
        sys.exit(1)

    @app.on("completed")
    async def interrupted(event: Any) -> None:
        raise KeyboardInterrupt

    @app.on("completed")
    def listens(event: Any) -> None:
        heard.append(threading.current_thread().name)

    @app.task
    async def good(n: int) -> None: ...

    for n in range(3):
        await good.aenqueue(n)
    async with app.worker(concurrency=1):
        await until(lambda: len(heard) == 3)
