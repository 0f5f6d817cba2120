"""Ends of attempts that no handler should make, and that cost no other job anything."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from windlass import Attempt, Job, Retry, Snooze, Windlass
from windlass.errors import LeaseLost, StoreUnavailable
from windlass.operation import Operation, Unwilling
from windlass.outcome import Settlement
from windlass.stores.store import ClaimRequest, Refusal

from . import children
from .conftest import until


class RateLimited(Retry):
    def __init__(self, after: Any = None, at: Any = None) -> None:
        super().__init__("429")
        self.after, self.at = after, at


class Asleep(Snooze):
    def __init__(self, after: Any = None, at: Any = None) -> None:
        super().__init__("not yet", after=1)
        self.after, self.at = after, at


WRONG: dict[str, Any] = {
    "text": {"after": "soon"},
    "object": {"after": object()},
    "not a number": {"after": float("nan")},
    "text as a moment": {"at": "2030-01-31T08:00:00+00:00"},
    "no timezone": {"at": datetime(2030, 1, 31)},
    "both": {"after": 1, "at": datetime(2030, 1, 31, tzinfo=UTC)},
}


@pytest.mark.parametrize("kind", [RateLimited, Asleep])
async def test_an_outcome_with_a_moment_that_is_none_is_an_error_of_its_attempt(
    app: Windlass, kind: type[Exception]
) -> None:
    @app.task(backoff="1h", max_attempts=5)
    async def wrong(which: str) -> None:
        raise kind(**WRONG[which])

    @app.task
    async def fine() -> None: ...

    bad = await app.aenqueue_many([wrong.call(which) for which in WRONG])
    async with app.worker() as worker:
        await until(lambda: worker.retried == len(WRONG))
        good = await app.aenqueue_many([fine.call() for _ in range(20)])
        await app.aresults(good, timeout=30)
    for job in [await one.arefresh() for one in bad]:
        assert (job.state, job.attempt, job.error and job.error.type) == ("pending", 1, "InvalidInput")


@pytest.mark.parametrize("kind", [RateLimited, Asleep])
async def test_an_outcome_may_have_a_duration_of_any_form(app: Windlass, kind: type[Exception]) -> None:
    @app.task(backoff="1h")
    async def later() -> None:
        raise kind(after=timedelta(seconds=30))  # type: ignore[call-arg]

    job = await later.aenqueue()
    await app.arun_worker(until_idle=True)
    job = await job.arefresh()
    assert job.state == "pending"
    assert timedelta(seconds=20) < job.run_at - datetime.now(UTC) < timedelta(seconds=60)


async def test_a_snooze_without_a_moment_is_an_error_of_its_attempt(app: Windlass) -> None:
    @app.task(backoff="1h")
    async def asleep() -> None:
        raise Asleep

    job = await asleep.aenqueue()
    await app.arun_worker(until_idle=True)
    job = await job.arefresh()
    assert (job.state, job.attempt, job.error and job.error.type) == ("pending", 1, "InvalidInput")


async def test_a_claim_without_an_answer_holds_up_no_other_queue(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, lost = app.store.claim, list[str]()

    def losing(request: ClaimRequest) -> Operation[list[Job]]:
        if request.queue == "narrow" and not lost:
            lost.append(request.queue)
            raise StoreUnavailable("away for a moment")
        return claim(request)

    @app.task
    async def work() -> None: ...

    monkeypatch.setattr(app.store, "claim", losing)
    async with app.worker(queues={"narrow": 2, "other": None}, concurrency=2) as worker:
        await work.using(queue="narrow").aenqueue()
        await until(lambda: bool(lost))
        job = await work.using(queue="other").aenqueue()
        began = time.monotonic()
        await job.aresult(timeout=30)
        assert time.monotonic() - began < 2
        await until(lambda: not worker.claimer.unanswered)
        assert worker.ledger.held["narrow"] == 0


async def test_outcomes_of_which_none_can_be_written_hold_up_no_others(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes none of the first batch, and all others."""
    settle, bad, go = app.store.settle, set[UUID](), asyncio.Event()

    def settling(settlements: list[Settlement]) -> Operation[list[Refusal]]:
        if any(one.id in bad for one in settlements):
            raise Unwilling("not these")
        return settle(settlements)

    @app.task
    async def work() -> None:
        await go.wait()

    @app.task
    async def fine() -> None: ...

    jobs = await app.aenqueue_many([work.call() for _ in range(4)])
    bad.update(job.id for job in jobs)
    monkeypatch.setattr(app.store, "settle", settling)
    async with app.worker(concurrency=10) as worker:
        await until(lambda: len(worker.running) == len(jobs))
        go.set()
        await until(lambda: worker.outbox.under_way == len(jobs))
        good = await app.aenqueue_many([fine.call() for _ in range(10)])
        await app.aresults(good, timeout=30)
        bad.clear()
        await app.aresults(jobs, timeout=30)
    assert worker.completed == len(jobs) + len(good)


