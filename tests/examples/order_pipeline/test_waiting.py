"""Blockers, what people do, transactions of one's own, hints, awaiting; and the example itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from examples.order_pipeline.orders import Order, Outcome, Settings
from examples.order_pipeline.pipeline import Pipeline
from examples.order_pipeline.tour import tour
from windlass import Conflict, InvalidInput, JobNotFound

from .conftest import PATIENCE, PLAIN, FrankBank, interruptions, lamp, steps, the, until, work, working

ROOT = Path(__file__).parents[3]


async def test_shipping_waits_for_payment_and_picking(pipeline: Pipeline, bank: FrankBank) -> None:
    """Pending only when both are complete, and their outputs come in the order that was given."""
    bank.open.clear()
    async with working(pipeline):
        job = await pipeline.order(lamp())
        await asyncio.wait_for(bank.entered.wait(), PATIENCE)
        assert await (await the(pipeline, "pick")).aresult(timeout=PATIENCE) == "2 × lamp"
        assert (await the(pipeline, "ship")).state == "blocked"
        bank.open.set()
        assert await job.aresult(timeout=PATIENCE) == Outcome("shipped", "2 × lamp")
    payment, picking = await the(pipeline, "charge"), await the(pipeline, "pick")
    again = await pipeline.ship.using(after=[payment, picking]).aenqueue(lamp("again"))
    await work(pipeline)  # what has completed already does not block
    assert await again.aresult(timeout=PATIENCE) == Outcome("shipped", "2 × lamp")
    crosswise = await pipeline.ship.using(after=[picking, payment]).aenqueue(lamp("crosswise"))
    (attempt,) = await pipeline.app.aclaim(1, types=["ship"])
    assert (attempt.job.id, attempt.blockers) == (crosswise.id, ["2 × lamp", True])


async def test_none_is_stranded(pipeline: Pipeline, store_url: str) -> None:
    """Many at once, on two workers that do not know of each other."""
    other = Pipeline(store_url, settings=Settings(payment_pause_seconds=0))
    async with working(pipeline), working(other):
        jobs = [await pipeline.order(lamp(f"{n}", customer=f"{n % 3}")) for n in range(15)]
        outcomes = await pipeline.app.aresults(jobs, timeout=PATIENCE)
    await other.app.aclose()
    assert outcomes == [Outcome("shipped", "2 × lamp")] * 15
    assert len(pipeline.books.entries()) == len(set(pipeline.books.entries())) == 45
    assert pipeline.books.stock()["lamp"] == 70


async def test_a_person_approves_without_a_worker(pipeline: Pipeline) -> None:
    """No worker takes it; completed by nobody that has a name; the rest goes on with what was decided."""
    granted = await pipeline.order(lamp("1", cents=100_000))
    refused = await pipeline.order(lamp("2", cents=100_001))
    await work(pipeline)
    by_order = {job.input["order"]: job for job in await pipeline.approvals()}
    assert sorted(by_order) == ["1", "2"]
    assert (await pipeline.app.acounts())["blocked"] == 6
    await pipeline.decide(by_order["1"].id, True)
    await pipeline.decide(by_order["2"].id, False)
    decided = await by_order["1"].arefresh()
    assert (decided.state, decided.output, decided.worker) == ("completed", True, None)
    with pytest.raises(Conflict, match="a completed job cannot be completed"):
        await pipeline.decide(by_order["1"].id, False)
    await work(pipeline)
    assert (await granted.aresult(timeout=PATIENCE)).state == "shipped"
    assert await refused.aresult(timeout=PATIENCE) == Outcome("unpaid")
    assert pipeline.books.stock()["lamp"] == 98


async def test_a_worker_that_runs_it_learns_of_it(pipeline: Pipeline, bank: FrankBank) -> None:
    """Paid in cash while the bank is still thinking; the worker's attempt ends, and it says why."""
    told = interruptions(pipeline)
    bank.open.clear()
    async with working(pipeline):
        job = await pipeline.order(lamp())
        await asyncio.wait_for(bank.entered.wait(), PATIENCE)
        await pipeline.app.acomplete((await the(pipeline, "charge")).id, True)
        assert await asyncio.wait_for(told.get(), PATIENCE) == "already finished"
        assert (await job.aresult(timeout=PATIENCE)).state == "shipped"
    assert [what for _, what, _ in pipeline.books.entries()] == ["reserved", "shipped"]


