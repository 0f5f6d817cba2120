"""A child process that is dead, or about to be, is given no further job."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from typing import Any

import psutil
import pytest

from windlass import JobCancelled, Windlass
from windlass.worker import child as child_side
from windlass.worker import processes

from . import children
from .conftest import until

pytestmark = pytest.mark.one_store  # nothing here depends on which


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_a_child_that_died_while_it_was_idle_fails_no_job(app: Windlass) -> None:
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    async with app.worker(concurrency=1):
        for _ in range(3):
            job = await which.aenqueue()
            pid = await job.aresult(60)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: is_gone(pid))  # noqa: B023


async def test_a_child_that_is_stopped_and_then_killed_before_it_has_the_job_fails_no_job(app: Windlass) -> None:
    """It seems alive when it is given the job."""
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    async with app.worker(concurrency=1) as worker:
        pid = await (await which.aenqueue()).aresult(60)
        os.kill(pid, signal.SIGSTOP)
        job = await which.aenqueue()
        await until(lambda: worker.running)
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        assert await job.aresult(60) != pid


async def test_a_child_killed_by_a_timeout_that_came_with_its_answer_is_not_used_again(app: Windlass) -> None:
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    naps = app.task(isolation="process", max_attempts=1, timeout="1s")(children.naps.function)

    @app.task
    async def blocks_the_loop() -> None:
        await asyncio.sleep(0.2)
        time.sleep(2.0)  # noqa: ASYNC251 - meanwhile the answer arrives, and the time is over

    async with app.worker(concurrency=2):
        await (await which.aenqueue()).aresult(60)
        await app.aenqueue_many([naps.call(0.5), blocks_the_loop.call()])
        await asyncio.sleep(0.1)
        for job in [await which.aenqueue() for _ in range(4)]:
            await job.aresult(60)


async def test_a_child_that_dies_with_its_job_is_the_jobs_end(app: Windlass) -> None:
    """It is not tried in one child after another."""
    never = app.task(isolation="process", max_attempts=1)(children.never_gets_there.function)
    async with app.worker(concurrency=1):
        job = await never.aenqueue()
        deadline = time.monotonic() + 60
        while not (await job.arefresh()).finished:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert "ProcessDied" in str((await job.arefresh()).error)


async def test_a_copy_that_a_handler_has_made_of_its_process_answers_for_no_job(app: Windlass) -> None:
    forks = app.task(isolation="process", max_attempts=1)(children.forks.function)
    echo = app.task(isolation="process", max_attempts=1)(children.echo.function)
    async with app.worker(concurrency=1):
        assert await (await forks.aenqueue(1)).aresult(60) == 1
        for number in range(2, 6):
            assert await (await echo.aenqueue(number)).aresult(60) == number


async def test_children_that_all_die_before_they_have_the_job_spend_no_attempt(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    started, child, serve = [], processes._Child, child_side.serve

    def start() -> processes._Child:
        started.append(1)
        dies = len(started) <= processes.CHILD_TRIES
        monkeypatch.setattr(processes, "serve", children.dies_at_once if dies else serve)
        return child()

    monkeypatch.setattr(processes, "_Child", start)
    monkeypatch.setattr(processes, "NO_CHILD_SECONDS", 0.1)
    async with app.worker(concurrency=1) as worker:
        job = await which.aenqueue()
        await job.aresult(60)
    found = await job.arefresh()
    assert (found.state, found.attempt, found.attempts) == ("completed", 1, ())
    assert worker.failed == 0
    assert len(started) == processes.CHILD_TRIES + 1
    await app.aclose()


async def test_a_system_that_starts_no_process_spends_no_attempt(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    threads: list[threading.Thread] = []
    start = processes._context.Process.start

    def refused(process: Any) -> None:
        threads.append(threading.current_thread())
        if len(threads) <= processes.CHILD_TRIES:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(processes._context.Process, "start", refused)
    monkeypatch.setattr(processes, "NO_CHILD_SECONDS", 0.1)
    async with app.worker(concurrency=1) as worker:
        job = await which.aenqueue()
        await job.aresult(60)
    found = await job.arefresh()
    assert (found.state, found.attempt, found.attempts) == ("completed", 1, ())
    assert worker.failed == 0
    assert threading.current_thread() not in threads, "the event loop waited for the start of a process"
    await app.aclose()


async def test_a_job_that_is_cancelled_while_its_child_starts_leaves_no_process(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Windlass(fresh_sqlite_url)
    app.migrate()
    naps = app.task(isolation="process", max_attempts=1)(children.naps.function)
    started: list[Any] = []
    start = processes._context.Process.start

    def slowly(process: Any) -> None:
        start(process)
        started.append(process)
        time.sleep(1.0)

    monkeypatch.setattr(processes._context.Process, "start", slowly)
    async with app.worker(concurrency=1):
        job = await naps.aenqueue(60)
        await until(lambda: started)
        await job.acancel()
        await until(lambda: not started[0].is_alive())
        with pytest.raises(JobCancelled):
            await job.aresult(20)
    await app.aclose()
