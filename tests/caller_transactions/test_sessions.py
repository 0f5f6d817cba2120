"""What a caller has made of his connection: it stays so, and does not get in our way."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from pymongo import MongoClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool

from tests.caller_transactions.alchemy import engine_url
from tests.caller_transactions.place import Place
from windlass import Unique

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SETTINGS = ("search_path", "TimeZone", "DateStyle", "synchronous_commit", "enable_seqscan", "application_name")


def settings_of(connection: psycopg.Connection[Any]) -> list[Any]:
    return [connection.execute(f"SHOW {name}").fetchone() for name in SETTINGS]


@pytest.mark.parametrize("autocommit", [False, True])
def test_psycopg_keeps_its_settings(postgres_place: Place, autocommit: bool) -> None:
    task = postgres_place.new_task()
    with psycopg.connect(postgres_place.url, row_factory=dict_row, autocommit=autocommit) as connection:
        connection.execute("CREATE TEMPORARY TABLE windlass_jobs (id integer)")
        connection.execute("SET search_path = pg_temp, pg_catalog")
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        connection.execute("SET DateStyle = 'SQL, DMY'")
        connection.commit()
        before = settings_of(connection)
        connection.commit()
        status = connection.info.transaction_status
        keyed = task.using(connection=connection, unique=Unique(uuid4().hex), run_at=NOON)
        job, same = keyed.enqueue(1), keyed.enqueue(2)
        connection.commit()
        assert (same, same.created) == (job, False)
        assert (job.run_at, same.run_at, same.run_at.tzinfo) == (NOON, NOON, UTC)
        assert abs((job.created_at - datetime.now(UTC)).total_seconds()) < 60
        assert connection.row_factory is dict_row
        assert connection.autocommit is autocommit
        assert connection.info.transaction_status == status
        assert settings_of(connection) == before
        assert connection.execute("SELECT count(*) AS count FROM windlass_jobs").fetchone() == {"count": 0}
    assert postgres_place.jobs() == [job]


@pytest.mark.parametrize("autocommit", [False, True])
def test_psycopg_in_a_pipeline(postgres_place: Place, autocommit: bool) -> None:
    task = postgres_place.new_task()
    connection = psycopg.connect(postgres_place.url, autocommit=autocommit)
    with connection, connection.pipeline(), connection.transaction():
        keyed = task.using(connection=connection, unique=Unique(uuid4().hex, until="forever"))
        assert keyed.enqueue(1).created
        assert not keyed.enqueue(2).created
        postgres_place.app.enqueue_many([task.call(number) for number in range(50)], connection)
    assert len(postgres_place.jobs()) == 51


async def test_psycopg_in_an_async_pipeline(postgres_place: Place) -> None:
    task = postgres_place.new_task()
    async with await psycopg.AsyncConnection.connect(postgres_place.url) as connection, connection.pipeline():
        keyed = task.using(connection=connection, unique=Unique(uuid4().hex, until="forever"))
        assert (await keyed.aenqueue(1)).created
        assert not (await keyed.aenqueue(2)).created
    assert len(postgres_place.jobs()) == 1


async def test_asyncpg_with_codecs_of_its_own(postgres_place: Place) -> None:
    task = postgres_place.new_task()
    connection = await asyncpg.connect(postgres_place.url, statement_cache_size=0)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    debounced = task.using(connection=connection, unique=Unique(uuid4().hex, until="claimed", on_conflict="replace"))
    async with connection.transaction():
        await debounced.aenqueue(1)
        job = await debounced.aenqueue(2)
        await task.using(connection=connection, unique=Unique(uuid4().hex, until="1h")).aenqueue(3)
    assert job.input == {"number": 2}
    assert await connection.fetchval("""SELECT '{"a": 1}'::json""") == {"a": 1}
    await connection.close()
    assert len(postgres_place.jobs()) == 2


def test_sqlite3_keeps_its_settings(sqlite_place: Place) -> None:
    task = sqlite_place.new_task()
    connection = sqlite3.connect(sqlite_place.url.removeprefix("sqlite:///"), detect_types=sqlite3.PARSE_DECLTYPES)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    isolation_level = connection.isolation_level
    keyed = task.using(connection=connection, unique=uuid4().hex, run_at=NOON)
    job, same = keyed.enqueue(1), keyed.enqueue(2)
    assert (same, same.created, same.run_at) == (job, False, NOON)
    assert connection.in_transaction
    connection.commit()
    assert (connection.row_factory, connection.text_factory) == (sqlite3.Row, bytes)
    assert connection.isolation_level == isolation_level
    assert connection.execute("SELECT 'a' AS a").fetchone()["a"] == b"a"
    connection.close()
    assert sqlite_place.jobs() == [job]


def test_sqlite3_with_the_queue_attached(sqlite_place: Place, tmp_path: Any) -> None:
    task = sqlite_place.new_task()
    connection = sqlite3.connect(tmp_path / "mine.db")
    connection.execute("ATTACH DATABASE ? AS queue", [sqlite_place.url.removeprefix("sqlite:///")])
    job = task.using(connection=connection).enqueue(1)
    connection.commit()
    connection.close()
    assert sqlite_place.jobs() == [job]


async def test_sqlite3_in_async_code_blocks_and_works(sqlite_place: Place) -> None:
    task = sqlite_place.new_task()
    connection = sqlite3.connect(sqlite_place.url.removeprefix("sqlite:///"))
    await task.using(connection=connection).aenqueue(1)
    assert connection.in_transaction
    connection.rollback()
    connection.close()
    assert sqlite_place.jobs() == []


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "notes"
    text: Mapped[str] = mapped_column(primary_key=True)


def test_a_session_with_objects_that_are_not_flushed_yet(sqlite_place: Place) -> None:
    task, notes = sqlite_place.new_task(), [uuid4().hex, uuid4().hex]
    engine = create_engine(engine_url(sqlite_place.url, "pysqlite"))
    for note, is_kept in zip(notes, (False, True), strict=True):
        with Session(engine) as session, session.begin() as transaction:
            session.add(Note(text=note))
            task.using(connection=session).enqueue(1)
            if not is_kept:
                transaction.rollback()
    engine.dispose()
    assert sqlite_place.notes() == {notes[1]}
    assert len(sqlite_place.jobs()) == 1


def test_a_scoped_session_and_a_pool_that_lends_one_connection_again(postgres_place: Place) -> None:
    task = postgres_place.new_task()
    engine = create_engine(engine_url(postgres_place.url, "psycopg"), poolclass=StaticPool)
    sessions = scoped_session(sessionmaker(engine))
    for number in range(8):
        task.using(connection=sessions, priority=number).enqueue(number)
        sessions.execute(text("SELECT 1"))
        sessions.commit()
        sessions.remove()
    engine.dispose()
    assert len(postgres_place.jobs()) == 8


def test_a_client_with_options_of_its_own(mongodb_place: Place) -> None:
    task = mongodb_place.new_task()
    client: MongoClient[Any] = MongoClient(
        mongodb_place.url, uuidRepresentation="pythonLegacy", tz_aware=False, readConcernLevel="local"
    )
    with client, client.start_session() as session:
        with session.start_transaction():
            keyed = task.using(connection=session, unique=uuid4().hex, run_at=NOON)
            job, same = keyed.enqueue(1), keyed.enqueue(2)
            assert session.in_transaction
        assert not session.has_ended
    assert (same, same.created, same.run_at) == (job, False, NOON)
    assert mongodb_place.jobs() == [job]