async def test_deleted_with_all_that_hangs_on_it_or_not_at_all(pipeline: Pipeline) -> None:
    """An approval for which payment and picking wait, for both of which shipping waits: a diamond."""
    job = await pipeline.order(lamp(cents=200_000))
    kept = await pipeline.order(lamp("2", customer="bob", cents=200_000))
    await work(pipeline)
    (approval,) = await pipeline.app.alist(type="approve", tenant="ann")
    (payment,) = await pipeline.app.alist(type="charge", tenant="ann")
    for one in (approval, payment):
        with pytest.raises(Conflict, match="waits for it"):
            await one.adelete()
    assert len(await pipeline.app.alist(tenant="ann")) == 5
    assert await pipeline.forget("ann") > 0
    assert len(await pipeline.app.alist(tenant="ann")) == 0
    with pytest.raises(JobNotFound):
        await job.arefresh()
    assert await pipeline.forget("ann") == 0  # nothing is there, nothing is done
    with pytest.raises(JobNotFound):
        await pipeline.app.adelete(uuid4())
    assert await steps(pipeline, kept) == ["place", "ship"]
    assert len(await pipeline.app.alist(tenant="bob")) == 5


@asynccontextmanager
async def own_transaction(url: str) -> AsyncIterator[Any]:
    """A transaction that the shop opened by itself; rolled back on an exception."""
    if url.startswith("sqlite"):
        import sqlite3

        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
    elif url.startswith("postgresql"):
        import psycopg

        async with await psycopg.AsyncConnection.connect(url) as own:
            yield own
    else:
        from pymongo import AsyncMongoClient

        async with (
            AsyncMongoClient[Any](url) as client,
            client.start_session() as session,
            await session.start_transaction(),
        ):
            yield session


async def test_an_order_in_the_shops_own_transaction(pipeline: Pipeline, store_url: str) -> None:
    """There if, and only if, that commits; a hint wakes the worker after the commit, none after a rollback."""
    heard: list[Any] = []
    await pipeline.app.amigrate()
    deafen = pipeline.app.store.wakeup.listen(heard.append)

    async def hears() -> bool:
        return bool(heard)

    await until(hears)  # that it listens now
    heard.clear()

    async def in_vain() -> None:
        async with own_transaction(store_url) as connection:
            await pipeline.order(lamp(), connection=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_vain()
    await asyncio.sleep(0.3)
    assert (heard, (await pipeline.app.acounts()).total) == ([], 0)
    async with working(pipeline):
        async with own_transaction(store_url) as connection:
            job = await pipeline.order(lamp(), connection=connection)
        assert (await job.aresult(timeout=PATIENCE)).state == "shipped"
    await until(hears)
    deafen()
    assert pipeline.books.entries() == PLAIN


async def test_hints_do_it_all_and_one_listener_hears_them(pipeline: Pipeline, bank: FrankBank) -> None:
    """New work, the end of a chain and a lost job are told, to all who listen, by one thread that is there as
    long as somebody does; one who fails hurts nobody."""

    def listeners() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "windlass-listener"}

    def broken(hint: Any) -> None:
        raise RuntimeError("hurts nobody")

    before = listeners()
    bank.open.clear()
    async with working(pipeline):
        deafen = pipeline.app.store.wakeup.listen(broken)
        job = await pipeline.order(lamp())
        waiting = [asyncio.create_task(job.aresult(timeout=PATIENCE)) for _ in range(3)]
        await asyncio.wait_for(bank.entered.wait(), PATIENCE)  # the worker looks every hour: it was told
        assert len(listeners() - before) == 1
        bank.open.set()
        assert await asyncio.gather(*waiting) == [Outcome("shipped", "2 × lamp")] * 3
        finished = (await the(pipeline, "ship")).finished_at
        assert finished is not None
        deafen()

    async def gone() -> bool:
        return not listeners() - before

    await until(gone)


