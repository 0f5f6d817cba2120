"""A connection that leads to another database is refused, also where a queue lives there too; and so is None."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from tests.caller_transactions.kinds import KINDS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place
from windlass import InvalidInput, Windlass
from windlass.embedded import MongodbServer


@pytest.fixture
def other_queue(kind: type[Lender], request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another database of the same kind, with a queue of its own of the same names, and the caller's table."""
    place: Place = request.getfixturevalue("place")
    if kind.store == "sqlite":
        url = f"sqlite:///{tmp_path / 'other.db'}"
        Windlass(url).migrate()
        with closing(sqlite3.connect(tmp_path / "other.db")) as file:
            file.execute("CREATE TABLE notes (text text)")
        return url
    url = request.getfixturevalue("fresh_postgres_url")
    schema: str = place.app.store.schema  # type: ignore[attr-defined]
    other = Windlass(url, schema=schema)
    other.migrate()
    other.close()
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {schema}.notes (text text)")
    return url


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.store != "mongodb"], ids=name_of)
async def test_a_connection_to_another_queue(kind: type[Lender], place: Place, other_queue: str) -> None:
    task, note = place.new_task(), uuid4().hex
    stranger = kind(other_queue, place.table)
    await stranger.open()
    await stranger.begin()
    await stranger.write(note)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"is it the one|the queue is in|leads to"):
            await stranger.enqueue(task, 1)
    await stranger.write(f"{note} too")
    await stranger.commit()
    await stranger.close()
    assert place.jobs() == []


@pytest.fixture
def other_mongodb(mongodb_place: Place) -> Iterator[str]:
    with MongodbServer() as server:
        name = urlsplit(mongodb_place.url).path
        parts = urlsplit(server.url)
        url = parts._replace(path=name).geturl()
        other = Windlass(url)
        other.migrate()
        other.close()
        yield url


def test_a_session_of_another_server_with_a_queue(mongodb_place: Place, other_mongodb: str) -> None:
    task = mongodb_place.new_task()
    client: MongoClient[Any] = MongoClient(other_mongodb)
    notes = client["mine"]["notes"]
    with client:
        with client.start_session() as session, session.start_transaction():
            notes.insert_one({}, session=session)
            for _ in range(2):
                with pytest.raises(InvalidInput, match="leads to"):
                    task.using(connection=session).enqueue(1)
        assert notes.count_documents({}) == 1
        assert client.get_default_database()["windlass_jobs"].count_documents({}) == 0
    assert mongodb_place.jobs() == []


def test_another_client_of_the_same_server_is_welcome(mongodb_place: Place) -> None:
    task = mongodb_place.new_task()
    host = urlsplit(mongodb_place.url).netloc
    for url in (mongodb_place.url, f"mongodb://{host}/?directConnection=true"):
        client: MongoClient[Any] = MongoClient(url)
        with client, client.start_session() as session, session.start_transaction():
            task.using(connection=session).enqueue(1)
    assert len(mongodb_place.jobs()) == 2


def test_a_queue_that_is_attached_behind_another(sqlite_place: Place, tmp_path: Path) -> None:
    """Names are looked up in the main database first: the job would go there."""
    Windlass(f"sqlite:///{tmp_path / 'main.db'}").migrate()
    task = sqlite_place.new_task()
    with closing(sqlite3.connect(tmp_path / "main.db")) as connection:
        connection.execute("ATTACH DATABASE ? AS queue", [sqlite_place.url.removeprefix("sqlite:///")])
        with pytest.raises(InvalidInput, match="the queue is in"):
            task.using(connection=connection).enqueue(1)
    assert sqlite_place.jobs() == []


def test_the_server_was_restarted_in_between(postgres_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known of our own database is looked up again before a connection is refused."""
    task = postgres_place.new_task()
    monkeypatch.setattr(postgres_place.app.store.connections.home, "_ours", "as it was")  # type: ignore[attr-defined]
    with psycopg.connect(postgres_place.url) as connection:
        task.using(connection=connection).enqueue(1)
    assert len(postgres_place.jobs()) == 1


def test_none_is_no_connection(store_url: str) -> None:
    app = Windlass(store_url)

    @app.task
    def remember(number: int) -> int:
        return number

    meant = "connection=None"
    with pytest.raises(InvalidInput, match=meant):
        app.enqueue("remember", {"number": 1}, connection=None)
    with pytest.raises(InvalidInput, match=meant):
        app.enqueue_many([remember.call(1)], connection=None)
    with pytest.raises(InvalidInput, match=meant):
        app.enqueue_many([remember.call(1)], None)
    with pytest.raises(InvalidInput, match=meant):
        remember.using(connection=None)
    assert len(app.list()) == 0
    remember.enqueue(1)
    (attempt,) = app.claim()
    with pytest.raises(InvalidInput, match=meant):
        attempt.complete(1, connection=None)
    attempt.complete(1)
    app.close()


async def test_none_is_no_connection_in_async_code(store_url: str) -> None:
    app = Windlass(store_url)

    @app.task
    def remember(number: int) -> int:
        return number

    meant = "connection=None"
    with pytest.raises(InvalidInput, match=meant):
        await app.aenqueue("remember", {"number": 1}, connection=None)
    with pytest.raises(InvalidInput, match=meant):
        await app.aenqueue_many([remember.call(1)], connection=None)
    await remember.aenqueue(1)
    (attempt,) = await app.aclaim()
    with pytest.raises(InvalidInput, match=meant):
        await attempt.acomplete(1, connection=None)
    await attempt.acomplete(1)
    await app.aclose()
