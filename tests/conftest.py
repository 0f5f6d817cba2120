"""Addresses of databases for the tests.

`store_url` runs a test on each of the three stores; on the two servers the schema is there already. A test that is
marked `one_store` does not depend on the store, and runs on SQLite alone. `empty_store_url` is for tests of migrations.
`fresh_sqlite_url`, `fresh_postgres_url` and `fresh_mongodb_url` are the same one by one: each is a database of its own,
empty, removed after the test. `postgres_url` and `mongodb_url` name the servers, shared by all tests: take them only to
connect, or for what belongs to a server.

A test whose server cannot be had fails.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from zlib import crc32

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.databases import MongoDatabases, drop_database
from tests.servers import MONGODB_VARIABLE, POSTGRES_VARIABLE, server_url
from windlass import Windlass
from windlass.embedded import ServerError

# How long an example takes says more about the machine than about us.
settings.register_profile("windlass", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("windlass")


DROP_SECONDS = 30.0  # for a backend to notice that it was told to end


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes run files in a mixed order: files that wait run beside files that compute."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: crc32(item.nodeid.partition("::")[0].encode()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`store_url`, and in tests/api `new_app`, with one store or with all three."""
    test = metafunc.definition
    of_one = test.get_closest_marker("one_store") and not test.get_closest_marker("every_store")
    fixture = next((name for name in ("store_url", "new_app") if name in metafunc.fixturenames), None)
    if fixture is not None:
        metafunc.parametrize(fixture, ["sqlite"] if of_one else ["sqlite", "postgres", "mongodb"], indirect=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The PostgreSQL server, by its maintenance database."""
    yield from _server_url_or_failure(POSTGRES_VARIABLE)


@pytest.fixture(scope="session")
def mongodb_url() -> Iterator[str]:
    """The MongoDB server, a replica set; whoever looks for it waits longer than our default."""
    for url in _server_url_or_failure(MONGODB_VARIABLE):
        parts = urlsplit(url)
        query = "&".join(filter(None, [parts.query, "serverSelectionTimeoutMS=30000"]))
        yield parts._replace(path=parts.path or "/", query=query).geturl()


@pytest.fixture
def fresh_sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def fresh_postgres_url(postgres_url: str, _postgres_administration: psycopg.Connection) -> Iterator[str]:
    """A new PostgreSQL database."""
    with _new_database(_postgres_administration, "template0") as name:
        yield _with_database(postgres_url, name)


@pytest.fixture
def migrated_postgres_url(
    postgres_url: str, _postgres_administration: psycopg.Connection, _postgres_template: str
) -> Iterator[str]:
    """A new PostgreSQL database with the schema: a copy takes half as long as to migrate."""
    with _new_database(_postgres_administration, _postgres_template) as name:
        yield _with_database(postgres_url, name)


@pytest.fixture(scope="session")
def _postgres_template(postgres_url: str, _postgres_administration: psycopg.Connection) -> Iterator[str]:
    with _new_database(_postgres_administration, "template0") as name:
        app = Windlass(_with_database(postgres_url, name))
        app.migrate()
        app.close()
        _wait_for_disconnection(_postgres_administration, name)
        yield name


@contextmanager
def _new_database(administration: psycopg.Connection, template: str) -> Iterator[str]:
    name = _new_database_name()
    identifiers = map(sql.Identifier, (name, template))
    # FILE_COPY takes twice as long, for two checkpoints.
    administration.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log").format(*identifiers))
    yield name
    _wait_for_disconnection(administration, name)
    _drop(administration, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def fresh_mongodb_url(mongodb_url: str, _mongodb_administration: MongoClient[Any]) -> Iterator[str]:
    """A MongoDB database that does not exist yet."""
    name = _new_database_name()
    yield _with_database(mongodb_url, name)
    drop_database(_mongodb_administration, name)


@pytest.fixture
def migrated_mongodb_url(_mongodb_databases: MongoDatabases) -> Iterator[str]:
    """A MongoDB database with the schema, and without a job."""
    name = _mongodb_databases.take()
    yield _mongodb_databases.url(name)
    _mongodb_databases.give_back(name)


@pytest.fixture(scope="session")
def _mongodb_databases(mongodb_url: str, _mongodb_administration: MongoClient[Any]) -> Iterator[MongoDatabases]:
    with closing(MongoDatabases(_mongodb_administration, mongodb_url)) as databases:
        yield databases


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """A database without a job on each of the three stores in turn."""
    kind = "fresh" if request.param == "sqlite" else "migrated"
    url: str = request.getfixturevalue(f"{kind}_{request.param}_url")
    return url


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def empty_store_url(request: pytest.FixtureRequest) -> str:
    """An empty database on each of the three stores in turn."""
    url: str = request.getfixturevalue(f"fresh_{request.param}_url")
    return url


@pytest.fixture
def write_ahead(store_url: str) -> None:
    """A SQLite file in WAL mode, where a process that is held up while it reads is in nobody's way."""
    if store_url.startswith("sqlite"):
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as file:
            assert file.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)


@pytest.fixture(scope="session")
def _postgres_administration(postgres_url: str) -> Iterator[psycopg.Connection]:
    try:
        connection = psycopg.connect(postgres_url, autocommit=True, connect_timeout=10)
    except psycopg.OperationalError as error:
        pytest.fail(f"PostgreSQL cannot be reached: {error}", pytrace=False)
    with connection:
        yield connection


@pytest.fixture(scope="session")
def _mongodb_administration(mongodb_url: str) -> Iterator[MongoClient[Any]]:
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        try:
            client.admin.command("ping")
        except PyMongoError as error:
            pytest.fail(f"MongoDB cannot be reached: {error}", pytrace=False)
        yield client


def _server_url_or_failure(variable: str) -> Iterator[str]:
    try:
        with server_url(variable) as url:
            yield url
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)


def _wait_for_disconnection(administration: psycopg.Connection, database: str) -> None:
    """Wait a moment for connections just closed to be gone: DROP DATABASE, finding one, sleeps for 100 ms."""
    for _ in range(20):
        connected = administration.execute("SELECT FROM pg_stat_activity WHERE datname = %s LIMIT 1", [database])
        if connected.rowcount == 0:
            break
        time.sleep(0.002)


def _drop(administration: psycopg.Connection, statement: sql.Composed) -> None:
    """It gives those who are connected five seconds to be gone."""
    deadline = time.monotonic() + DROP_SECONDS
    while True:
        try:
            administration.execute(statement)
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise


def _new_database_name() -> str:
    return f"windlass_test_{uuid4().hex}"


def _with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
