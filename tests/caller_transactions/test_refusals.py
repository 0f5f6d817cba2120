"""What cannot be joined is refused by name, before anything was done to it."""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient
from sqlalchemy import create_engine, text

from tests.caller_transactions import drivers
from tests.caller_transactions.alchemy import engine_url
from tests.caller_transactions.kinds import KINDS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place
from windlass import InvalidInput, SchemaMismatch, Windlass
from windlass.embedded import MongodbServer

HAS_A_TWIN = [kind for kind in KINDS if not issubclass(kind, drivers.Sqlite)]


@pytest.mark.parametrize("kind", HAS_A_TWIN, ids=name_of)
async def test_the_other_half_of_the_interface_is_named(place: Place, lender: Lender) -> None:
    task, note = place.new_task(), uuid4().hex
    await lender.begin()
    await lender.write(note)
    lent = task.using(connection=lender.connection)
    if lender.is_async:
        with pytest.raises(InvalidInput, match="aenqueue"):
            lent.enqueue(1)
    else:
        with pytest.raises(InvalidInput, match=r"\benqueue|sync method"):
            await lent.aenqueue(1)
    await lender.commit()
    assert note in place.notes()
    assert place.jobs() == []


@pytest.mark.parametrize("kind", [drivers.Psycopg, drivers.Sqlite, drivers.Pymongo], ids=name_of)
async def test_a_wrong_object(place: Place) -> None:
    task = place.new_task()
    for wrong in (place.url, object(), place.app, create_engine):
        with pytest.raises(InvalidInput, match=r"connection= takes a (connection|pymongo session)"):
            task.using(connection=wrong).enqueue(1)
        with pytest.raises(InvalidInput, match=r"connection= takes a (connection|pymongo session)"):
            await task.using(connection=wrong).aenqueue(1)
    assert place.jobs() == []


@pytest.fixture
def elsewhere(kind: type[Lender], request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Another database of the same kind, with the caller's table but without the queue."""
    if kind.store == "sqlite":
        with sqlite3.connect(tmp_path / "other.db") as file:
            file.execute("CREATE TABLE notes (text text)")
        return f"sqlite:///{tmp_path / 'other.db'}"
    url: str = request.getfixturevalue("fresh_postgres_url")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE notes (text text)")
    return url


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.store != "mongodb"], ids=name_of)
async def test_a_connection_to_another_database(kind: type[Lender], place: Place, elsewhere: str) -> None:
    task, note = place.new_task(), uuid4().hex
    stranger = kind(elsewhere, "notes")
    await stranger.open()
    await stranger.begin()
    await stranger.write(note)
    with pytest.raises(InvalidInput, match=r"is it the one|the queue is in"):
        await stranger.enqueue(task, 1)
    with pytest.raises(InvalidInput):
        await stranger.enqueue_many(place.app, [task.call(number) for number in range(50)])
    await stranger.write(f"{note} too")
    await stranger.commit()
    await stranger.close()
    assert place.jobs() == []


def test_a_session_of_another_server(mongodb_place: Place) -> None:
    task = mongodb_place.new_task()
    with MongodbServer() as server:
        client: MongoClient[Any] = MongoClient(server.url)
        notes = client["mine"]["notes"]
        with client:
            with client.start_session() as session, session.start_transaction():
                notes.insert_one({}, session=session)
                with pytest.raises(InvalidInput, match="is it the one"):
                    task.using(connection=session).enqueue(1)
                with pytest.raises(InvalidInput):
                    mongodb_place.app.enqueue_many([task.call(number) for number in range(50)], session)
            assert notes.count_documents({}) == 1


@pytest.mark.parametrize("driver", ["psycopg", "pysqlite"])
def test_sqlalchemy_on_another_kind_of_database(postgres_place: Place, sqlite_place: Place, driver: str) -> None:
    other, place = (postgres_place, sqlite_place) if driver == "psycopg" else (sqlite_place, postgres_place)
    engine = create_engine(engine_url(other.url, driver))
    with engine.connect() as connection:
        with pytest.raises(InvalidInput, match="the queue lives in"):
            place.new_task().using(connection=connection).enqueue(1)
        connection.execute(text("SELECT 1"))
    engine.dispose()


def test_a_queue_in_memory_has_no_connection_but_its_own() -> None:
    app = Windlass("sqlite://")
    with pytest.raises(InvalidInput, match="memory"):
        app.enqueue("anything", {}, connection=sqlite3.connect(":memory:"))
    app.close()


def test_a_queue_that_was_not_migrated(fresh_sqlite_url: str) -> None:
    app = Windlass(fresh_sqlite_url, auto_migrate=False)
    connection = sqlite3.connect(fresh_sqlite_url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE notes (text text)")
    connection.execute("INSERT INTO notes VALUES ('mine')")
    with pytest.raises(SchemaMismatch, match="migrate"):
        app.enqueue("anything", {}, connection=connection)
    connection.commit()
    connection.close()


def test_a_call_does_not_lose_the_connection_in_silence(sqlite_place: Place) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(InvalidInput, match="enqueue_many"):
        sqlite_place.new_task().using(connection=connection).call(1)
    connection.close()


def test_a_transaction_that_has_failed_stays_so(postgres_place: Place) -> None:
    with psycopg.connect(postgres_place.url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            postgres_place.new_task().using(connection=connection).enqueue(1)
        connection.rollback()
        assert postgres_place.new_task().using(connection=connection).enqueue(1).created
