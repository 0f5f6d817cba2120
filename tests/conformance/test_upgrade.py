"""A database of version 1 with unique keys in it, brought up to date: the keys count as before for their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from uuid_utils.compat import uuid7

from tests.conformance.stores import closing
from windlass.conformance.bench import Bench, new_job
from windlass.operation import Operation, Request, Statement
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.migrations import MIGRATIONS
from windlass.stores.opening import open_store
from windlass.stores.sql.query import migrations
from windlass.stores.sql.store import SqlStore
from windlass.stores.store import Store
from windlass.unique import Unique

LIVE, ENDED, GONE, OVER = (Unique(name, until="forever") for name in ("live", "ended", "gone", "over"))
HELD = Unique("held")


@pytest.fixture
def store(empty_store_url: str) -> Iterator[Store]:
    with closing(open_store(empty_store_url)) as store:
        yield store


def sql(store: SqlStore, text: str, **parameters: Any) -> Operation[None]:
    yield Statement(store.sql.render("a test's own", text), parameters)


def make_version_1(store: Store) -> Operation[None]:
    if isinstance(store, SqlStore):
        yield store.dialect.queries.statement("schema_lock")
        version, name, text = migrations(store.sql.package)[0]
        yield Statement(store.sql.render(name, text))
        yield store.dialect.queries.statement("schema_record", version=version, name=name, min_compatible=1)
        return
    assert isinstance(store, MongoStore)
    first = MIGRATIONS[0]
    for index in first.indexes:
        arguments = (list(index.keys),)
        yield Request(
            f"windlass_{index.collection}", "create_index", arguments, {"name": index.name, **index.options}, True
        )
    record = {"_id": 1, "name": first.name, "min_compatible": 1}
    yield Request("windlass_migrations", "insert_one", (record,), alone=True)


def add_job(store: Store, id: UUID, type: str, key: str, until: str) -> Operation[None]:
    """As version 1 wrote it."""
    if isinstance(store, SqlStore):
        held = "{true}" if until == "finished" else "{false}"
        yield from sql(
            store,
            "INSERT INTO {jobs} (id, state, queue, type, run_at, created_at, input, unique_key, unique_until,"
            f" unique_held, chain_id) SELECT :id, 'pending', 'default', '{type}', {{now}}, {{now}}, '{{}}',"
            f" '{key}', '{until}', {held}, :id",
            id=id,
        )
    else:
        now = yield from store.now()
        document = {
            "_id": id, "state": "pending", "queue": "default", "type": type, "tenant": "", "rank": 0, "run_at": now,
            "created_at": now, "attempt": 0, "input": "{}", "unique_key": key, "unique_until": until,
        }  # fmt: skip
        document |= {"unique_held": True} if until == "finished" else {}
        yield Request("windlass_jobs", "insert_one", (document,), alone=True)


def add_key(store: Store, id: UUID, type: str, key: str) -> Operation[None]:
    if isinstance(store, SqlStore):
        yield from sql(store, f"INSERT INTO {{keys}} (tenant, key, job_id) SELECT '', '{key}', :id", id=id)
    else:
        now = yield from store.now()
        record = {"_id": {"tenant": "", "key": key}, "job_id": id, "type": type, "queue": "default", "created_at": now}
        yield Request("windlass_keys", "insert_one", (record,), alone=True)


def end_keys(store: Store) -> Operation[None]:
    now = yield from store.now()
    yield Request("windlass_keys", "update_many", ({}, {"$set": {"ends_at": now}}), alone=True)


def test_keys_of_version_1_count_for_the_types_of_their_jobs(store: Store) -> None:
    bench = Bench(store)
    bench.run(lambda: make_version_1(store))
    live, held, gone = uuid7(), uuid7(), uuid4()
    bench.run(lambda: add_job(store, live, "a", "live", "forever"))
    bench.run(lambda: add_key(store, live, "a", "live"))
    bench.run(lambda: add_job(store, held, "a", "held", "finished"))
    bench.run(lambda: add_key(store, gone, "a", "gone"))
    assert bench.run(store.migrate)
    assert bench.run(store.check_schema)
    for unique, id in ((LIVE, live), (HELD, held), (GONE, gone)):
        answer = bench.enqueue_one(unique=unique, type="a")
        assert (unique.key, answer.created, answer.job.id) == (unique.key, False, id)
        both = bench.enqueue(new_job(unique=unique, type="a"), new_job())
        assert [one.created for one in both] == [False, True]
    assert bench.enqueue_one(unique=LIVE, type="b").created
    assert bench.enqueue_one(unique=HELD, type="b").created
    # Whose job is gone: where its type is not known any more, the key counts for all of them.
    assert bench.enqueue_one(unique=GONE, type="b").created is isinstance(store, MongoStore)
    assert [held.id for held in bench.claim(2)] == [live, held]


def test_a_key_that_counts_for_all_types_is_free_when_its_time_is_over(store: Store) -> None:
    bench = Bench(store)
    bench.run(lambda: make_version_1(store))
    bench.run(lambda: add_key(store, uuid4(), "a", "over"))
    if isinstance(store, SqlStore):
        bench.run(lambda: sql(store, "UPDATE {keys} SET ends_at = {now}"))
    else:
        bench.run(lambda: end_keys(store))
    bench.run(store.migrate)
    bench.pass_time(minutes=1)
    assert bench.enqueue_one(unique=OVER, type="b").created
    assert bench.enqueue_one(unique=OVER, type="a").created


def test_of_many_who_bring_it_up_to_date_at_once_one_tells_of_it(store: Store) -> None:
    bench = Bench(store)
    bench.run(lambda: make_version_1(store))
    gone = uuid4()
    bench.run(lambda: add_key(store, gone, "a", "gone"))
    applied = bench.at_once(6, lambda _: bench.run(store.migrate))
    assert len([names for names in applied if names]) == 1
    assert bench.enqueue_one(unique=GONE, type="a").job.id == gone
