"""Handlers that are quicker than the store: what waits to be written is bounded, and so is what is claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from windlass import Attempt, StoreUnavailable, Windlass
from windlass.operation import Operation
from windlass.worker.buffer import STALE_SECONDS
from windlass.worker.ledger import MOST_AHEAD
from windlass.worker.outbox import BATCHES_WAITING, MOST_BYTES, MOST_ROWS
from windlass.worker.worker import Worker

from .conftest import until

pytestmark = pytest.mark.one_store  # nothing here depends on which

SLOTS = 50


class Slow:
    """The app, as the outbox knows it, on a store that is slower than the handlers, however slow they are: it writes a
    batch when that is full, or nothing more will come, and then takes its time. Notes what waits meanwhile."""

    def __init__(self, app: Windlass, worker: Worker, seconds: float) -> None:
        self.app, self.store, self.worker, self.seconds = app, app.store, worker, seconds
        self.most_waiting = self.most_bytes = self.batches = 0

    async def arun_for_worker(self, make: Callable[[], Operation[Any]]) -> Any:
        self.batches += 1
        while self.seconds and not self.worker.ledger.is_full and not self.is_over():  # noqa: ASYNC110, nobody tells
            await asyncio.sleep(0.01)
        for _ in range(10):
            await asyncio.sleep(self.seconds / 10)
            self.look()
        return await self.app.arun_for_worker(make)

    def is_over(self) -> bool:
        worker, pump = self.worker, self.worker.pump
        nothing_found = pump.turn.idle and not len(worker.buffer) and not worker.running
        return nothing_found or worker.stopping.asked.is_set()

    def look(self) -> None:
        waiting = self.worker.outbox.waiting
        self.most_waiting = max(self.most_waiting, len(waiting))
        self.most_bytes = max(self.most_bytes, sum(len(settlement.output or "") for _, settlement in waiting))


async def slowed(app: Windlass, worker: Worker, seconds: float) -> Slow:
    await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
    worker.outbox.app = slow = Slow(app, worker, seconds)  # type: ignore[assignment]
    return slow


async def test_a_slow_store_bounds_waiting_outcomes_and_claims(app: Windlass) -> None:
    @app.task
    async def quick(n: int) -> None: ...

    most_claimed = 0
    async with app.worker(concurrency=SLOTS) as worker:
        slow = await slowed(app, worker, 0.3)
        await app.aenqueue_many([quick.call(n) for n in range(8000)])
        while worker.completed < 8000:
            most_claimed = max(most_claimed, (await app.acounts()).running)
            await asyncio.sleep(0.1)
    assert slow.most_waiting > MOST_ROWS, "it was never held up: this shows nothing"
    assert slow.most_waiting <= BATCHES_WAITING * MOST_ROWS + SLOTS
    assert most_claimed <= (BATCHES_WAITING + 1) * MOST_ROWS + MOST_AHEAD + SLOTS
    assert slow.batches <= 40, "the batches were small"


async def test_a_store_that_stalls_gets_nothing_back_that_was_claimed(app: Windlass) -> None:
    """What lies ready waits for the store, not for jobs that are long: to give it back would be more to write."""

    @app.task
    async def quick(n: int) -> None: ...

    async with app.worker(concurrency=SLOTS) as worker:
        slow = await slowed(app, worker, 2 * STALE_SECONDS)
        await app.aenqueue_many([quick.call(n) for n in range(6000)])
        await until(lambda: worker.ledger.is_full, 45)
        batches = slow.batches
        await until(lambda: slow.batches > batches)
        assert slow.most_waiting <= BATCHES_WAITING * MOST_ROWS + SLOTS
        slow.seconds = 0.0
        await until(lambda: worker.completed == 6000, 60)


async def test_large_results_are_bounded_by_their_bytes(app: Windlass) -> None:
    @app.task
    async def large() -> str:
        return "x" * 500_000

    async with app.worker(concurrency=10) as worker:
        slow = await slowed(app, worker, 0.3)
        await app.aenqueue_many([large.call() for _ in range(100)])
        await until(lambda: worker.completed == 100, 60)
    assert slow.most_bytes > MOST_BYTES, "it was never held up: this shows nothing"
    assert slow.most_bytes <= BATCHES_WAITING * MOST_BYTES + 10 * 500_002


async def test_when_the_store_is_quick_again_the_worker_does_not_wait_for_its_poll(app: Windlass) -> None:
    @app.task
    async def quick(n: int) -> None: ...

    async with app.worker(concurrency=SLOTS, poll_interval="60s") as worker:
        slow = await slowed(app, worker, 0.3)
        await app.aenqueue_many([quick.call(n) for n in range(6000)])
        await until(lambda: worker.ledger.is_full, 45)
        slow.seconds = 0.0
        await until(lambda: worker.completed == 6000, 45)


async def test_a_worker_that_is_held_up_stops_in_order(app: Windlass) -> None:
    @app.task
    async def quick(n: int) -> None: ...

    worker = app.worker(concurrency=SLOTS, grace="60s")
    running = asyncio.create_task(worker.run())
    await slowed(app, worker, 0.3)
    await app.aenqueue_many([quick.call(n) for n in range(6000)])
    await until(lambda: worker.ledger.is_full, 45)
    worker.stop()
    await asyncio.wait_for(running, 75)
    counts = await app.acounts()
    assert (counts.running, counts.completed + counts.pending) == (0, 6000)
    assert counts.completed == worker.started


async def test_what_lies_ready_is_given_back_where_jobs_turn_out_to_be_long(app: Windlass) -> None:
    release, ran = asyncio.Event(), []
    half_done, all_begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def work(n: int, long: bool) -> None:
        ran.append(n)
        if len(ran) == 51:
            half_done.set()
        if len(ran) == 60:
            all_begun.set()
        if long:
            await release.wait()

    await app.aenqueue_many([work.call(n, False) for n in range(50)] + [work.call(n, True) for n in range(50, 60)])
    async with app.worker(concurrency=1), asyncio.timeout(60):
        await half_done.wait()
        async with app.worker(concurrency=20):
            await all_begun.wait()  # what the first had taken ahead has come to the second
            release.set()
    assert sorted(ran) == list(range(60))


async def test_a_job_that_was_claimed_in_vain_is_given_back(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is made, and what the job waited for cannot be read: the queue's limit is not used up by that."""

    @app.task(queue="narrow")
    async def work(attempt: Attempt) -> int:
        return sum(attempt.blockers)

    first = await work.aenqueue()
    jobs = [await work.using(after=[first]).aenqueue() for _ in range(3)]
    blockers = app.store.blockers
    broken: list[Any] = []

    def breaking(ids: Any) -> Any:
        if not broken:
            broken.append(ids)
            raise StoreUnavailable("gone for a moment")
        return (yield from blockers(ids))

    monkeypatch.setattr(app.store, "blockers", breaking)
    async with app.worker(queues={"narrow": 1}, poll_interval=0.2):
        assert await app.aresults(jobs, timeout=30) == [0, 0, 0]
    assert broken
    assert [(await job.arefresh()).attempt for job in jobs] == [1, 1, 1]


async def test_nothing_is_taken_ahead_before_one_has_run(app: Windlass) -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        begun.set()
        await release.wait()

    await app.aenqueue_many([work.call() for _ in range(10)])
    async with app.worker(concurrency=2):
        await begun.wait()
        await asyncio.sleep(0.3)
        assert (await app.acounts())["running"] == 2
        release.set()
