"""Other code cancels the task that writes outcomes: each outcome is written, and counts once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from windlass import Continue, StoreUnavailable, Windlass
from windlass.errors import InvalidInput
from windlass.operation import Unwilling
from windlass.stores.store import HandedOver
from windlass.worker.unwritten import Ended

from .conftest import until

JOBS = 8


def cancel_outbox() -> None:
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "windlass outbox"]
    task.cancel()


@pytest.mark.parametrize("way", ["in halves", "one by one", "apart"])
async def test_outcomes_that_are_written_or_wait_apart_are_not_sent_again(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The store refuses the batch, and the worker writes it in parts. It is cancelled before the last part."""
    counted, sent, ready, waits, released = Counter[UUID](), list[Ended](), asyncio.Event(), asyncio.Event(), False
    app.on("completed")(lambda event: counted.update([event.id]))

    @app.task
    async def work() -> None:
        await ready.wait()

    jobs = await app.aenqueue_many([work.call() for _ in range(JOBS)])
    async with app.worker(concurrency=JOBS) as worker:
        await until(lambda: len(worker.running) == JOBS)
        send = worker.outbox.unwritten.send

        async def sending(batch: list[Ended]) -> None:
            has_locked = any(settlement.id == jobs[0].id for _, settlement in batch)
            is_refused = has_locked if way == "apart" else len(batch) > 1
            if not released and is_refused:
                raise InvalidInput("one of them") if way == "in halves" else Unwilling("not now")
            if not released and (way == "apart" or len(sent) == JOBS - 1):
                waits.set()
                await asyncio.sleep(60)
            await send(batch)
            sent.extend(batch)

        async def locked(batch: list[Ended]) -> set[UUID]:
            return {jobs[0].id} if way == "apart" else set()

        monkeypatch.setattr(worker.outbox, "_send", sending)
        monkeypatch.setattr(worker.outbox.unwritten, "send", sending)
        monkeypatch.setattr(worker.outbox.unwritten, "locked", locked)
        ready.set()
        await asyncio.wait_for(waits.wait(), 30)
        cancel_outbox()
        released = True
        await until(lambda: worker.completed >= JOBS and worker.outbox.is_empty)
    assert worker.completed == JOBS
    assert counted == Counter(job.id for job in jobs)


@pytest.mark.parametrize("answer", ["the outbox is cancelled", "the store is gone for a moment"])
async def test_the_next_job_of_a_chain_is_found_where_its_claim_has_no_answer(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Else it waits until its lease ends."""
    ran, arun, lost, failures = list[int](), app.arun_for_worker, list[UUID](), list[str]()

    @app.task(lease="10m")
    async def step(left: int) -> str | Continue:
        ran.append(left)
        await asyncio.sleep(0.002)
        return Continue(step.call(left - 1)) if left > 1 else "end"

    async def forgetful(make: Any) -> Any:
        if lost and not failures and answer != "the outbox is cancelled" and "token" in make.__code__.co_freevars:
            failures.append("adopt")
            raise StoreUnavailable("it is still gone")
        done = await arun(make)
        if isinstance(done, HandedOver) and done.job is not None and not lost:
            lost.append(done.job.id)
            if answer == "the outbox is cancelled":
                cancel_outbox()
                await asyncio.sleep(60)
            raise StoreUnavailable("the line was cut")
        return done

    monkeypatch.setattr(app, "arun_for_worker", forgetful)
    async with app.worker(concurrency=2, poll_interval="60s"):
        for _ in range(50):  # a hint that comes with a completion may keep the worker from following its chain
            job = await step.aenqueue(10)
            assert await job.aresult(timeout=20) == "end"
            if lost:
                break
    assert lost or not app.url.startswith("postgresql")
    assert Counter(ran).most_common(1)[0][1] == ran.count(10), "a job has run twice"
