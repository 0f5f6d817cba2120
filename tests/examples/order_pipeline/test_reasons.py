"""The reason "not found"; the scope "incomplete". Both by what the shop itself does."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from examples.order_pipeline.pipeline import Pipeline
from windlass import LeaseLost

from .conftest import PATIENCE, FrankBank, lamp, until, work, working
from .test_chains import renewing_often


@pytest.fixture
def renewals(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is clear, a worker that asks for its leases, on its thread for that, waits."""
    passing, renew = threading.Event(), pipeline.app.store.renew

    def renew_when_told(leases: Any) -> Any:
        passing.wait(PATIENCE)
        return renew(leases)

    monkeypatch.setattr(pipeline.app.store, "renew", renew_when_told)
    passing.set()
    return passing


async def test_not_found_where_the_customer_was_forgotten(
    pipeline: Pipeline, bank: FrankBank, renewals: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """A payment whose worker was taken for dead goes to the next, and is deleted before that one takes it. The
    first is stopped, says why, and writes nothing."""
    bank.open.clear()
    async with working(pipeline):
        with renewing_often():
            payment = await pipeline.charge.using(tenant="ann").aenqueue(lamp())
            await asyncio.wait_for(bank.entered.wait(), PATIENCE)
            renewals.clear()
            await pipeline.app.apause("default")  # the next worker takes nothing meanwhile
            await pipeline.app.arescue(stale_before=datetime.now(UTC) + timedelta(hours=1))
            assert await pipeline.forget("ann") == 1
            renewals.set()

            async def stopped() -> bool:
                return "was stopped" in caplog.text

            await until(stopped)
        bank.open.set()
    assert f"charge {payment.id} was stopped: not found" in caplog.text
    assert pipeline.books.entries() == []
    assert await pipeline.app.aget(payment.id) is None


async def test_each_reason_by_its_name(pipeline: Pipeline) -> None:
    """What a stalled worker is told of three orders: taken by another, not found, already finished."""
    for customer in ("ann", "bob", "cleo"):
        await pipeline.order(lamp(customer, customer=customer, quantity=0))
    stalled = {attempt.job.tenant: attempt for attempt in await pipeline.app.aclaim(3, types=["place"])}
    await pipeline.app.arescue(stale_before=datetime.now(UTC) + timedelta(hours=1))
    await pipeline.forget("bob")
    await pipeline.app.arun_now_many(tenant="cleo")
    await work(pipeline)
    told = {}
    for customer, attempt in stalled.items():
        with pytest.raises(LeaseLost) as lost:
            await attempt.arenew()
        told[customer] = str(lost.value).removeprefix(f"job {attempt.job.id}: ")
        with pytest.raises(LeaseLost, match=told[customer]):
            await attempt.acomplete()
    assert told["bob"] == "not found"
    assert told["cleo"] == "already finished"
    assert told["ann"] in ("taken by another", "already finished")  # rescued ones come back staggered


async def test_a_stop_that_is_no_lost_lease_is_said_too(
    pipeline: Pipeline, bank: FrankBank, caplog: pytest.LogCaptureFixture
) -> None:
    bank.open.clear()
    async with working(pipeline):
        payment = await pipeline.charge.aenqueue(lamp())
        await asyncio.wait_for(bank.entered.wait(), PATIENCE)
        await payment.acancel()

        async def stopped() -> bool:
            return "was stopped" in caplog.text

        await until(stopped)
    assert f"charge {payment.id} was stopped: " in caplog.text
    assert {record.levelno for record in caplog.records if "was stopped" in record.message} == {logging.WARNING}


async def test_incomplete_one_count_of_an_article_until_it_is_finished(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits, runs and waits for its next try it is the answer; then a new one is made. Another article
    is another chain."""
    first = await pipeline.count("lamp")
    assert first.created
    assert not (await pipeline.count("lamp")).created
    assert (await pipeline.count("desk")).created

    seen: list[bool] = []
    stock = pipeline.books.stock

    def counted_in_vain() -> dict[str, int]:
        raise ConnectionError("no light in the store-room")

    monkeypatch.setattr(pipeline.books, "stock", counted_in_vain)
    await work(pipeline)
    failed = await first.arefresh()
    assert (failed.state, failed.attempt) == ("pending", 1)
    assert (await pipeline.count("lamp")).id == first.id

    @pipeline.app.middleware
    async def ask_for_another(attempt: Any, call_next: Any) -> Any:
        seen.append((await pipeline.count(attempt.job.input["article"])).created)
        return await call_next()

    monkeypatch.setattr(pipeline.books, "stock", stock)
    await pipeline.app.arun_now_many(type="stocktake")
    await work(pipeline)
    assert seen == [False, False]
    assert await first.aresult(timeout=PATIENCE) == 100
    again = await pipeline.count("lamp")
    assert (again.created, again.id != first.id) == (True, True)


async def test_incomplete_under_concurrency_and_in_one_batch(pipeline: Pipeline) -> None:
    """However many ask at once, one chain is made; and so in one batch."""
    for _ in range(3):
        at_once = await asyncio.gather(*(pipeline.count("lamp") for _ in range(8)))
        assert sorted(job.created for job in at_once) == [False] * 7 + [True]
        await work(pipeline)
    once = pipeline.stocktake.using(unique="count lamp")
    batch = await pipeline.app.aenqueue_many([once.call("lamp") for _ in range(3)])
    assert [job.created for job in batch] == [True, False, False]
    assert (await pipeline.app.acounts()).completed == 3
