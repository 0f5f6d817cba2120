"""A chain that goes on while nothing else waits: its worker follows it, and nobody is passed over by that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from windlass import Attempt, Continue, JobCancelled, StoreUnavailable, Windlass
from windlass.outcome import Settlement
from windlass.stores.store import HandedOver
from windlass.task import Task
from windlass.worker.worker import Worker

STEPS = 30


@pytest.fixture
def ran() -> Counter[int]:
    return Counter()


@pytest.fixture
def step(app: Windlass, ran: Counter[int]) -> Task[[int], Any]:
    @app.task
    async def step(attempt: Attempt, left: int) -> str | Continue:
        ran[left] += 1
        await asyncio.sleep(0.002)
        return Continue(step.call(left - 1)) if left > 1 else "end"

    return step


@pytest.fixture
def handed(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[HandedOver]:
    """What the store has handed over."""
    answers: list[HandedOver] = []
    hand_over = app.store.hand_over

    def noted(settlement: Settlement, token: UUID, worker: str) -> Any:
        done = yield from hand_over(settlement, token, worker)
        answers.append(done)
        return done

    monkeypatch.setattr(app.store, "hand_over", noted)
    return answers


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110, handlers only count
            await asyncio.sleep(0.001)


def is_busy(worker: Worker) -> bool:
    """Whether it claims, runs or writes something at this moment."""
    return bool(worker.ledger.waiting or worker.running or not worker.outbox.is_empty)


async def test_each_step_runs_once_and_is_handed_over(
    app: Windlass, step: Task[[int], Any], ran: Counter[int], handed: list[HandedOver]
) -> None:
    """Elsewhere than on PostgreSQL the completion comes with a hint, after which the worker looks round first: there it
    may be none."""
    job = await step.aenqueue(STEPS)
    await app.arun_worker(until_idle=True, concurrency=5)
    assert await job.aresult() == "end"
    assert ran == Counter(range(1, STEPS + 1))
    assert any(done.job is not None for done in handed) or not app.url.startswith("postgresql")
    assert (await app.acounts())["completed"] == STEPS


async def test_what_comes_meanwhile_gets_its_turn(app: Windlass, step: Task[[int], Any], ran: Counter[int]) -> None:
    order: list[str] = []

    @app.task(priority=50)
    async def urgent() -> None:
        order.append(f"after {ran.total()} steps")

    await step.aenqueue(2000)
    async with app.worker(concurrency=1, poll_interval="500ms"):
        await until(lambda: ran.total() >= 5)
        await urgent.aenqueue()
        await until(lambda: bool(order))
    assert ran.total() < 1900


async def test_no_more_are_run_than_was_said(app: Windlass, step: Task[[int], Any], ran: Counter[int]) -> None:
    await step.aenqueue(STEPS)
    assert await app.arun_worker(max_jobs=12, concurrency=3) == 12
    assert ran.total() == 12


async def test_one_that_has_expired_is_not_run(app: Windlass) -> None:
    @app.task
    async def late() -> None:
        raise AssertionError("it was to be started an hour ago")

    @app.task
    async def first(left: int) -> Continue:
        call = first.call(left - 1) if left else late.using(expires=datetime.now(UTC) - timedelta(hours=1)).call()
        return Continue(call)

    job = await first.aenqueue(10)
    await app.arun_worker(until_idle=True)
    with pytest.raises(JobCancelled):
        await job.aresult(timeout=20)


async def test_a_pause_holds_it_up(app: Windlass, ran: Counter[int]) -> None:
    may_end = asyncio.Event()

    @app.task
    async def endless(n: int) -> str | Continue:
        ran[n] += 1
        await asyncio.sleep(0.002)
        return "end" if may_end.is_set() else Continue(endless.call(n + 1))

    job = await endless.aenqueue(0)
    async with app.worker(concurrency=2) as worker:
        await until(lambda: ran.total() >= 5)
        await app.apause("default")
        await until(lambda: not is_busy(worker))
        there = ran.total()
        await asyncio.sleep(0.2)
        assert ran.total() == there
    counts = await app.acounts()
    assert (counts["pending"], counts["completed"]) == (1, there)
    await app.aresume("default")
    may_end.set()
    await app.arun_worker(until_idle=True)
    assert await job.aresult() == "end"


async def test_a_worker_that_stops_lets_it_go(app: Windlass, step: Task[[int], Any], ran: Counter[int]) -> None:
    job = await step.aenqueue(STEPS)
    for part in range(1, 4):
        async with app.worker(concurrency=2):
            await until(lambda: ran.total() >= part * STEPS // 5)  # noqa: B023
        assert (await app.acounts())["running"] == 0
    await app.arun_worker(until_idle=True)
    assert await job.aresult() == "end"
    assert ran == Counter(range(1, STEPS + 1))
    assert [one.attempt for one in await app.alist(chain=job.id, limit=100)] == [1] * STEPS


async def test_the_answer_is_lost_and_the_job_is_not(
    app: Windlass, step: Task[[int], Any], ran: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    arun, lost = app.arun_for_worker, []

    async def forgetful(make: Any) -> Any:
        answer = await arun(make)
        if isinstance(answer, HandedOver) and answer.job is not None:
            lost.append(answer.job.id)
            raise StoreUnavailable("the line was cut")
        return answer

    monkeypatch.setattr(app, "arun_for_worker", forgetful)
    job = await step.aenqueue(STEPS)
    await app.arun_worker(until_idle=True, concurrency=5)
    assert await job.aresult() == "end"
    assert ran == Counter(range(1, STEPS + 1))
    assert lost or not app.url.startswith("postgresql")
