"""Chains, phases, retries, leases, schedules, deduplication."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from examples.order_pipeline.bank import Closed
from examples.order_pipeline.orders import Outcome
from examples.order_pipeline.pipeline import PATIENT, Pipeline
from windlass import Job, Unique
from windlass.policy import Policy
from windlass.worker import leases

from .conftest import PATIENCE, PLAIN, FrankBank, interruptions, lamp, steps, the, until, work, working


async def test_an_order_branches_and_goes_back(pipeline: Pipeline) -> None:
    """In stock, refused, back-ordered and back; the chain's output is its last job's."""
    async with working(pipeline):
        shipped = await pipeline.order(lamp("1"))
        refused = await pipeline.order(lamp("2", article="unicorn"))
        nothing = await pipeline.order(lamp("3", quantity=0))
        late = await pipeline.order(lamp("4", article="desk"))
        assert await shipped.aresult(timeout=PATIENCE) == Outcome("shipped", "2 × lamp")
        assert await refused.aresult(timeout=PATIENCE) == Outcome("refused", "there is no unicorn")
        assert await nothing.aresult(timeout=PATIENCE) == Outcome("refused", "nothing was ordered")

        async def waits() -> bool:
            return await steps(pipeline, late) == ["place", "wait_for_stock"]

        await until(waits)
        await pipeline.goods_in.aenqueue("desk", 5)
        assert await late.aresult(timeout=PATIENCE) == Outcome("shipped", "2 × desk")
    assert await steps(pipeline, shipped) == ["place", "ship"]
    assert await steps(pipeline, refused) == await steps(pipeline, nothing) == ["place"]
    assert await steps(pipeline, late) == ["place", "wait_for_stock", "place", "ship"]
    assert pipeline.books.stock() == {"lamp": 98, "desk": 3}


async def test_a_payment_loops_until_it_is_good_or_given_up(pipeline: Pipeline, bank: FrankBank) -> None:
    """One continuation for each completion: three tries are three jobs of one chain."""
    slow = await pipeline.order(lamp("1", card="slow to clear"))
    await work(pipeline)
    assert (await slow.aresult(timeout=PATIENCE)).state == "shipped"
    payment = (await pipeline.app.alist(type="charge"))[0]
    assert await steps(pipeline, payment) == ["charge"] * 3
    assert bank.asked == ["1/1", "1/2", "1/3"]
    stolen = await pipeline.order(lamp("2", card="stolen"))
    await work(pipeline)
    assert await stolen.aresult(timeout=PATIENCE) == Outcome("unpaid")
    assert pipeline.books.entries() == [*PLAIN, ("2", "reserved", 2), ("2", "returned", 2)]
    assert pipeline.books.stock()["lamp"] == 98


async def test_a_throw_before_the_block_reschedules(pipeline: Pipeline, bank: FrankBank) -> None:
    """Nothing of that phase is there, and the step is tried again."""
    bank.trouble = [ConnectionError("no line")]
    job = await pipeline.order(lamp())
    await work(pipeline)
    assert pipeline.books.entries() == [("1", "reserved", 2)]
    payment = await the(pipeline, "charge")
    assert (payment.state, payment.attempt) == ("pending", 1)
    assert (await the(pipeline, "ship")).state == "blocked"
    await payment.arun_now()
    await work(pipeline)
    assert (await job.aresult(timeout=PATIENCE)).state == "shipped"
    assert pipeline.books.entries() == PLAIN


async def test_a_throw_in_the_block_undoes_it_with_all_that_it_made(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry, the stock, the continuation and the jobs that were enqueued there, in each step that has a
    block; so does a throw after the completion was said."""
    enter, torn = pipeline.books.enter, set()

    async def enter_and_fail(connection: Any, order: str, what: str, amount: int) -> None:
        await enter(connection, order, what, amount)
        if what not in torn:
            torn.add(what)
            raise RuntimeError(f"torn after {what}")

    monkeypatch.setattr(pipeline.books, "enter", enter_and_fail)
    job = await pipeline.order(lamp())
    await work(pipeline)
    assert (pipeline.books.entries(), pipeline.books.stock()["lamp"]) == ([], 100)
    assert await steps(pipeline, job) == ["place"]
    assert (await pipeline.app.acounts()).total == 1
    for type in ("place", "charge", "ship"):
        await pipeline.app.arun_now_many(type=type)
        await work(pipeline)
    assert torn == {"reserved", "paid", "shipped"}
    assert (await job.aresult(timeout=PATIENCE)).state == "shipped"
    assert pipeline.books.entries() == PLAIN
    assert await steps(pipeline, job) == ["place", "ship"]


async def test_a_throw_after_the_block_undoes_nothing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has committed is done, and is not done again."""

    async def no_line(**_: Any) -> int:
        raise ConnectionError("no line")

    monkeypatch.setattr(pipeline.app, "arun_now_many", no_line)
    job = await pipeline.goods_in.aenqueue("desk", 5)
    await work(pipeline)
    assert ((await job.arefresh()).state, pipeline.books.stock()["desk"]) == ("completed", 5)


@contextmanager
def renewing_often() -> Iterator[None]:
    """Leases of a minute are renewed four times a second, so that nobody has to wait for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "PART", 240)
        yield


async def lease_end(job: Job) -> datetime:
    end = (await job.arefresh()).lease_expires_at
    assert end is not None
    return end


