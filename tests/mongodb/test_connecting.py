"""Reaching the server, and saying clearly why it cannot be reached."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from pymongo.errors import PyMongoError

from tests.mongodb.support import claim, enqueue, new, raw, settled
from windlass.embedded import MongodbServer, free_port
from windlass.errors import InvalidInput, SchemaMismatch, StoreUnavailable
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.migrations import LATEST, MIGRATIONS
from windlass.stores.store import ClaimRequest


def test_a_standalone_server_is_refused_with_advice() -> None:
    with MongodbServer(standalone=True) as server:
        store = MongoStore(server.url)
        with pytest.raises(StoreUnavailable, match=r"replica set.*--replSet.*rs\.initiate"):
            store.connections.run(store.migrate)
        with pytest.raises(StoreUnavailable, match="replica set"):
            asyncio.run(store.connections.arun(store.migrate))


def test_a_server_that_is_down() -> None:
    port = free_port()
    store = MongoStore(f"mongodb://user:secret@127.0.0.1:{port}/jobs?serverSelectionTimeoutMS=200")
    for connect in (
        lambda: store.connections.run(store.migrate),
        lambda: asyncio.run(store.connections.arun(store.migrate)),
    ):
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}/jobs") as caught:
            connect()
        assert "secret" not in str(caught.value)
        assert "Timeout: 0.2s" in str(caught.value)


@pytest.mark.parametrize("url", ["mongodb://", "mongodb://host:port/", "mongodb://a:b@c:d@host/"])
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(InvalidInput):
        MongoStore(url)


def test_names() -> None:
    assert MongoStore("mongodb://host").connections.target.database == "windlass"
    assert MongoStore("mongodb://host/mine").connections.target.database == "mine"
    assert MongoStore("mongodb+srv://host.example.com/mine").connections.target.database == "mine"
    with pytest.raises(InvalidInput, match="prefix"):
        MongoStore("mongodb://host", prefix="Bad.")


def test_migrations_by_many_at_once(fresh_mongodb_url: str) -> None:
    stores = [MongoStore(fresh_mongodb_url) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        applied = list(pool.map(lambda store: store.connections.run(store.migrate), stores))
    (reported,) = [names for names in applied if names]  # by the store that wrote the last record
    assert reported[-1] == MIGRATIONS[-1].name
    store = stores[0]
    assert store.connections.run(store.check_schema)
    record = raw(store, "migrations").find_one({"_id": LATEST})
    assert record["min_compatible"] <= LATEST
    raw(store, "migrations").insert_one({"_id": LATEST + 1, "name": "next", "min_compatible": LATEST})
    assert store.connections.run(store.check_schema)
    raw(store, "migrations").update_one({"_id": LATEST + 1}, {"$set": {"min_compatible": LATEST + 1}})
    with pytest.raises(SchemaMismatch, match="newer"):
        store.connections.run(store.check_schema)
    for store in stores:
        store.connections.close()


def test_without_a_schema(fresh_mongodb_url: str) -> None:
    store = MongoStore(fresh_mongodb_url)
    assert not store.connections.run(store.check_schema)
    with pytest.raises(SchemaMismatch, match="migrate"):
        enqueue(store, new())
    store.connections.close()


def test_the_script_names_each_index() -> None:
    store = MongoStore("mongodb://host", prefix="my_")
    for migration in MIGRATIONS:
        for index in migration.indexes:
            assert f'"{index.name}"' in store.script()
    assert 'db.getCollection("my_jobs").createIndex({"state": 1, "queue": 1' in store.script()


async def test_async(store: MongoStore) -> None:
    run = store.connections.arun
    await run(lambda: store.enqueue([new() for _ in range(200)]))
    token = uuid4()
    jobs = await run(lambda: store.claim(ClaimRequest(queue="q", limit=150, token=token, worker="w")))
    assert len(jobs) == 150
    assert await run(lambda: store.settle([settled(job.id, token) for job in jobs])) == []
    assert (await run(store.counts)).completed == 150
    await store.connections.aclose()


def test_one_client_per_event_loop(store: MongoStore) -> None:
    async def use() -> None:
        await store.connections.arun(lambda: store.enqueue([new()]))
        await store.connections.aclose()

    asyncio.run(use())
    asyncio.run(use())
    assert raw(store, "jobs").count_documents({}) == 2


async def test_to_leave_a_loop_is_to_close_what_belongs_to_it_alone(store: MongoStore) -> None:
    enqueue(store, new())
    ours = store.connections.client()
    await store.connections.arun(lambda: store.enqueue([new()]))
    inside = await store.connections.async_client()
    await store.connections.aclose_loop()
    with pytest.raises(PyMongoError):
        await inside.admin.command("ping")
    assert store.connections.client() is ours
    assert len(claim(store)) == 2
    await store.connections.aclose_loop()  # once more does no harm
    assert (await store.connections.arun(store.counts)).running == 2
    await store.connections.aclose()
    assert store.connections.client() is not ours


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:UserWarning")
def test_a_forked_child_opens_its_own(store: MongoStore) -> None:
    enqueue(store, new())
    parent = store.connections.client()
    pid = os.fork()
    if pid == 0:
        try:
            enqueue(store, new())
            os._exit(0 if store.connections.client() is not parent else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(claim(store)) == 2
    assert store.connections.client() is parent