async def test_awaiting_an_order(pipeline: Pipeline) -> None:
    """Until it has ended, or for a time, or until one gives it up, which does it no harm."""
    job = await pipeline.order(lamp(cents=100_000))
    await work(pipeline)
    with pytest.raises(TimeoutError):
        await job.aresult(timeout=0.2)
    given_up = asyncio.create_task(job.aresult())
    await asyncio.sleep(0.1)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(given_up, PATIENCE)
    async with working(pipeline):
        waiting = asyncio.create_task(job.aresult(timeout=PATIENCE))
        await pipeline.decide((await pipeline.approvals())[0].id, True)
        assert (await waiting).state == "shipped"


DYING = """
import asyncio, sys
from pathlib import Path
from examples.order_pipeline.pipeline import Pipeline

url, marker = sys.argv[1:]
pipeline = Pipeline(url)
enter = pipeline.books.enter

async def enter_and_hang(connection, order, what, amount):
    await enter(connection, order, what, amount)
    if what == "paid":
        session = connection.session_id["id"].hex() if url.startswith("mongodb") else ""
        Path(marker + ".new").write_text(session)
        Path(marker + ".new").rename(marker)
        await asyncio.sleep(60)

pipeline.books.enter = enter_and_hang
pipeline.app.run_worker()
"""


def run_until_it_has_written(url: str, marker: Path) -> str:
    """A worker in a process of its own, killed within the transaction: what it left in the marker."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    deadline = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", DYING, url, str(marker)], env=environment) as process:
        try:
            while not marker.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
    return marker.read_text()


def end_session(url: str, session: str) -> None:
    """MongoDB keeps the transaction of a client that is gone for a minute; here nobody wants to wait for it."""
    from bson import Binary
    from pymongo import MongoClient

    with MongoClient[Any](url) as client:
        client.admin.command("killSessions", [{"id": Binary(bytes.fromhex(session), 4)}])


async def test_a_kill_9_between_ledger_and_completion_leaves_the_ledger_exact(
    pipeline: Pipeline, bank: FrankBank, store_url: str, tmp_path: Path
) -> None:
    """The payment was written, not yet committed, when its worker was killed: it is in the ledger once, of the
    worker that came after it."""
    bank.trouble = [ConnectionError("leave that to the one that dies")]
    job = await pipeline.order(lamp())
    await work(pipeline)
    await (await the(pipeline, "charge")).arun_now()
    session = await asyncio.to_thread(run_until_it_has_written, store_url, tmp_path / "written")
    assert (await the(pipeline, "charge")).state == "running"
    assert pipeline.books.entries() == [("1", "reserved", 2)]
    await pipeline.app.arescue(stale_before=datetime.now(UTC) + timedelta(seconds=1))
    await (await the(pipeline, "charge")).arun_now()
    await work(pipeline)
    assert (await job.aresult(timeout=PATIENCE)).state == "shipped"
    assert pipeline.books.entries() == PLAIN
    assert (await the(pipeline, "charge")).attempt == 3
    if session:
        end_session(store_url, session)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"approval_from_cents": 0}, "approval_from_cents is 1"),
        ({"payment_tries": 0}, "no order could be paid"),
        ({"payment_pause_seconds": -1}, "payment_pause_seconds is 0"),
        ({"stock_pause_seconds": float("nan")}, "stock_pause_seconds is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Settings(**settings)


async def test_an_order_that_cannot_be_read_is_refused_where_it_is_made(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match="quantity"):
        await pipeline.order(Order("1", "ann", "lamp", "two", 500))  # type: ignore[arg-type]


def test_the_tour_counts_right(store_url: str) -> None:
    told: list[tuple[int, int]] = []
    checks = tour(store_url, lambda done, total: told.append((done, total)))
    assert [check for check in checks if not check.right] == []
    assert told[-1] == (10, 10)
