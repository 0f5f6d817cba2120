"""Each kind of connection, and the place that its jobs go to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

from tests.caller_transactions.kinds import KINDS, name_of
from tests.caller_transactions.lender import Lender
from tests.caller_transactions.place import Place


@pytest.fixture(scope="session")
def postgres_place(postgres_url: str) -> Iterator[Place]:
    """One for all tests: its tables take long to make, and each test has a queue of its own."""
    schema = f"callers_{uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        place = Place(postgres_url, schema=schema)
        wakeup: Any = place.app.store.wakeup
        wakeup.answer_seconds = 30.0  # a hint that takes longer is lost
        yield place
        place.close()
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(scope="session")
def mongodb_place(mongodb_url: str) -> Iterator[Place]:
    name = f"callers_{uuid4().hex[:12]}"
    place = Place(urlsplit(mongodb_url)._replace(path=f"/{name}").geturl())
    yield place
    place.close()
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        client.drop_database(name)


@pytest.fixture
def sqlite_place(fresh_sqlite_url: str) -> Iterator[Place]:
    """A file for each test: its hints do not tell one write from another."""
    place = Place(fresh_sqlite_url)
    yield place
    place.close()


@pytest.fixture(params=KINDS, ids=name_of)
def kind(request: pytest.FixtureRequest) -> type[Lender]:
    chosen: type[Lender] = request.param
    return chosen


@pytest.fixture
def place(kind: type[Lender], request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{kind.store}_place")
    return found


@pytest.fixture
async def lender(kind: type[Lender], place: Place) -> AsyncIterator[Lender]:
    lender = kind(place.url, place.table)
    await lender.open()
    yield lender
    await lender.close()
