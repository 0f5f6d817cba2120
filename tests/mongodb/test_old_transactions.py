"""Transactions that grow too old on the server: it undoes them, and we begin again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.errors import OperationFailure, WriteConcernError

from tests.mongodb.support import raw
from windlass import Attempt, Windlass
from windlass.embedded import MongodbServer
from windlass.operation import Interrupted, Operation, Request
from windlass.stores.mongodb import MongoStore
from windlass.stores.mongodb.blocks import is_transient
from windlass.stores.mongodb.errors import TOO_OLD, translate

SLOW = {"$where": "sleep(60000) || true"}  # the server interrupts it when its transaction is too old


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with MongodbServer(settings={"transactionLifetimeLimitSeconds": "1"}) as server:
        yield server.url.replace("/?", "/lifetime?serverSelectionTimeoutMS=30000&")


@pytest.fixture
def app(url: str) -> Iterator[Windlass]:
    app = Windlass(url)
    app.migrate()
    app.enqueue("other", queue="other")  # for the slow to look at
    yield app
    app.close()


def test_an_operation_that_met_it_is_done_again(app: Windlass) -> None:
    store: Any = app.store
    assert isinstance(store, MongoStore)
    starts = []

    def operate() -> Operation[None]:
        starts.append(1)
        yield Request("notes", "insert_one", ({"try": len(starts)},))
        yield Request(store.context.jobs, "find", (SLOW if len(starts) == 1 else {},))

    app.run_operation(operate)
    assert len(starts) > 1
    notes = raw(store, "jobs").database["notes"]
    assert [note["try"] for note in notes.find()] == [len(starts)]


@pytest.mark.parametrize("by", ["the handler", "an async handler"])
def test_a_block_that_met_it_is_done_again_and_no_attempt_is_spent(app: Windlass, by: str) -> None:
    starts = []

    @app.task(max_attempts=1)
    def slow_at_first(attempt: Attempt) -> None:
        starts.append(1)
        with attempt.transaction() as session:
            jobs = session.client.get_default_database()["windlass_jobs"]
            list(jobs.find(SLOW if len(starts) == 1 else {}, session=session))

    @app.task(max_attempts=1)
    async def async_slow_at_first(attempt: Attempt) -> None:
        starts.append(1)
        async with attempt.transaction() as session:
            jobs = session.client.get_default_database()["windlass_jobs"]
            await jobs.find(SLOW if len(starts) == 1 else {}, session=session).to_list()

    job = (slow_at_first if by == "the handler" else async_slow_at_first).enqueue()
    app.run_worker(until_idle=True, queues=["default"])
    assert job.refresh().state == "completed"
    assert len(starts) > 1


def test_said_of_the_write_concern_it_may_have_been_committed() -> None:
    assert is_transient(OperationFailure("too old", TOO_OLD))
    late = WriteConcernError("too old", TOO_OLD)
    assert not is_transient(late)
    assert isinstance(translate(late, "here", in_transaction=False), Interrupted)
