"""The conformance suite on MongoDB: one database for all tests, emptied for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.conformance.stores import closing, emptied
from windlass.conformance import Conformance
from windlass.stores.opening import open_store
from windlass.stores.store import Store


@pytest.fixture(scope="module")
def database_url(mongodb_url: str) -> Iterator[str]:
    """A database with its collections and indexes; it takes half a second to make."""
    name = f"conformance_{uuid4().hex[:12]}"
    url = urlsplit(mongodb_url)._replace(path=f"/{name}").geturl()
    with closing(open_store(url)) as store:
        store.connections.run(store.migrate)
    yield url
    client: MongoClient[Any] = MongoClient(mongodb_url)
    with client:
        client.drop_database(name)


class TestMongodb(Conformance):
    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with closing(open_store(database_url)) as store:
            yield emptied(store)

    @pytest.fixture
    def bare_store(self, fresh_mongodb_url: str) -> Iterator[Store]:
        with closing(open_store(fresh_mongodb_url)) as store:
            yield store