async def test_the_lease_is_renewed_between_the_phases(pipeline: Pipeline, bank: FrankBank) -> None:
    """A bank that takes longer than the lease costs no attempt; the rescuer leaves its own jobs alone."""
    bank.open.clear()
    async with working(pipeline, rescue_interval=0.2):
        with renewing_often():
            job = await pipeline.charge.aenqueue(lamp())
            await asyncio.wait_for(bank.entered.wait(), PATIENCE)
            waiting = asyncio.create_task(job.aresult(timeout=PATIENCE))
            first = await lease_end(job)
            for seconds in (25, 50, 75):
                pipeline.app.store.clock.move(timedelta(seconds=25))
                while await lease_end(job) < first + timedelta(seconds=seconds):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        bank.open.set()
        assert await waiting is True
    done = await job.arefresh()
    assert (done.attempt, list(done.attempts)) == (1, [])  # nobody took it for lost
    assert set(bank.asked) == {"1/1"}  # again where a write to the job fell into the block, and with the same key
    assert pipeline.books.entries() == [("1", "paid", 500)]


async def test_retries_without_end_at_the_right_moment(pipeline: Pipeline, bank: FrankBank) -> None:
    """10 s, doubled, 300 s at the most, for ever; a moment that is asked for is exact; the error is cut, and
    cleared by success."""
    assert [PATIENT.delay(n, lambda: 0.5).total_seconds() for n in (1, 2, 3, 6, 50)] == [10, 20, 40, 300, 300]
    opening = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    bank.trouble = [RuntimeError("x" * 20_000), Closed(opening)]
    job = await pipeline.charge.aenqueue(lamp())
    assert job.max_attempts is None
    before = datetime.now(UTC)
    await work(pipeline)
    after = datetime.now(UTC)
    failed = await job.arefresh()
    assert failed.error is not None
    assert len(failed.error.message) == 10_000
    assert before + timedelta(seconds=9.9) <= failed.run_at <= after + timedelta(seconds=10.1)
    await job.arun_now()
    await work(pipeline)
    closed = await job.arefresh()
    assert (closed.state, closed.run_at) == ("pending", opening)
    await job.arun_now()
    await work(pipeline)
    done = await job.arefresh()
    assert (done.state, done.error, done.attempt) == ("completed", None, 3)


async def test_a_lost_lease_aborts_the_handler_and_says_why(pipeline: Pipeline, bank: FrankBank) -> None:
    """60 s if nothing is said; whoever has lost it is interrupted, and writes nothing."""
    assert Policy().lease_seconds == pipeline.charge.policy.lease_seconds == 60
    told = interruptions(pipeline)
    bank.open.clear()
    async with working(pipeline):
        with renewing_often():
            job = await pipeline.charge.aenqueue(lamp())
            await asyncio.wait_for(bank.entered.wait(), PATIENCE)
            await pipeline.app.arescue(stale_before=datetime.now(UTC) + timedelta(hours=1))
            assert await asyncio.wait_for(told.get(), PATIENCE) == "taken by another"
        bank.open.set()
        assert pipeline.books.entries() == []
        await job.arun_now()
        assert await job.aresult(timeout=PATIENCE) is True
    assert pipeline.books.entries() == [("1", "paid", 500)]
    assert len(bank.asked) >= 2
    assert set(bank.asked) == {"1/1"}  # the same key each time, so that the bank takes it once


async def test_shipped_not_before_the_day_that_was_asked_for(pipeline: Pipeline) -> None:
    """What becomes free is due then or now, whichever is later; a past time is now; `run_now` does not wait."""
    day = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    later = await pipeline.order(lamp("1", not_before=day))
    past = await pipeline.order(lamp("2", not_before=day - timedelta(days=9)))
    await work(pipeline)
    assert (await past.aresult(timeout=PATIENCE)).state == "shipped"
    (shipping,) = await pipeline.app.alist(type="ship", state="pending")
    assert (shipping.chain_id, shipping.run_at) == (later.id, day)
    await shipping.arun_now()
    await work(pipeline)
    assert (await later.aresult(timeout=PATIENCE)).state == "shipped"


async def test_an_order_that_is_sent_twice_is_one(pipeline: Pipeline) -> None:
    """For ever, in one batch, and when many come at once."""
    at_once = await asyncio.gather(*(pipeline.order(lamp()) for _ in range(8)))
    assert sorted(job.created for job in at_once) == [False] * 7 + [True]
    assert len({job.id for job in at_once}) == 1
    await work(pipeline)
    assert not (await pipeline.order(lamp())).created
    once = pipeline.place.using(unique=Unique("order 2", until="forever"), tenant="ann")
    batch = await pipeline.app.aenqueue_many([once.call(lamp("2")) for _ in range(3)])
    assert [job.created for job in batch] == [True, False, False]
    assert pipeline.books.entries() == PLAIN


async def test_one_letter_a_day_to_the_supplier(pipeline: Pipeline) -> None:
    """Within a time, whether the first was finished or not; another key is another chain."""
    for number in ("1", "2"):
        await pipeline.order(lamp(number, article="desk"))
    await work(pipeline)
    await pipeline.order(lamp("3", article="desk"))
    await pipeline.order(lamp("4", quantity=1000))
    await work(pipeline)
    letters = await pipeline.app.alist(type="reorder", state="completed")
    assert sorted(job.input["article"] for job in letters) == ["desk", "lamp"]
    assert len(await pipeline.app.alist(type="wait_for_stock", state="pending")) == 4
