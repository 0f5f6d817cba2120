"""Connections that fall silent, break, or find nobody."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.proxy import Line, Proxy
from windlass import StoreUnavailable, Windlass
from windlass.stores import wakeup as hints
from windlass.stores.postgres import wakeup
from windlass.stores.postgres.wakeup import PostgresWakeup
from windlass.worker.events import Event

from .conftest import until

FOUND_WITHIN = 15.0  # seconds, of a half-open connection


def listens(line: Line) -> bool:
    return b"LISTEN" in line.said


def notifies(line: Line) -> bool:
    return b"NOTIFY" in line.said


def quick(app: Windlass) -> Windlass:
    """An app that asks its listener every second."""
    assert isinstance(app.store.wakeup, PostgresWakeup)
    app.store.wakeup.probe_seconds = app.store.wakeup.answer_seconds = 1.0
    return app


def proxy_before(url: str) -> Proxy:
    parts = urlsplit(url)
    return Proxy(parts.hostname or "", parts.port or 5432)


@pytest.fixture
def proxy(fresh_postgres_url: str) -> Iterator[Proxy]:
    with proxy_before(fresh_postgres_url) as proxy:
        yield proxy


def test_by_default_a_half_open_listener_is_found_in_time() -> None:
    fresh = wakeup.PROBE_SECONDS + 0.5  # it waits for hints half a second at a time
    assert fresh + wakeup.ANSWER_SECONDS + 1.5 * hints.FIRST_DELAY < FOUND_WITHIN


async def test_a_half_open_listener_is_found_and_one_poll_follows(fresh_postgres_url: str, proxy: Proxy) -> None:
    app, outside = quick(Windlass(proxy.before(fresh_postgres_url))), Windlass(fresh_postgres_url, notify=False)

    @app.task
    async def go_on(n: int) -> int:
        return n

    async with app.worker(poll_interval="10m") as worker:
        for round in range(3):
            await until(
                lambda: any(listens(line) and not line.silent for line in proxy.lines) and worker.pump.turn.idle
            )
            await asyncio.sleep(1.5)  # a probe that is answered changes nothing
            await until(lambda: proxy.silence(listens) == 1)
            job = await outside.aenqueue("go_on", {"n": round})  # nobody hints at it: the poll alone can find it
            began = time.monotonic()
            await until(lambda: worker.completed == round + 1)  # noqa: B023
            assert time.monotonic() - began < FOUND_WITHIN
            assert (await app.arequire(job.id)).output == round
    app.close()
    await outside.aclose()


async def test_a_half_open_sender_is_found_and_its_hint_sent_again(fresh_postgres_url: str, proxy: Proxy) -> None:
    sender, app = quick(Windlass(proxy.before(fresh_postgres_url))), Windlass(fresh_postgres_url)

    @app.task
    async def go_on(n: int) -> int:
        return n

    async with app.worker(poll_interval="10m") as worker:
        for round in range(4):
            await until(lambda: hasattr(worker, "pump") and worker.pump.turn.idle)
            await sender.aenqueue("go_on", {"n": round})
            await until(lambda: worker.completed == round + 1)  # noqa: B023
            await until(lambda: proxy.silence(notifies) == 1)
    await sender.aclose()
    app.close()


class Load:
    """Jobs that are enqueued all the time, and what became of each."""

    def __init__(self, app: Windlass, sent_by: Windlass) -> None:
        self.app, self.sent_by = app, sent_by
        self.sent: list[UUID] = []
        self.completions: Counter[UUID] = Counter()

        @app.task(lease="5s", backoff="100ms")
        async def work() -> None:
            await asyncio.sleep(0.01)

        @app.on("completed")
        def note(event: Event) -> None:
            self.completions[event.id] += 1

    async def send(self, until: Callable[[], bool]) -> None:
        while not until():
            call = self.sent_by.call("work", id=uuid4())
            while True:
                try:
                    (job,) = await self.sent_by.aenqueue_many([call])
                    break
                except StoreUnavailable:  # in doubt: the same id again
                    await asyncio.sleep(0.1)
            self.sent.append(job.id)
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """None lost, none completed twice."""
        await until(lambda: len(self.completions) >= len(self.sent), 40)
        assert set(self.completions) == set(self.sent)
        assert set(self.completions.values()) == {1}
        counts = await self.app.acounts()
        assert (counts.completed, counts.total) == (len(self.sent), len(self.sent))


async def test_connections_are_cut_under_load_and_nothing_is_lost(fresh_postgres_url: str, proxy: Proxy) -> None:
    app = Windlass(proxy.before(fresh_postgres_url))
    load = Load(app, app)
    cuts: list[int] = []

    async def cut() -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            await until(lambda: len(proxy.lines) >= 3)
            cuts.append(proxy.cut())
        await asyncio.sleep(1.0)

    async with app.worker(poll_interval="1s", rescue_interval="500ms"):
        cutting = asyncio.create_task(cut())
        await load.send(lambda: cutting.done() and len(load.sent) > 50)
        await load.check()
    assert len(cuts) == 3
    assert min(cuts) >= 3  # claim, settle or enqueue, listen
    await app.aclose()


async def test_a_listener_that_is_terminated_twenty_times_comes_back(fresh_postgres_url: str) -> None:
    app, terminated = Windlass(fresh_postgres_url), 0
    load = Load(app, Windlass(fresh_postgres_url))

    def terminate() -> int:
        with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
            answer = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
            return answer.rowcount

    async def terminate_often() -> None:
        nonlocal terminated
        while terminated < 20:
            terminated += await asyncio.to_thread(terminate)
            await asyncio.sleep(0.05)

    async with app.worker(poll_interval="10m") as worker:
        terminating = asyncio.create_task(terminate_often())
        await load.send(terminating.done)
        await load.check()
        await until(lambda: worker.pump.turn.idle)
        await asyncio.sleep(2.0)
        began = time.monotonic()
        await load.sent_by.aenqueue("work")
        await until(lambda: worker.completed == len(load.sent) + 1)
        assert time.monotonic() - began < 5
    assert terminated >= 20  # one that was told and is there still is counted again
    await load.sent_by.aclose()
    app.close()


@pytest.mark.timeout(180)
async def test_a_dead_server_is_tried_seldom_and_never_in_step(fresh_postgres_url: str) -> None:
    """Two that only listen, and a worker in the middle of a job, whose every part tries for itself."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(proxy_before(fresh_postgres_url)) for _ in range(3)]
        apps = [Windlass(proxy.before(fresh_postgres_url)) for proxy in proxies]

        @apps[2].task(lease="6s")
        async def sleep() -> None:
            await asyncio.sleep(60)

        for app in apps[:2]:
            stack.callback(app.store.wakeup.listen(lambda hint: None))
        async with apps[2].worker(grace=0):
            await sleep.aenqueue()
            await until(lambda: all(any(map(listens, proxy.lines)) for proxy in proxies))
            began = time.monotonic()
            for proxy in proxies:
                proxy.refusing = True
                proxy.cut()
            await asyncio.sleep(30)
            tries = [[moment - began for moment in proxy.arrivals if moment > began] for proxy in proxies]
            for proxy in proxies:
                proxy.refusing = False
            # What was given up for so long is taken up again.
            await until(lambda: all(any(map(listens, proxy.lines)) for proxy in proxies), 40)
        for app in apps:
            await app.aclose()
    assert 3 <= len(tries[0]) < 20
    assert 3 <= len(tries[1]) < 20
    assert any(abs(one - other) > 0.05 for one, other in zip(tries[0], tries[1], strict=False))
    assert len(tries[2]) < 50
