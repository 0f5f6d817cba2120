"""The app's own life: schema, upkeep, closing, threads, event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.api.either import Either
from tests.api.hearing import until_heard
from windlass import Job, JobNotFound, SchemaMismatch, StoreUnavailable, Windlass, WindlassError
from windlass.operation import Operation
from windlass.stores.wakeup import Hint


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_the_schema_is_made_by_whom_one_says(empty_store_url: str, is_async: bool) -> None:
    strict = Windlass(empty_store_url, auto_migrate=False)
    either = Either(strict, is_async=is_async)
    attempts = [
        lambda: either.enqueue("send", {}),
        lambda: either.get(uuid4()),
        lambda: either.list(),
        lambda: either.counts(),
        lambda: either.claim(),
        lambda: either.cancel(uuid4()),
        lambda: either.rescue(),
        lambda: either.prune(),
        lambda: either.pause("mail"),
    ]
    for attempt in attempts:
        with pytest.raises(SchemaMismatch, match=r"app\.migrate\(\), or windlass migrate"):
            await attempt()
    assert await either.migrate() != []
    assert await either.migrate() == []
    assert (await either.enqueue("send", {})).created
    other = Either(Windlass(empty_store_url), is_async=is_async)
    assert (await other.counts()).pending == 1
    for one in (strict, other.target):
        assert isinstance(one, Windlass)
        await one.aclose()


async def test_upkeep(app: Windlass, either: Either) -> None:
    @app.task(keep="1h")
    def send() -> None: ...

    for _ in range(3):
        await either.enqueue("send")
    await either.run_worker(until_idle=True)
    assert await either.prune() == 0
    await either.vacuum()
    assert (await either.counts()).completed == 3
    # MongoDB's own clock, which no test can move, prunes there.
    app.store.clock.move(timedelta(hours=2))
    assert await either.prune() in (0, 3)
    assert (await either.enqueue("send")).created


async def test_closed_and_used_again(app: Windlass, either: Either) -> None:
    heard: list[Hint | None] = []
    job = await either.enqueue("send", {})
    await either.close()
    await either.close()
    assert (await either.get(job.id)).state == "pending"
    app.store.wakeup.listen(heard.append)
    await until_heard(None, heard)  # that the line is up
    await either.enqueue("send", {}, queue="again")
    await until_heard(Hint("ready", "again"), heard)


def test_a_queue_in_memory_is_gone_when_it_is_closed_and_can_begin_anew() -> None:
    app = Windlass("sqlite://")
    job = app.enqueue("send", {})
    app.close()
    with pytest.raises(JobNotFound):
        app.require(job.id)
    assert app.enqueue("send", {}).created
    app.close()


def test_one_event_loop_after_another(app: Windlass) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    async def use(number: int) -> int:
        job = await double.aenqueue(number)
        assert (await app.aget(job.id)) == job
        await app.arun_worker(until_idle=True)
        return await job.aresult(timeout=10)

    assert [asyncio.run(use(number)) for number in range(4)] == [0, 2, 4, 6]
    assert double.enqueue(5).refresh().state == "pending"
    assert app.run_worker(until_idle=True) == 1
    assert app.counts().completed == 5


def test_several_event_loops_at_once(app: Windlass) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    async def use(number: int) -> int:
        jobs = await asyncio.gather(*(double.aenqueue(number) for _ in range(5)))
        await app.arun_worker(until_idle=True)
        results = await asyncio.gather(*(job.aresult(timeout=20) for job in jobs))
        return sum(results)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: asyncio.run(use(number)), range(4))) == [0, 10, 20, 30]


def test_several_threads_at_once(new_app: Callable[..., Windlass]) -> None:
    app = new_app(pool_size=3)
    threads, each = 8, 15
    together = threading.Barrier(threads)
    claimed: Counter[Job] = Counter()

    def use(_: int) -> list[Job]:
        together.wait()
        jobs = [app.enqueue("send", {"number": number}) for number in range(each)]
        for attempt in app.claim(limit=each):
            claimed[attempt.job] += 1
            attempt.complete()
        return jobs

    with ThreadPoolExecutor(threads) as pool:
        jobs = [job for some in pool.map(use, range(threads)) for job in some]
    assert len(set(jobs)) == threads * each
    while attempts := app.claim(limit=1000):
        claimed.update(attempt.job for attempt in attempts)
        for attempt in attempts:
            attempt.complete()
    assert claimed == Counter(jobs)
    assert app.counts().completed == threads * each


def test_a_first_use_by_many_at_once_makes_the_schema_once(store_url: str) -> None:
    app = Windlass(store_url)
    with ThreadPoolExecutor(6) as pool:
        jobs = list(pool.map(lambda number: app.enqueue("send", {"number": number}), range(12)))
    assert len(set(jobs)) == 12

    async def use() -> None:
        fresh = Windlass(store_url, prefix="another_")
        await asyncio.gather(*(fresh.aenqueue("send", {"number": number}) for number in range(12)))
        assert (await fresh.acounts()).pending == 12
        await fresh.aclose()

    asyncio.run(use())
    assert app.counts().pending == 12
    app.close()


def test_a_job_without_an_app_can_only_be_looked_at(app: Windlass) -> None:
    job = app.enqueue("send", {})
    (bare,) = app.store.connections.run(lambda: app.store.get([job.id]))
    assert bare == job
    with pytest.raises(WindlassError, match="without an app"):
        bare.refresh()


async def test_failed_jobs_are_kept_longer_only_where_nothing_was_said(app: Windlass, either: Either) -> None:
    @app.task
    def silent() -> None: ...

    @app.task(keep="7d")
    def said() -> None: ...

    kept = [await either.enqueue("silent"), await either.enqueue("unknown here")]
    gone = [
        await either.enqueue("said"),
        await either.enqueue("silent", keep=timedelta(days=7)),
        await either.enqueue("unknown here", keep="7d"),
    ]
    for attempt in await either.claim():
        await either.of(attempt).fail("broken")
    assert (await either.counts()).failed == 5
    app.store.clock.move(timedelta(days=9))
    assert await either.prune() == 3
    assert [await either.get(job.id) for job in gone] == [None, None, None]
    assert {(await either.get(job.id)).state for job in kept} == {"failed"}


async def test_many_tasks_at_once_check_the_schema_once(
    new_app: Callable[..., Windlass], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, calls = new_app(), []
    check = app.store.check_schema

    def counted() -> Operation[bool]:
        calls.append(1)
        return (yield from check())

    monkeypatch.setattr(app.store, "check_schema", counted)
    await asyncio.gather(*(app.acounts() for _ in range(20)))
    assert len(calls) == 1
    await app.aclose()


async def test_if_the_check_fails_each_task_tries_for_itself(
    new_app: Callable[..., Windlass], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, slow = new_app(), 0.2

    async def fail(*_: object) -> None:
        await asyncio.sleep(slow)
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.store.connections, "arun", fail)
    began = time.monotonic()
    answers = await asyncio.gather(*(app.acounts() for _ in range(40)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert time.monotonic() - began < 20 * slow  # not one after the other
