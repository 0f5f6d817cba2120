"""Stricter isolation: our own transactions are READ COMMITTED whatever the server says; the caller's is refused where
what it asks for cannot be exact in it, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import create_engine

from tests.caller_transactions.alchemy import engine_url
from tests.caller_transactions.kinds import KINDS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place
from windlass import InvalidInput, Windlass
from windlass.operation import Operation, Statement
from windlass.stores.sql.query import Query
from windlass.stores.store import Enqueued

LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]
LEVEL = Query("level", "SHOW transaction_isolation")
NOTES = Query("notes", "SELECT 1")

# Those whose first statement may say how strict the transaction is.
BEGUN = [kind for kind in KINDS if kind.store == "postgres"]


def run_and_end(app: Windlass, id: UUID) -> None:
    app.enqueue("remember", {"number": 1}, id=id, queue=f"queue-{id.hex}")
    attempts = app.claim(queues=[f"queue-{id.hex}"])
    assert len(attempts) == 1
    attempts[0].complete(1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", BEGUN, ids=name_of)
async def test_an_id_in_a_stricter_transaction_is_refused_and_not_doubled(
    place: Place, lender: Lender, level: str
) -> None:
    task, id, note = place.new_task(), uuid4(), uuid4().hex
    await lender.begin()
    await lender.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    await lender.execute("SELECT 1")
    run_and_end(place.app, id)
    await lender.write(note)
    with pytest.raises(InvalidInput, match=f"{level}.*READ COMMITTED"):
        await lender.enqueue(task.using(id=id), 2)
    job = await lender.enqueue(task, 3)
    await lender.commit()
    assert note in place.notes()
    assert place.jobs() == [job]
    assert place.app.list(state="completed", queue=f"queue-{id.hex}")[0].id == id


@pytest.mark.parametrize("kind", BEGUN, ids=name_of)
async def test_a_unique_key_in_a_stricter_transaction_works(place: Place, lender: Lender) -> None:
    task, key = place.new_task(), uuid4().hex
    await lender.begin()
    await lender.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    job = await lender.enqueue(task.using(unique=key), 1)
    again = await lender.enqueue(task.using(unique=key), 2)
    await lender.commit()
    assert (again, again.created) == (job, False)
    assert place.jobs() == [job]


def test_an_engine_that_is_always_serializable(postgres_place: Place) -> None:
    task = postgres_place.new_task()
    engine = create_engine(engine_url(postgres_place.url, "psycopg"), isolation_level="SERIALIZABLE")
    with engine.begin() as connection:
        with pytest.raises(InvalidInput, match="SERIALIZABLE"):
            task.using(connection=connection, id=uuid4()).enqueue(1)
        task.using(connection=connection).enqueue(1)
    engine.dispose()
    assert len(postgres_place.jobs()) == 1


@pytest.fixture
def strict(fresh_postgres_url: str) -> Iterator[Windlass]:
    """A server that makes every transaction REPEATABLE READ unless it says otherwise."""
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    app = Windlass(fresh_postgres_url)
    app.migrate()
    yield app
    app.close()


async def test_our_own_transactions_are_read_committed(strict: Windlass) -> None:
    def levels() -> Operation[list[str]]:
        alone = yield Statement(LEVEL, alone=True)
        inside = yield Statement(LEVEL)
        return [alone[0][0], inside[0][0]]

    connections = strict.store.connections
    assert connections.run(levels) == ["read committed"] * 2
    assert await connections.arun(levels) == ["read committed"] * 2
    await strict.aclose()


async def test_blocks_are_read_committed(strict: Windlass) -> None:
    @strict.task
    def in_thread(attempt: Any) -> None: ...

    for _ in range(2):
        strict.enqueue("x")
    first, second = strict.claim()
    with first.transaction() as connection:
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    async with second.transaction() as connection:
        shown = await connection.execute("SHOW transaction_isolation")
        assert await shown.fetchone() == ("read committed",)
    await strict.aclose()


def test_an_id_is_not_doubled_where_the_server_is_strict(strict: Windlass) -> None:
    id = uuid4()
    new = strict.call("remember", {"number": 2}, id=id).new_job(uuid4)

    def late() -> Operation[list[Enqueued]]:
        yield Statement(NOTES)  # from here on a stricter transaction would see nothing new
        run_and_end(strict, id)
        return (yield from strict.store.enqueue([new]))

    (answer,) = strict.store.connections.run(late)
    assert not answer.created
    assert [job.id for job in strict.list(state="completed")] == [id]


def test_a_connection_in_autocommit_mode_on_a_strict_server(strict: Windlass) -> None:
    id = uuid4()
    with psycopg.connect(strict.url, autocommit=True) as connection:
        job = strict.enqueue("remember", {"number": 2}, id=id, connection=connection)
        again = strict.enqueue("remember", {"number": 2}, id=id, connection=connection)
    assert (job.created, again.created) == (True, False)


@pytest.mark.parametrize("hung_on", ["blocker", "order key"])
def test_what_others_hang_on_is_not_ended_in_a_stricter_transaction(postgres_place: Place, hung_on: str) -> None:
    app, task = postgres_place.app, postgres_place.new_task()
    key = {"order_key": uuid4().hex} if hung_on == "order key" else {}
    task.using(**key).enqueue(1)
    (attempt,) = app.claim(queues=[postgres_place.queue])
    if not key:
        task.using(after=[attempt.job]).enqueue(2)
    with psycopg.connect(postgres_place.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(InvalidInput, match="REPEATABLE READ"):
            attempt.complete(1, connection=connection)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    attempt.complete(1)
    assert attempt.job.refresh().state == "completed"


def test_a_plain_job_is_ended_in_a_stricter_transaction(postgres_place: Place) -> None:
    app, task = postgres_place.app, postgres_place.new_task()
    task.enqueue(1)
    (attempt,) = app.claim(queues=[postgres_place.queue])
    with psycopg.connect(postgres_place.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        attempt.complete(1, connection=connection)
    assert attempt.job.refresh().state == "completed"
