"""Handlers that do harm beyond their own job: the other jobs do not notice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from windlass import Defaults, Fixed, JobFailed, LeaseLost, Windlass


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite://", defaults=Defaults(backoff=Fixed(0.01)))


def _work(app: Windlass, **options: Any) -> None:
    """Until all jobs are finished, also those that are tried again a moment later."""
    deadline = time.monotonic() + 60
    while any(not job.finished for job in app.list()):
        assert time.monotonic() < deadline
        app.run_worker(until_idle=True, **options)


async def _exit_in_a_task() -> None:
    async def leave() -> None:
        sys.exit(3)

    async with asyncio.TaskGroup() as group:
        group.create_task(leave())


async def _exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.05)


async def _interrupt_in_a_task() -> None:
    async def leave() -> None:
        raise KeyboardInterrupt

    await asyncio.create_task(leave())


async def _stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("leave", [_exit_in_a_task, _exit_in_a_callback, _interrupt_in_a_task, _stop_the_loop])
def test_an_exit_in_a_task_of_a_handler_ends_neither_the_worker_nor_other_jobs(app: Windlass, leave: Any) -> None:
    ended: list[int] = []

    @app.task(max_attempts=2)
    async def rude() -> None:
        await leave()

    @app.task(max_attempts=1)
    async def innocent(n: int) -> None:
        await asyncio.sleep(0.3)
        ended.append(n)

    app.enqueue_many([app.call("rude"), *(app.call("innocent", {"n": n}) for n in range(5))])
    _work(app)
    assert sorted(ended) == [0, 1, 2, 3, 4]
    assert {job.state for job in app.list(type="innocent")} == {"completed"}
    assert all(job.finished for job in app.list(type="rude"))


def test_a_job_whose_task_other_code_cancels_spends_no_attempt(app: Windlass) -> None:
    ended: list[int] = []

    @app.task(max_attempts=2)
    async def rude() -> None:
        own = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not own:
                task.cancel()

    @app.task(max_attempts=1)
    async def innocent(n: int) -> None:
        await asyncio.sleep(0.2)
        ended.append(n)

    app.enqueue_many([*(app.call("innocent", {"n": n}) for n in range(5)), app.call("rude", delay=0.1)])
    _work(app)
    assert {job.state for job in app.list()} == {"completed"}
    assert {job.attempt for job in app.list()} == {1}
    assert sorted(ended) == [0, 1, 2, 3, 4]


async def test_a_job_whose_task_is_cancelled_again_and_again_fails_in_the_end(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.executor.MOST_CANCELLED", 2)
    monkeypatch.setattr("windlass.worker.unspent.FIRST_DELAY", 0.01)
    calls: list[int] = []

    @app.task(max_attempts=1)
    async def rude() -> None:
        calls.append(1)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(1)

    job = await app.aenqueue("rude")
    async with app.worker():
        with pytest.raises(JobFailed):
            await job.aresult(timeout=30)
    assert len(calls) == 3


def test_a_handler_for_which_there_is_no_thread_has_not_begun(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.worker.executor.THREADLESS_SECONDS", 0.05)
    start, refused = threading.Thread.start, [3]

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "windlass-handler" and refused[0]:
            refused[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)

    @app.task(max_attempts=1)
    def in_thread(n: int) -> int:
        time.sleep(0.05)
        return n

    jobs = app.enqueue_many([app.call("in_thread", {"n": n}) for n in range(6)])
    _work(app, concurrency=6)
    assert [(job.refresh().state, job.refresh().output) for job in jobs] == [("completed", n) for n in range(6)]


class _Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise _Undescribed


class _Undescribed(Exception, metaclass=_Nameless):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise self


def test_an_error_that_cannot_be_looked_at_stops_no_other_job(app: Windlass) -> None:
    @app.task(max_attempts=2)
    async def rude() -> None:
        raise _Undescribed

    @app.task
    async def innocent() -> None: ...

    job = app.enqueue("rude")
    app.enqueue_many([app.call("innocent")] * 10)
    _work(app, concurrency=1)
    assert job.refresh().state == "failed"
    assert app.counts()["completed"] == 10


def test_a_job_of_a_new_queue_starts_before_all_others_of_many_queues(app: Windlass) -> None:
    began: list[str] = []

    @app.task
    async def count(name: str) -> None:
        began.append(name)
        if len(began) == 500:
            await app.aenqueue("count", {"name": "late"}, queue="new", priority=50)

    app.enqueue_many([app.call("count", {"name": "early"}, queue=f"q{n % 300}") for n in range(9000)])
    _work(app)
    assert len(began) == 9001
    assert began.index("late") < 7000


def test_a_handler_that_cancels_all_tasks_while_the_worker_stops_costs_no_other_job(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(max_attempts=1)
    async def slow() -> str:
        await asyncio.sleep(1.0)
        return "done"

    @app.task(max_attempts=1)
    async def rude() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(3):
            await asyncio.sleep(0.2)
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task() and task.get_name() != "windlass slot":
                    task.cancel()

    job, _ = slow.enqueue(), rude.enqueue()
    app.run_worker(grace=5)
    assert (job.refresh().state, job.refresh().output) == ("completed", "done")
    app.close()


def test_the_lost_lease_of_a_job_that_the_handler_has_claimed_is_an_error_like_any_other(app: Windlass) -> None:
    @app.task(max_attempts=2)
    def pulls() -> None:
        raise LeaseLost("that of another attempt")

    job = pulls.enqueue()
    _work(app, queues=["default"])
    with pytest.raises(JobFailed, match="that of another attempt"):
        job.result()
    assert job.refresh().attempt == 2
