"""A connection that swallows what is sent, and acknowledges it; and a pool that handlers have used up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient

from tests.proxy import Proxy
from windlass import Attempt, StoreUnavailable, Windlass

ANSWER_SECONDS = 1.0
PATIENCE_SECONDS = 30.0


@pytest.fixture
def proxy(fresh_mongodb_url: str) -> Iterator[Proxy]:
    parts = urlsplit(fresh_mongodb_url)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 27017) as proxy:
        yield proxy


@pytest.fixture
def app(fresh_mongodb_url: str, proxy: Proxy) -> Iterator[Windlass]:
    parts = urlsplit(fresh_mongodb_url)
    app = Windlass(f"mongodb://127.0.0.1:{proxy.port}{parts.path}?directConnection=true")
    connections: Any = app.store.connections
    connections.target.answer_seconds = ANSWER_SECONDS
    app.migrate()
    yield app
    app.close()


def silence(proxy: Proxy) -> int:
    """All but the lines on which the client watches the server: it would find out by itself after a while."""
    return proxy.silence(lambda line: b"windlass_" in line.said)


def test_a_sync_call_is_broken_off_and_the_next_one_works(app: Windlass, proxy: Proxy) -> None:
    app.enqueue("anything")
    assert silence(proxy)
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(app.counts())
        except Exception as error:
            answer.append(error)

    for _ in range(2):
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
    assert len(answer) == 2
    assert isinstance(answer[0], StoreUnavailable) or answer[0]["pending"] == 1
    assert answer[1]["pending"] == 1


async def test_an_async_call_is_broken_off_and_the_next_one_works(app: Windlass, proxy: Proxy) -> None:
    await app.aenqueue("anything")
    assert silence(proxy)
    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await asyncio.wait_for(app.acounts(), PATIENCE_SECONDS)
    assert (await asyncio.wait_for(app.acounts(), PATIENCE_SECONDS))["pending"] == 1
    await app.aclose()


async def test_a_url_that_sets_its_own_bound_keeps_it(fresh_mongodb_url: str) -> None:
    app = Windlass(f"{fresh_mongodb_url}&timeoutMS=77000")
    connections: Any = app.store.connections
    assert connections.target.answer_seconds is None
    app.migrate()
    app.enqueue("anything")
    assert app.counts()["pending"] == 1
    app.close()


def test_handlers_that_use_up_their_connections_cost_no_one_a_lease(fresh_mongodb_url: str) -> None:
    """What they do goes through the client of their blocks: two at one time here, and both are busy."""
    app = Windlass(f"{fresh_mongodb_url}&maxPoolSize=2")
    app.migrate()
    clients: list[Any] = []
    runs: list[int] = []

    @app.task
    def first(attempt: Attempt) -> None:
        with attempt.transaction() as session:
            clients.append(session.client)

    @app.task(lease=2)
    def slow(attempt: Attempt) -> None:
        runs.append(attempt.number)
        clients[0].get_default_database()["slow"].find_one({"$where": "sleep(5000) || true"})

    client: MongoClient[Any] = MongoClient(fresh_mongodb_url)
    with client:
        client.get_default_database()["slow"].insert_one({})
    first.enqueue()
    app.run_worker(until_idle=True)
    app.enqueue_many([slow.call() for _ in range(2)])
    app.run_worker(until_idle=True, rescue_interval=0.5)
    assert runs == [1, 1]
    app.close()