@pytest.mark.one_store  # pymongo has tasks of its own in the loop, and does not survive this
async def test_a_handler_that_cancels_all_new_tasks_costs_no_last_attempt_in_a_child(app: Windlass) -> None:
    which = app.task(isolation="process", max_attempts=1)(children.which.function)
    over = asyncio.Event()

    @app.task
    async def tidies() -> None:
        before = asyncio.all_tasks()
        while not over.is_set():
            for task in asyncio.all_tasks() - before:
                task.cancel()
            await asyncio.sleep(0.001)

    await tidies.aenqueue()
    async with app.worker(concurrency=5) as worker:
        await until(lambda: len(worker.running) == 1)
        jobs = await app.aenqueue_many([which.call() for _ in range(4)])
        await asyncio.sleep(3)
        over.set()
        ended = [await _ended(job) for job in jobs]
    assert [job.state for job in ended] == ["completed"] * 4


async def _ended(job: Job) -> Job:
    """By looks alone: a task that waits would be cancelled."""
    for _ in range(600):
        job = job.refresh()
        if job.finished_at is not None:
            break
        await asyncio.sleep(0.05)
    return job


async def test_the_limit_of_a_queue_holds_after_a_claim_without_an_answer(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, lost, running, most = app.store.claim, list[int](), 0, 0

    def losing(request: ClaimRequest) -> Operation[list[Job]]:
        jobs = yield from claim(request)
        if len(jobs) == 3 and not lost:
            lost.append(1)
        return jobs

    arun = app.arun_for_worker

    async def without_answer(make: Any) -> Any:
        before = len(lost)
        answer = await arun(make)
        if len(lost) > before:
            raise StoreUnavailable("the answer is lost")
        return answer

    @app.task(queue="narrow")
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.3)
        running -= 1

    jobs = await app.aenqueue_many([work.call() for _ in range(3)])
    monkeypatch.setattr(app.store, "claim", losing)
    monkeypatch.setattr(app, "arun_for_worker", without_answer)
    async with app.worker(queues={"narrow": 3}, concurrency=20) as worker:
        await until(lambda: bool(lost))
        jobs += await app.aenqueue_many([work.call() for _ in range(6)])
        await app.aresults(jobs, timeout=30)
        await until(lambda: not worker.claimer.unanswered)
        assert worker.ledger.held["narrow"] == 0
    assert most <= 3


async def test_the_lost_lease_of_a_job_of_the_same_claim_is_an_error_like_any_other(app: Windlass) -> None:
    """Jobs that were claimed together have one token."""

    @app.task(max_attempts=1)
    async def work(attempt: Attempt) -> None:
        raise LeaseLost("that of its neighbour", uuid4(), attempt.token)

    job = await work.aenqueue()
    await app.arun_worker(until_idle=True)
    job = await job.arefresh()
    assert (job.state, job.error and job.error.type) == ("failed", "LeaseLost")


async def test_an_outcome_counts_although_an_earlier_one_of_its_job_is_refused(app: Windlass) -> None:
    events = Counter[str]()
    for name in ("completed", "lease_lost"):
        app.on(name)(lambda event, name=name: events.update([name]))

    @app.task
    async def work() -> None: ...

    async with app.worker(queues=["none"]) as worker:
        await until(lambda: worker.has_parts)
        job = await work.aenqueue()
        earlier, later = (Attempt(app, job, uuid4()) for _ in range(2))
        batch = [(one, Settlement(id=job.id, token=one.token, state="completed")) for one in (earlier, later)]
        worker.outcomes.written(batch, [Refusal(job.id, "taken by another", earlier.token)], has_next=False)
        assert worker.completed == 1
        await until(lambda: events == {"completed": 1, "lease_lost": 1})
