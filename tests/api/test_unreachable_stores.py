"""A store that cannot be reached, or is not what it should be: told soon, with what to do, without the password."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.program import run
from windlass import InvalidInput, StoreUnavailable, Windlass
from windlass.embedded import MongodbServer, free_port
from windlass.stores.sqlite import connections

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("mysql://localhost/jobs", r"mysql.*no such kind of store.*sqlite:///.*postgresql://.*mongodb://"),
        ("jobs.db", "no such kind of store"),
        ("sqlite:jobs.db", "no such kind of store"),
        ("sqlite://jobs.db", "three slashes, as in sqlite:///jobs.db"),
        ("sqlite:///jobs.db?cache=shared", "unknown option cache"),
        ("sqlite:///jobs.db?journal_mode=off", "journal_mode is 'wal' or 'delete'"),
        (f"redis://user:{SECRET}@localhost", "no such kind of store"),
        (f"postgresql://user:{SECRET}@localhost:port/jobs", "cannot be read as a PostgreSQL URL"),
        (f"postgresql://user:{SECRET}/{SECRET}@localhost/jobs", "cannot be read as a PostgreSQL URL"),
        (f"postgresql://user:{SECRET}@localhost/jobs?colour=red", "cannot be read as a PostgreSQL URL"),
        (f"mongodb://user:{SECRET}@localhost:port/jobs", "MongoDB URL cannot be read"),
        (f"mongodb://user:{SECRET}@{SECRET}@localhost/jobs", "MongoDB URL cannot be read"),
        ("mongodb://", "MongoDB URL cannot be read"),
        (5, "no such kind of store"),
    ],
)
def test_a_url_that_cannot_be(url: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match) as caught:
        Windlass(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "postgresql://localhost", "mongodb://localhost"])
@pytest.mark.parametrize("prefix", ["", "1st_", 'a"; drop table users --', "Jobs_", "x" * 41, None])
def test_a_bad_prefix(url: str, prefix: Any) -> None:
    with pytest.raises(InvalidInput, match=r"prefix .*small letters"):
        Windlass(url, prefix=prefix)


@pytest.mark.parametrize("schema", ["", "my schema", 'a"b', "é"])
def test_a_bad_schema(schema: str) -> None:
    with pytest.raises(InvalidInput, match=r"schema .*small letters"):
        Windlass("postgresql://localhost", schema=schema)


def assert_unavailable(app: Windlass, match: str) -> None:
    for use in (
        lambda: app.enqueue("send", {}),
        lambda: asyncio.run(app.aenqueue("send", {})),
        lambda: app.migrate(),
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=match) as caught:
            use()
        assert time.monotonic() - began < 8
        assert SECRET not in str(caught.value)


def test_a_postgres_server_that_is_down() -> None:
    port = free_port()
    app = Windlass(f"postgresql://user:{SECRET}@127.0.0.1:{port}/jobs?sslpassword={SECRET}")
    assert_unavailable(app, f"PostgreSQL at postgresql://user:.*@127.0.0.1:{port}/jobs.* cannot be reached")


def test_a_mongodb_server_that_is_down() -> None:
    port = free_port()
    app = Windlass(f"mongodb://user:{SECRET}@127.0.0.1:{port}/jobs?serverSelectionTimeoutMS=300")
    assert_unavailable(app, f"MongoDB at mongodb://127.0.0.1:{port}/jobs cannot be reached")


def test_a_postgres_server_that_does_not_let_us_in(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    place = f"{parts.hostname}:{parts.port}"
    stranger = Windlass(f"postgresql://windlass_nobody:{SECRET}@{place}/postgres")
    assert_unavailable(stranger, "windlass_nobody")
    nowhere = Windlass(parts._replace(path="/windlass_nowhere").geturl())
    assert_unavailable(nowhere, "windlass_nowhere.* does not exist")


def test_a_mongodb_server_that_does_not_let_us_in(mongodb_url: str) -> None:
    parts = urlsplit(mongodb_url)
    url = parts._replace(netloc=f"nobody:{SECRET}@{parts.netloc}", path="/admin").geturl()
    assert_unavailable(Windlass(url), "does not let us in")


def test_a_standalone_mongodb_server() -> None:
    with MongodbServer(standalone=True) as server:
        assert_unavailable(Windlass(server.url), r"needs a replica set.*--replSet rs0.*rs\.initiate\(\)")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    assert_unavailable(Windlass(f"sqlite:///{tmp_path}/nowhere/jobs.db"), r"nowhere/jobs\.db: there is no folder")
    (tmp_path / "text.db").write_text("This is no database, but it is long enough to look like one." * 20)
    assert_unavailable(Windlass(f"sqlite:///{tmp_path}/text.db"), "not a database")


def test_a_file_that_someone_holds_locked(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_SECONDS", 0.1)
    app = Windlass(fresh_sqlite_url)
    mine = sqlite3.connect(fresh_sqlite_url.removeprefix("sqlite:///"))
    mine.execute("CREATE TABLE users (id integer)")
    mine.execute("INSERT INTO users VALUES (1)")
    choices: list[dict[str, Any]] = [{}, {"connection": mine}]
    for options in choices:
        with pytest.raises(StoreUnavailable, match=r"locked by someone else.*connection=….*app\.migrate\(\) before"):
            app.enqueue("send", {}, **options)
    mine.commit()
    assert app.enqueue("send", {}, connection=mine).created
    mine.rollback()
    mine.close()
    assert app.counts().total == 0
    app.close()


WITHOUT_DRIVERS = """
import sys

for name in ("psycopg", "pymongo", "bson", "asyncpg", "sqlalchemy", "pydantic"):
    sys.modules[name] = None

from windlass import MissingExtra, Windlass

for url in ("postgresql://localhost/jobs", "mongodb://localhost/jobs"):
    try:
        Windlass(url)
    except MissingExtra as error:
        print(error)

app = Windlass("sqlite://")


@app.task
def add(left: int, right: int) -> int:
    return left + right


job = add.enqueue(1, 2)
app.run_worker(until_idle=True)
print(job.result())
"""


def test_a_missing_extra_is_named_and_sqlite_needs_none(tmp_path: Path) -> None:
    done = run("-c", WITHOUT_DRIVERS, folder=tmp_path)
    assert done.stderr == ""
    postgres, mongodb, result = done.stdout.splitlines()
    assert postgres == "PostgreSQL needs a driver that is not installed (psycopg): pip install 'windlass[postgres]'"
    assert "pip install 'windlass[mongodb]'" in mongodb
    assert result == "3"
