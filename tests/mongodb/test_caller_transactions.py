"""In the caller's transaction: the job exists if, and only if, it commits."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import PyMongoError

from tests.mongodb.support import claim, enqueue, get, new, raw, settle, settled
from windlass.errors import Conflict, InvalidInput
from windlass.job import NewJob
from windlass.operation import Operation
from windlass.stores.mongodb import MongoStore
from windlass.stores.store import Enqueued
from windlass.stores.wakeup import Hint


@pytest.fixture
def client(fresh_mongodb_url: str) -> Iterator[MongoClient[Any]]:
    """The caller's own, with settings that are not ours."""
    client: MongoClient[Any] = MongoClient(fresh_mongodb_url, uuidRepresentation="pythonLegacy", tz_aware=False)
    with client:
        yield client


@pytest.fixture
async def async_client(fresh_mongodb_url: str) -> AsyncIterator[AsyncMongoClient[Any]]:
    client: AsyncMongoClient[Any] = AsyncMongoClient(fresh_mongodb_url)
    async with client:
        yield client


def joining(store: MongoStore, *jobs: NewJob) -> Operation[list[Enqueued]]:
    answers = yield from store.enqueue(jobs)
    yield from store.hint([Hint("ready", "q")])
    return answers


FORMS: list[dict[str, Any]] = [
    {},
    {"id_given": True},
    {"unique_key": "k", "unique_until": "finished"},
    {"unique_key": "k", "unique_until": "forever"},
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2])
def test_commit_and_rollback(store: MongoStore, client: MongoClient[Any], form: dict[str, Any], count: int) -> None:
    def jobs() -> list[NewJob]:
        return [new(**form), new()][:count]

    with client.start_session() as session:
        session.start_transaction()
        answers = store.connections.run_on(session, lambda: joining(store, *jobs()))
        assert all(answer.created for answer in answers)
        assert session.in_transaction
        assert raw(store, "jobs").count_documents({}) == 0
        session.abort_transaction()
    for collection in ("jobs", "keys", "hints"):
        assert raw(store, collection).count_documents({}) == 0
    with client.start_session() as session, session.start_transaction():
        store.connections.run_on(session, lambda: joining(store, *jobs()))
    assert raw(store, "jobs").count_documents({}) == count
    assert raw(store, "hints").count_documents({}) == 1


def test_a_session_without_a_transaction_gets_one(store: MongoStore, client: MongoClient[Any]) -> None:
    with client.start_session() as session:
        answers = store.connections.run_on(session, lambda: joining(store, new(), new()))
        assert not session.in_transaction
        assert not session.has_ended
    assert [get(store, answer.job.id).state for answer in answers] == ["pending", "pending"]


async def test_async_commit_and_rollback(store: MongoStore, async_client: AsyncMongoClient[Any]) -> None:
    async with async_client.start_session() as session:
        await session.start_transaction()
        await store.connections.arun_on(session, lambda: joining(store, new(), new()))
        await session.abort_transaction()
        assert raw(store, "jobs").count_documents({}) == 0
        async with await session.start_transaction():
            await store.connections.arun_on(session, lambda: joining(store, new(), new()))
        await store.connections.arun_on(session, lambda: joining(store, new()))
    assert raw(store, "jobs").count_documents({}) == 3


@pytest.mark.parametrize("until", ["claimed", "finished", "forever"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_conflict_does_not_spoil_the_transaction(
    store: MongoStore, client: MongoClient[Any], until: str, count: int
) -> None:
    (holder,) = enqueue(store, new(unique_key="k", unique_until=until))
    jobs = [new(unique_key="k", unique_until=until), new()][:count]
    with client.start_session() as session, session.start_transaction():
        answers = store.connections.run_on(session, lambda: joining(store, *jobs))
        assert (answers[0].job.id, answers[0].created) == (holder.job.id, False)
        loud = new(unique_key="k", unique_until=until, on_conflict="raise")
        with pytest.raises(Conflict):
            store.connections.run_on(session, lambda: joining(store, new(), loud))
        assert session.in_transaction
        store.connections.run_on(session, lambda: joining(store, new()))
    assert raw(store, "jobs").count_documents({}) == count + 1


def test_what_others_took_meanwhile_makes_pymongo_try_again(store: MongoStore, client: MongoClient[Any]) -> None:
    """A key that was taken after the caller's snapshot: his with_transaction sees a label that it knows."""
    job = new(unique_key="k", unique_until="finished")
    rounds: list[int] = []

    def callback(session: ClientSession) -> list[Enqueued]:
        client.get_default_database()["orders"].insert_one({}, session=session)
        if not rounds:
            enqueue(store, job)
        rounds.append(1)
        return store.connections.run_on(
            session, lambda: joining(store, new(unique_key="k", unique_until="finished"), new())
        )

    with client.start_session() as session:
        answers = session.with_transaction(callback)
    assert len(rounds) == 2
    assert [answer.created for answer in answers] == [False, True]
    assert answers[0].job.id == job.id


def test_a_write_conflict_is_the_callers_to_repeat(store: MongoStore, client: MongoClient[Any]) -> None:
    with client.start_session() as session:
        session.start_transaction()
        client.get_default_database()["orders"].insert_one({}, session=session)
        enqueue(store, new(id=(id := uuid4()), id_given=True))
        with pytest.raises(PyMongoError) as caught:
            store.connections.run_on(session, lambda: joining(store, new(id=id, id_given=True)))
        assert caught.value.has_error_label("TransientTransactionError")


def test_settled_with_the_callers_writes_or_not_at_all(store: MongoStore, client: MongoClient[Any]) -> None:
    job, token = new(), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    orders = client.get_default_database()["orders"]
    with client.start_session() as session:
        for end in (session.abort_transaction, session.commit_transaction):
            session.start_transaction()
            orders.insert_one({}, session=session)
            assert store.connections.run_on(session, lambda: store.settle([settled(job.id, token)])) == []
            end()
            finished = end == session.commit_transaction
            assert orders.count_documents({}) == int(finished)
            assert get(store, job.id).finished == finished
            assert store.connections.run(store.counts).completed == int(finished)
            assert raw(store, "tallies").count_documents({}) == int(finished)
            assert raw(store, "tallies").count_documents({"since": {"$exists": True}}) == 0


async def test_the_error_for_the_wrong_kind_of_session_names_its_twin(
    store: MongoStore, client: MongoClient[Any], async_client: AsyncMongoClient[Any]
) -> None:
    with client.start_session() as session, pytest.raises(InvalidInput, match="AsyncClientSession"):
        await store.connections.arun_on(session, lambda: store.enqueue([new()]))
    with pytest.raises(InvalidInput, match="has ended"):
        store.connections.run_on(session, lambda: store.enqueue([new()]))
    async with async_client.start_session() as other:
        with pytest.raises(InvalidInput, match="aenqueue"):
            store.connections.run_on(other, lambda: store.enqueue([new()]))
    with pytest.raises(InvalidInput, match="pymongo session"):
        store.connections.run_on(client, lambda: store.enqueue([new()]))


def test_a_key_that_an_open_transaction_holds_is_waited_for(store: MongoStore, client: MongoClient[Any]) -> None:
    for count in (1, 2):
        key = f"k{count}"
        with client.start_session() as session:
            session.start_transaction()
            (holder,) = store.connections.run_on(
                session,
                lambda: store.enqueue([new(unique_key=key, unique_until="finished")]),  # noqa: B023
            )
            timer = threading.Timer(0.5, session.commit_transaction)
            timer.start()
            answers = enqueue(store, *[new(unique_key=key, unique_until="finished"), new()][:count])
            timer.join()
        assert (answers[0].job.id, answers[0].created) == (holder.job.id, False)


def test_a_settlement_meets_a_rescue(store: MongoStore, client: MongoClient[Any]) -> None:
    """Whoever commits first wins; the other sees it."""
    job, token = new(), uuid4()
    enqueue(store, job)
    claim(store, token=token)
    store.clock.move(timedelta(minutes=2))
    with client.start_session() as session:
        session.start_transaction()
        assert store.connections.run_on(session, lambda: store.settle([settled(job.id, token)])) == []
        timer = threading.Timer(0.3, session.commit_transaction)
        timer.start()
        assert store.connections.run(lambda: store.rescue(10)) == []
        timer.join()
    assert get(store, job.id).state == "completed"
    assert settle(store, settled(job.id, token)) == []
